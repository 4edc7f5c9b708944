package cli

import (
	"archive/tar"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

func someCheckpoints() api.CheckpointList {
	return api.CheckpointList{Checkpoints: []api.Checkpoint{
		{
			ID: "j7.c1", Job: "j7", Run: "j7.1", Name: "checkpoint-100", Step: new(int64(100)), Metric: "loss",
			Value: new(0.71), Size: 1 << 30, State: checkpoint.Stored, Pinned: true, Written: ago(3 * time.Hour),
			Nodes: []id.Node{"gpu-1"}, Found: checkpoint.ByHuggingFace, Shared: "lab",
		},
		{
			ID: "j7.c2", Job: "j7", Run: "j7.1", Name: "checkpoint-200", Step: new(int64(200)), Metric: "loss",
			Value: new(0.5), Size: 1 << 30, State: checkpoint.Corrupt, Reason: "chunk 1 has another digest",
			Written: ago(2 * time.Hour), Nodes: []id.Node{"gpu-1"},
		},
		{
			ID: "j7.c3", Job: "j7", Run: "j7.2", Name: ".", Size: 5 << 20, State: checkpoint.Stored, Next: true,
			Written: ago(time.Minute), Nodes: []id.Node{"gpu-1", "gpu-2"},
		},
	}}
}

func TestCheckpointsAreListed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j7/checkpoints", someCheckpoints())
	y.answer("GET /api/v1/jobs/j8/checkpoints", api.CheckpointList{})

	for name, args := range map[string][]string{
		"checkpoints": {"checkpoints", "j7"}, "checkpoints-quiet": {"checkpoints", "j7", "-q"},
		"checkpoints-json": {"checkpoints", "j7", "-o", "json"}, "checkpoints-none": {"checkpoints", "j8"},
		"help-checkpoints": {"checkpoints", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			if code := p.types(t.Context(), args...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			golden(t, name, p.stdout.String()+p.stderr.String())
		})
	}
}

func TestAJobIsAskedToSaveACheckpoint(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("POST /api/v1/jobs/j7/save", api.Job{ID: "j7"})

	p := newPerson(t).at(t, y)
	code := p.types(t.Context(), "checkpoints", "save", "j7")
	if code != exit.OK || p.stdout.String() != "j7 was asked to save a checkpoint\n" {
		t.Errorf("exit code %d: %s%s", code, p.stdout, p.stderr)
	}

	if got := y.called(); len(got) != 1 {
		t.Errorf("calls: %v", got)
	}
}

func TestCheckpointsArePinnedAndRemoved(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("PUT /api/v1/checkpoints/j7.c1/pin", someCheckpoints().Checkpoints[0])
	y.answer("DELETE /api/v1/checkpoints/j7.c1/pin", someCheckpoints().Checkpoints[0])
	y.mux.HandleFunc("DELETE /api/v1/checkpoints/j7.c1", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})

	for _, args := range [][]string{
		{"checkpoints", "pin", "j7.c1"}, {"checkpoints", "unpin", "j7.c1"}, {"checkpoints", "rm", "j7.c1", "--yes"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK || !strings.Contains(p.stdout.String(), "j7.c1") {
			t.Errorf("%v: exit code %d: %s%s", args, code, p.stdout, p.stderr)
		}
	}

	if got := y.called(); len(got) != 3 {
		t.Errorf("calls: %v", got)
	}
}

// archive serves a checkpoint with these files; one whose content is "-> x" is a link.
func (y *yard) archive(name string, files ...[2]string) {
	y.answer("GET /api/v1/checkpoints/"+name, api.Checkpoint{ID: id.Checkpoint(name), Size: 10})
	y.mux.HandleFunc("GET /api/v1/checkpoints/"+name+"/archive", func(w http.ResponseWriter, _ *http.Request) {
		out := tar.NewWriter(w)

		for _, f := range files {
			head := tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o640, Size: int64(len(f[1]))}
			if target, link := strings.CutPrefix(f[1], "-> "); link {
				head.Typeflag, head.Linkname, head.Size = tar.TypeSymlink, target, 0
			}

			if err := out.WriteHeader(&head); err != nil {
				panic(err)
			}

			if head.Size > 0 {
				_, _ = out.Write([]byte(f[1]))
			}
		}

		if name == "j7.c9" {
			panic(http.ErrAbortHandler) // before its end
		}

		_ = out.Close()
	})
}

func TestACheckpointIsDownloadedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.archive("j7.c1", [2]string{"a/model", "weights"}, [2]string{"b", "x"}, [2]string{"c", "-> b"})
	y.archive("j7.c9", [2]string{"a/model", "weights"})
	y.archive("j7.c8", [2]string{"../evil", "x"})
	y.archive("j7.c7", [2]string{"out", "-> .."}, [2]string{"out/evil", "x"})

	dir := t.TempDir()
	to := filepath.Join(dir, "model")
	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "checkpoints", "download", "j7.c1", "--to", to); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	text, err := os.ReadFile(filepath.Join(to, "a", "model"))
	if err != nil || string(text) != "weights" {
		t.Errorf("downloaded %q, error %v", text, err)
	}

	if text, err := os.ReadFile(filepath.Join(to, "c")); err != nil || string(text) != "x" {
		t.Errorf("the link leads to %q, error %v", text, err)
	}

	if !strings.Contains(p.stdout.String(), "3 files of j7.c1") {
		t.Errorf("says %q", p.stdout)
	}

	// A directory that is there is not overwritten.
	if code := p.types(t.Context(), "checkpoints", "download", "j7.c1", "--to", to); code == exit.OK {
		t.Error("a directory was overwritten")
	}

	for _, bad := range []string{"j7.c9", "j7.c8", "j7.c7"} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), "checkpoints", "download", bad, "--to", filepath.Join(dir, bad)); code == exit.OK {
			t.Errorf("%s was downloaded", bad)
		}
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, error %v", entries, err)
	}
}
