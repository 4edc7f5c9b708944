package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/job"
	"trainyard/test/pypi"
)

// TestAJobWithAPythonEnvironment goes the way of a researcher: a job file with requirements, a second job that finds
// the environment though its code has changed, a file that is not there, and a package that does not exist.
func TestAJobWithAPythonEnvironment(t *testing.T) {
	t.Parallel()
	index := pypi.Serve(t,
		pypi.Package{Name: "alpha", Version: "1.0", Requires: []string{"beta"}, Code: "def main(): print('tool of alpha')"},
		pypi.Package{Name: "beta", Version: "0.5"},
	)
	y := newYard(t)
	y.join(t, []string{"north"})

	if out := y.succeed(t, "nodes", "north").out; !strings.Contains(out, "Python:") {
		t.Errorf("the node does not say with what it makes environments:\n%s", out)
	}

	dir := filepath.Join(y.Folder, "train")
	write := func(name, text string) string {
		t.Helper()

		path := filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	write("requirements.txt", "alpha\n")
	write("train.py", "import alpha, beta\nprint('alpha', alpha.VERSION, 'beta', beta.VERSION)\n")
	file := write("job.yaml", "workdir: .\npython: {requirements: requirements.txt}\nresources: {cpus: 0.1}\nenv: {PIP_INDEX_URL: '"+
		index.URL+"', XDG_CACHE_HOME: '"+filepath.Join(y.Folder, "cache")+"'}\nrun: [python train.py, alpha-tool]\n")

	submit := func() string {
		t.Helper()
		return strings.TrimSpace(y.succeed(t, "submit", "-y", "-q", file).out)
	}

	first := submit()
	y.succeed(t, "wait", first)

	if got := y.succeed(t, "logs", first).out; !strings.Contains(got, "alpha 1.0 beta 0.5\ntool of alpha\n") {
		t.Errorf("the first job prints %q", got)
	}

	write("train.py", "import alpha\nprint('changed code, alpha', alpha.VERSION)\n")

	second := submit()
	y.succeed(t, "wait", second)

	if r := y.succeed(t, "logs", second); !strings.Contains(r.out, "changed code, alpha 1.0") ||
		!strings.Contains(r.out+r.err, "taken from the cache") {
		t.Errorf("the second job prints %s", r)
	}

	if n := index.Asked("alpha"); n != 1 {
		t.Errorf("the environment was made %d times", n)
	}

	other := write("other.yaml", "workdir: .\npython: {uv: uv.lock}\nrun: python train.py\n")
	if r := y.exits(t, 104, "submit", "-y", other); !strings.Contains(r.err, "uv.lock is not among the files of the working directory") {
		t.Errorf("a job file without its lock file is answered with %s", r)
	}

	write("requirements.txt", "alpha\nno-such-package\n")

	third := submit()
	d := y.awaitState(t, third, job.Failed)

	if d.Status != job.StatusFailedSetup || !strings.Contains(d.Reason, "package no-such-package was not found") {
		t.Errorf("a job with a package that does not exist is %s: %s", d.Status, d.Reason)
	}
}
