package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// outputFile is a file of one chunk, which the yard serves for a rank.
func (y *yard) outputFile(at, name, content string) api.CheckpointFile {
	sum := sha256.Sum256([]byte(content))
	digest := hex.EncodeToString(sum[:])
	y.mux.HandleFunc("GET /api/v1/jobs/j7/outputs/"+at+"/chunks/"+digest, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(content))
	})

	return api.CheckpointFile{
		Path: name, Mode: 0o644, Size: int64(len(content)),
		Chunks: []api.CheckpointChunk{{Digest: digest, Size: int64(len(content))}},
	}
}

// withOutputs is a yard whose job j7 has left output files in two runs, the newer one on two nodes.
func withOutputs(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	for _, j := range []id.Job{"j7", "j8", "j9"} {
		y.answer("GET /api/v1/jobs/"+string(j), api.JobDetail{
			Job: api.Job{ID: j, State: job.Failed, Epoch: 2}, Runs: []api.Run{{Epoch: 2, State: job.RunEnded}},
		})
		y.answer("POST /api/v1/jobs/"+string(j)+"/outputs", api.AskedOutputs{
			Done: true, Problems: []string{"rank 0 on node gpu-1: the folder is not on this node any more"},
		})
	}

	y.answer("GET /api/v1/jobs/j7/outputs", api.OutputList{Outputs: []api.OutputSet{
		{Run: "j7.2", Node: "gpu-1", Kept: ago(time.Hour), Files: 3, Bytes: 12},
		{Run: "j7.2", Rank: 1, Node: "gpu-2", Kept: ago(time.Hour), Files: 2, Bytes: 9, Notes: []string{"x.csv: not found"}},
		{Run: "j7.1", Node: "gpu-1", Kept: ago(2 * time.Hour), Files: 2, Bytes: 8},
	}})
	y.answer("GET /api/v1/jobs/j7/outputs/j7.2/0", api.OutputManifest{Files: []api.CheckpointFile{
		y.outputFile("j7.2/0", "best.pt", "weights"), y.outputFile("j7.2/0", "log", "rank0"), {Path: "last.pt", Link: "best.pt"},
	}})
	y.answer("GET /api/v1/jobs/j7/outputs/j7.2/1", api.OutputManifest{Files: []api.CheckpointFile{
		y.outputFile("j7.2/1", "best.pt", "weights"), y.outputFile("j7.2/1", "log", "rank1"),
	}})
	y.answer("GET /api/v1/jobs/j7/outputs/j7.1/0", api.OutputManifest{Files: []api.CheckpointFile{
		y.outputFile("j7.1/0", "best.pt", "older"), y.outputFile("j7.1/0", "runs/a", "events"),
	}})
	y.answer("GET /api/v1/jobs/j8/outputs", api.OutputList{})
	y.answer("GET /api/v1/jobs/j9/outputs", api.OutputList{Outputs: []api.OutputSet{
		{Run: "j9.1", Removed: "its job ended more than 30d ago"},
	}})

	return y
}

func TestOutputFilesAreListed(t *testing.T) {
	t.Parallel()
	y := withOutputs(t)

	for name, args := range map[string][]string{
		"fetch-list": {"fetch", "j7", "--list"}, "fetch-list-json": {"fetch", "j7", "--list", "-o", "json"},
		"fetch-list-run": {"fetch", "j7", "--list", "--run", "j7.1"}, "help-fetch": {"fetch", "--help"},
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

// Of a file that several runs have left the newest is fetched, and of one that ranks have with unlike content both.
func TestOutputFilesAreFetched(t *testing.T) {
	t.Parallel()
	y := withOutputs(t)

	for name, tt := range map[string]struct {
		args []string
		want map[string]string
		says string
	}{
		"all": {nil, map[string]string{
			"best.pt": "weights", "last.pt": "weights", "log": "rank0", "rank-1/log": "rank1", "runs/a": "events",
		}, "5 files"},
		"by patterns": {[]string{"*.pt", "runs"}, map[string]string{
			"best.pt": "weights", "last.pt": "weights", "runs/a": "events",
		}, "3 files"},
		"of a run":  {[]string{"--run", "j7.1"}, map[string]string{"best.pt": "older", "runs/a": "events"}, "2 files"},
		"of a rank": {[]string{"--rank", "1"}, map[string]string{"best.pt": "weights", "log": "rank1", "runs/a": ""}, "2 files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			dir := filepath.Join(t.TempDir(), "to")

			args := append([]string{"fetch", "j7", "--to", dir}, tt.args...)
			if code := p.types(t.Context(), args...); code != exit.OK || !strings.Contains(p.stdout.String(), tt.says) {
				t.Fatalf("exit code %d: %s%s", code, p.stdout, p.stderr)
			}

			for file, want := range tt.want {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if want != "" && err != nil || string(text) != want {
					t.Errorf("%s is %q (%v), want %q", file, text, err, want)
				}
			}
		})
	}
}

func TestFetchSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	y := withOutputs(t)

	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"nothing kept":     {[]string{"j8"}, "no output files of job j8 are kept"},
		"removed":          {[]string{"j9"}, "the output files of job j9 were removed: its job ended more than 30d ago"},
		"unknown pattern":  {[]string{"j7", "worst.pt"}, `no output file of j7 matches "worst.pt"`},
		"bad pattern":      {[]string{"j7", "../x"}, "must be inside the working directory"},
		"unknown rank":     {[]string{"j7", "--rank", "7"}, "no output files of rank 7 of job j7 are kept"},
		"something in way": {[]string{"j7", "--run", "j7.1", "--to", "TAKEN"}, "best.pt would be overwritten"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			taken := t.TempDir()

			if err := os.WriteFile(filepath.Join(taken, "best.pt"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}

			args := []string{"fetch"}
			for _, a := range tt.args {
				args = append(args, strings.ReplaceAll(a, "TAKEN", taken))
			}

			if code := p.types(t.Context(), args...); code == exit.OK || !strings.Contains(p.stderr.String(), tt.want) {
				t.Errorf("exit code %d: %s", code, p.stderr)
			}

			if text, err := os.ReadFile(filepath.Join(taken, "best.pt")); err != nil || string(text) != "mine" {
				t.Errorf("best.pt is %q (%v)", text, err)
			}
		})
	}
}

// Files that are not kept, and those of a run that goes on, come from the folder of the run.
func TestFilesAreTakenFromTheRunsFolder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j7", api.JobDetail{
		Job: api.Job{ID: "j7", State: job.Running, Epoch: 1}, Runs: []api.Run{{ID: "j7.1", Epoch: 1, State: job.RunRunning}},
		Spec: []byte(`{"run":"x","outputs":["best.pt"]}`),
	})

	kept, asked := false, []api.AskOutputs{}
	y.mux.HandleFunc("GET /api/v1/jobs/j7/outputs", func(w http.ResponseWriter, _ *http.Request) {
		var list api.OutputList
		if kept {
			list.Outputs = []api.OutputSet{{Run: "j7.1", Node: "gpu-1", Files: 1, Bytes: 7}}
		}

		reply(w, http.StatusOK, list)
	})
	y.mux.HandleFunc("POST /api/v1/jobs/j7/outputs", func(w http.ResponseWriter, r *http.Request) {
		var in api.AskOutputs
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}

		asked = append(asked, in)
		out := api.AskedOutputs{Done: len(asked) > 1} // the first request is too short
		if in.List {
			out.Found = []api.FoundFile{{Run: "j7.1", OutputFile: api.OutputFile{Path: "train.py", Size: 3}}}
		}

		kept = kept || out.Done && !in.List
		reply(w, http.StatusOK, out)
	})
	y.answer("GET /api/v1/jobs/j7/outputs/j7.1/0", api.OutputManifest{Files: []api.CheckpointFile{
		y.outputFile("j7.1/0", "best.pt", "weights"),
	}})

	p := newPerson(t).at(t, y)
	dir := filepath.Join(t.TempDir(), "to")

	if code := p.types(t.Context(), "fetch", "j7", "--to", dir); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	if text, err := os.ReadFile(filepath.Join(dir, "best.pt")); err != nil || string(text) != "weights" {
		t.Errorf("best.pt is %q (%v)", text, err)
	}

	if len(asked) != 2 || strings.Join(asked[1].Patterns, " ") != "best.pt" {
		t.Errorf("asked for %+v", asked)
	}

	if code := p.types(t.Context(), "fetch", "j7", "--list"); code != exit.OK ||
		!strings.Contains(p.stdout.String(), "train.py") {
		t.Errorf("exit code %d: %s%s", code, p.stdout, p.stderr)
	}
}
