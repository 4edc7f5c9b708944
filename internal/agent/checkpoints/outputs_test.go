package checkpoints

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
)

// newOutputs returns a rank that has left files: its checkpoint directory is ckpt in its working directory, by a link.
func newOutputs(t *testing.T, patterns ...string) Outputs {
	t.Helper()
	dir := t.TempDir()
	set := Outputs{
		Run: "j1.1", UID: "u1", Work: filepath.Join(dir, "work"), Checkpoint: "ckpt", Patterns: patterns,
		Checkpoints: filepath.Join(dir, "checkpoints", "j1"),
	}

	write(t, set.Work, map[string]string{
		"train.py": "code", "runs/a/events": "a", "runs/b/events": "bb", "out.tmp": "", "venv/lib/big": strings.Repeat("x", 1000),
	})
	write(t, set.Checkpoints, map[string]string{"best.pt": "weights", "last.pt": "other weights"})
	write(t, dir, map[string]string{"secret": "of the node"})
	link(t, set.Checkpoints, filepath.Join(set.Work, "ckpt"))

	return set
}

func link(t *testing.T, target, name string) {
	t.Helper()

	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// kept waits until the output files of a rank are kept and returns what was entered.
func kept(t *testing.T, y *fakeYard, c *Checkpoints, set Outputs) api.NewOutputs {
	t.Helper()

	if err := awaitKeeper(t, y, c, set); err != nil {
		t.Fatal(err)
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	return y.outputs[len(y.outputs)-1]
}

func awaitKeeper(t *testing.T, y *fakeYard, c *Checkpoints, set Outputs) (problem error) {
	t.Helper()
	k := c.Keep(set)
	t.Cleanup(k.Stop)
	y.await("the keeper to finish", func() bool {
		done, err := k.Finished()
		problem = err

		return done
	})

	return problem
}

func TestOutputFilesAreKept(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	set := newOutputs(t, "ckpt/best.pt", "runs/**", "out.tmp", "missing/*.csv")
	in := kept(t, y, newCheckpoints(t, y), set)

	sameFiles(t, "the store", y.manifest(in.Manifest), map[string]string{
		"ckpt/best.pt": "weights", "runs/a/events": "a", "runs/b/events": "bb", "out.tmp": "",
	})

	if in.Run != "j1.1" || in.UID != "u1" || in.Bytes != 10 {
		t.Errorf("entered %+v", in)
	}

	if diff := cmp.Diff([]string{"missing/*.csv: not found"}, in.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// A program may make any link. None is followed out of the run's folder.
func TestLinksOfOutputFilesDoNotLeadOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	set := newOutputs(t, "o/**")
	write(t, set.Work, map[string]string{"o/real": "r"})

	for name, target := range map[string]string{
		"o/kept":       "real",                                    // to a file that is kept: stays a link
		"o/code":       "../train.py",                             // to a file that is not: its content is taken
		"o/best":       filepath.Join(set.Checkpoints, "best.pt"), // to one in the checkpoint directory, too
		"o/out":        "../../secret",
		"o/absolute":   filepath.Join(filepath.Dir(set.Work), "secret"),
		"o/folder":     "../..",
		"o/nowhere":    "../gone",
		"o/twice":      "out",
		"o/checkpoint": "../ckpt/last.pt",
	} {
		link(t, target, filepath.Join(set.Work, name))
	}

	in := kept(t, y, newCheckpoints(t, y), set)
	got := y.manifest(in.Manifest)

	want := map[string]string{
		"o/real": "r", "o/kept": "-> real", "o/code": "code", "o/best": "weights", "o/checkpoint": "other weights",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}

	for _, name := range []string{"o/out", "o/absolute", "o/folder", "o/nowhere", "o/twice"} {
		if !slices.ContainsFunc(in.Notes, func(n string) bool { return strings.HasPrefix(n, name+" left out") }) {
			t.Errorf("nothing is said of %s: %q", name, in.Notes)
		}
	}
}

// A folder of the working directory may be replaced by a link while it is looked at; os.Root holds then, too.
func TestAFolderThatIsALinkIsNotEntered(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	set := newOutputs(t, "**")
	outside := t.TempDir()
	write(t, outside, map[string]string{"key": "secret"})
	link(t, outside, filepath.Join(set.Work, "linked"))

	in := kept(t, y, newCheckpoints(t, y), set)
	for name, text := range y.manifest(in.Manifest) {
		if strings.Contains(text, "secret") || strings.HasPrefix(name, "linked") {
			t.Errorf("%s was kept: %s", name, text)
		}
	}
}

func TestOutputFilesThatAreTooLargeAreNotUploaded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.full = func(in *api.NewOutputs) error {
		return fault.New(fault.Conflict, "output_files_quota", "%s are too much", in.Bytes)
	}

	err := awaitKeeper(t, y, newCheckpoints(t, y), newOutputs(t, "ckpt"))
	if err == nil || !strings.Contains(err.Error(), "20B are too much") || y.uploaded != 0 {
		t.Errorf("%v, with %d bytes uploaded", err, y.uploaded)
	}
}

// An agent that was restarted does not upload again what it was done with, and finishes what it was not.
func TestOutputFilesAreKeptOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, set := newCheckpoints(t, y), newOutputs(t, "runs")
	kept(t, y, c, set)
	calls := maps.Clone(y.calls)
	kept(t, y, c, set)

	if diff := cmp.Diff(calls, y.calls); diff != "" {
		t.Errorf("the next process called the server again (-first +second):\n%s", diff)
	}

	if err := c.Forget(set.Run, set.Rank); err != nil {
		t.Fatal(err)
	}

	before := y.uploaded
	kept(t, y, c, set)

	if y.uploaded != before {
		t.Errorf("%d bytes were uploaded that the server had", y.uploaded-before)
	}
}
