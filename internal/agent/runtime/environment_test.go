package runtime

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/test/pypi"
)

// pyYard is a yard whose jobs have Python environments with the packages of an index.
type pyYard struct {
	*yard
	index *pypi.Index
	tools string // directory with uv or conda, before the others of PATH; "" for pip
	tree  map[string]string
	cache string // of pip and uv, which would know the port of an earlier index
}

// newPyYard opens a yard whose every working directory has the files of tree.
func newPyYard(t *testing.T, tools string, tree map[string]string, change ...func(*Options)) *pyYard {
	t.Helper()

	if tools == "" {
		if err := exec.CommandContext(t.Context(), "python3", "-c", "import venv, ensurepip").Run(); err != nil {
			lacking(t, "needs python3 with venv: scripts/setup.sh test installs it")
		}
	}

	y := &pyYard{tools: tools, tree: tree, cache: t.TempDir(), index: pypi.Serve(t,
		pypi.Package{Name: "alpha", Version: "1.0", Requires: []string{"beta"}, Code: "def main(): print('tool of alpha')"},
		pypi.Package{Name: "alpha", Version: "2.0"}, pypi.Package{Name: "beta", Version: "0.5"},
	)}
	files := func(_ context.Context, _, dir string) error {
		for name, text := range y.tree {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				return err
			}
		}

		return nil
	}
	y.yard = newYard(t, append(change, func(o *Options) { o.Files = files })...)

	return y
}

// launch starts a run with an environment.
func (y *pyYard) launch(p job.Python, command string, change ...func(*api.Launch)) id.Run {
	y.t.Helper()
	l := api.Launch{
		Owner: "ada", OwnerNumber: 1, Workdir: "sha256:1", Python: &p, Command: command, LogLimit: 1 << 20,
		Env: map[string]string{"PIP_INDEX_URL": y.index.URL, "PATH": y.tools + ":" + os.Getenv("PATH")},
	}
	if y.opts.Users == nil {
		l.Env["XDG_CACHE_HOME"] = y.cache
	}

	for _, c := range change {
		c(&l)
	}

	s := y.spec(l)
	if y.tools != "" {
		s.Visible = append(s.Visible, y.tools)
	}

	if err := y.Start(y.t.Context(), s); err != nil {
		y.t.Fatal(err)
	}

	return s.Run
}

// environments returns the directories of the environments that are complete.
func (y *pyYard) environments() []string {
	y.t.Helper()
	found, err := filepath.Glob(filepath.Join(y.dir, rundir.SetupsDir, "py-*", rundir.SetupResultFile))
	if err != nil {
		y.t.Fatal(err)
	}

	for i := range found {
		found[i] = filepath.Dir(found[i])
	}

	return found
}

// awaitReason waits until a preparing run gives a reason that contains a text.
func (y *pyYard) awaitReason(run id.Run, text string) {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(y.t.Context(), 5*time.Minute)
	defer cancel()

	for {
		changed := y.Watch()
		s, _ := y.Status(run, 0)
		if s.State == job.RunPreparing && strings.Contains(s.Reason, text) {
			return
		}
		if s.State == job.RunEnded || y.index.Asked("alpha") > 1 {
			y.t.Fatalf("run %s has ended or makes one of its own, without the reason %q: %+v", run, text, s)
		}

		select {
		case <-changed:
		case <-ctx.Done():
			y.t.Fatalf("run %s does not give the reason %q: %+v", run, text, s)
		}
	}
}

// awaitDownload waits until a run begins to download something.
func (y *pyYard) awaitDownload(run id.Run, arrived <-chan string) {
	y.t.Helper()

	for {
		changed := y.Watch()
		if s, _ := y.Status(run, 0); s.State == job.RunEnded {
			y.t.Fatalf("run %s has ended without a download: %+v", run, s)
		}

		select {
		case <-arrived:
			return
		case <-changed:
		}
	}
}

// gate holds back all downloads until it is opened.
func gate(t *testing.T, x *pypi.Index) (arrived <-chan string, open func()) {
	t.Helper()
	files, opened := make(chan string, 100), make(chan struct{})
	open = sync.OnceFunc(func() { close(opened) })
	t.Cleanup(open)

	x.Before(func(file string) {
		files <- file
		<-opened
	})

	return files, open
}

// byPipAndUV runs a test with the real pip and the real uv, as the agent and as users.
func byPipAndUV(t *testing.T, test func(t *testing.T, tools string, mode func(*Options))) {
	t.Helper()

	for name, tools := range map[string]func(t testing.TB) string{
		"pip": func(testing.TB) string { return "" }, "uv": pypi.UV,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothModes(t, func(t *testing.T, mode func(*Options)) {
				t.Helper()
				test(t, tools(t), mode)
			})
		})
	}
}

const printVersions = `python -c 'import sys, alpha, beta; print(alpha.VERSION, beta.VERSION, sys.prefix == sys.base_prefix)'
alpha-tool; test "$VIRTUAL_ENV" = "$(python -c 'import sys; print(sys.prefix)')"; touch "$VIRTUAL_ENV/x" 2>/dev/null && echo written || true`

func TestAnEnvironmentIsMadeOnceAndShared(t *testing.T) {
	t.Parallel()
	byPipAndUV(t, func(t *testing.T, tools string, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, map[string]string{
			"requirements.txt": "-r more/base.txt\n", "more/base.txt": "alpha==1.0 # the old one\n",
		}, mode)
		p := job.Python{Requirements: "requirements.txt"}

		// Several at the same time: one makes it, the others wait and say so.
		arrived, open := gate(t, y.index)
		first := y.launch(p, printVersions)
		y.awaitDownload(first, arrived)
		y.awaitReason(first, "building the Python environment")

		second := y.launch(p, printVersions, func(l *api.Launch) { l.Workdir, l.Setup = "sha256:2", printVersions })
		y.awaitReason(second, "waiting for another run that is building the same Python environment")
		open()

		want := "1.0 0.5 False\ntool of alpha\n"
		if y.opts.Users == nil && os.Geteuid() == 0 {
			want += "written\n" // nothing is read-only for root
		}

		for i, run := range []id.Run{first, second, y.launch(p, printVersions)} {
			check(t, y.end(run), 0, "", "", false, "")

			out := y.output(run)
			if got := out[logs.Stdout]; !strings.HasSuffix(got, want) || i == 1 && strings.Count(got, want) != 2 {
				t.Errorf("run %s says %q, and %q", run, got, out)
			}
		}

		if n := y.index.Asked("alpha"); n != 1 {
			t.Errorf("it was made %d times", n)
		}

		if got := y.environments(); len(got) != 1 {
			t.Errorf("environments: %v", got)
		}

		// Other content, or another owner, is another environment.
		y.tree = map[string]string{"requirements.txt": "alpha==2.0\nbeta\n"}
		other := y.launch(p, "python -c 'import alpha; print(alpha.VERSION)'")
		check(t, y.end(other), 0, "", "", false, "")

		if got := y.output(other)[logs.Stdout]; !strings.HasSuffix(got, "2.0\n") {
			t.Errorf("with other requirements it says %q", got)
		}
	})
}

func TestTheEnvironmentOfAnotherUser(t *testing.T) {
	t.Parallel()
	y := newPyYard(t, pypi.UV(t), nil, isolated(t))
	p := job.Python{Packages: []string{"alpha==1.0"}}
	ada := y.launch(p, `echo "$VIRTUAL_ENV"; ls "$VIRTUAL_ENV/lib" >/dev/null && echo readable`)
	check(t, y.end(ada), 0, "", "", false, "")

	lines := strings.Fields(y.output(ada)[logs.Stdout])
	if len(lines) < 2 || lines[len(lines)-1] != "readable" {
		t.Fatalf("its owner says %q", lines)
	}

	dir := lines[len(lines)-2]
	look := `for f in "$DIR" "$DIR/bin/python" "$DIR/lib"; do cat "$f" >/dev/null 2>&1 && echo read || true; ls "$f" 2>/dev/null && echo seen || true; done
touch "$DIR/x" 2>/dev/null && echo written || true; echo "$VIRTUAL_ENV"`
	bob := y.launch(p, look, func(l *api.Launch) {
		l.Owner, l.OwnerNumber = "bob", 2
		l.Env["DIR"] = dir
	})
	check(t, y.end(bob), 0, "", "", false, "")

	got := strings.Fields(y.output(bob)[logs.Stdout])
	if len(got) == 0 || got[0] == dir || slices.ContainsFunc(got, func(w string) bool {
		return w == "read" || w == "seen" || w == "written"
	}) {
		t.Errorf("another user says %q", got)
	}

	if got := y.environments(); len(got) != 2 {
		t.Errorf("environments: %v", got)
	}

	// Nor by the files themselves, whatever is mounted.
	for _, env := range y.environments() {
		for path, most := range map[string]os.FileMode{env: 0o700, filepath.Join(env, rundir.SetupDirName): 0o750} {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm()&^most != 0 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
}

// A maker that is killed leaves nothing that a later run would take for an environment.
func TestAnEnvironmentWhoseMakerIsKilled(t *testing.T) {
	t.Parallel()
	byPipAndUV(t, func(t *testing.T, tools string, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, nil, mode)
		p := job.Python{Packages: []string{"alpha==1.0"}}
		arrived, open := gate(t, y.index)

		killed := y.launch(p, printVersions)
		y.awaitDownload(killed, arrived)

		supervisor, err := rundir.LockHolder(y.runDir(killed))
		if err != nil || supervisor == 0 {
			t.Fatal(supervisor, err)
		}
		if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}

		if s := y.end(killed); s.Cause != job.CauseSupervisorLost && s.Cause != job.CauseNodeLost {
			t.Errorf("the run whose supervisor was killed: %+v", s)
		}

		if got := y.environments(); len(got) != 0 {
			t.Errorf("there are environments: %v", got)
		}

		open()

		next := y.launch(p, printVersions)
		check(t, y.end(next), 0, "", "", false, "")

		if got := y.output(next)[logs.Stdout]; !strings.Contains(got, "1.0 0.5 False\ntool of alpha\n") {
			t.Errorf("the next run says %q", got)
		}
	})
}

// An agent that is restarted finds the run where it is.
func TestAnEnvironmentWhoseAgentIsRestarted(t *testing.T) {
	t.Parallel()
	y := newPyYard(t, pypi.UV(t), nil)
	arrived, open := gate(t, y.index)
	run := y.launch(job.Python{Packages: []string{"alpha==1.0"}}, printVersions)
	y.awaitDownload(run, arrived)
	y.reopen()
	y.awaitReason(run, "building the Python environment")
	open()
	check(t, y.end(run), 0, "", "", false, "")
}

func TestAnEnvironmentThatCannotBeMade(t *testing.T) {
	t.Parallel()
	byPipAndUV(t, func(t *testing.T, tools string, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, map[string]string{"r.txt": "alpha\n-e .\n"}, mode)
		for _, tc := range []struct {
			p    job.Python
			want []string
		}{
			{job.Python{Packages: []string{"nosuch>=3"}}, []string{"package nosuch", "was not found; last lines of output: "}},
			{job.Python{Packages: []string{"alpha==9"}}, []string{"no version fits alpha==9", "last lines of output: "}},
			{job.Python{Version: "3.99"}, []string{"Python 3.99 is not available here", "there are: 3."}},
			{job.Python{Requirements: "r.txt"}, []string{`r.txt has "-e ."`}},
			{job.Python{Requirements: "missing.txt"}, []string{"missing.txt is not in the working directory"}},
			{job.Python{Conda: "e.yml"}, []string{"this node has none of micromamba, mamba and conda"}},
		} {
			run := y.launch(tc.p, "echo never")
			s := y.end(run)

			if s.Cause != job.CauseSetupFailed || !strings.HasPrefix(s.Reason, "cannot build the Python environment: ") {
				t.Errorf("%+v: %s: %s", tc.p, s.Cause, s.Reason)
			}

			for _, part := range tc.want {
				if !strings.Contains(s.Reason, part) {
					t.Errorf("%+v: %s\nwant %q in it", tc.p, s.Reason, part)
				}
			}

			if got := y.output(run)[logs.Stdout]; strings.Contains(got, "never") {
				t.Errorf("%+v: the program was started", tc.p)
			}
		}

		left, err := filepath.Glob(filepath.Join(y.dir, rundir.SetupsDir, "py-*", rundir.SetupDirName))
		if err != nil || len(left) > 0 {
			t.Errorf("what could not be made is left: %v, %v", left, err)
		}
	})
}

func TestAnEnvironmentOfALockFile(t *testing.T) {
	t.Parallel()
	tools := pypi.UV(t)
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, nil, mode)
		const project = "[project]\nname = 'demo'\nversion = '1'\nrequires-python = '>=3.8'\ndependencies = ['alpha<2']\n"

		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pyproject.toml"), []byte(project), 0o600); err != nil {
			t.Fatal(err)
		}

		lock := exec.CommandContext(t.Context(), filepath.Join(tools, "uv"), "lock")
		lock.Dir = dir
		lock.Env = append(os.Environ(), "UV_DEFAULT_INDEX="+y.index.URL, "UV_CACHE_DIR="+t.TempDir())
		if out, err := lock.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		text, err := os.ReadFile(filepath.Join(dir, "uv.lock"))
		if err != nil {
			t.Fatal(err)
		}

		y.tree = map[string]string{"app/pyproject.toml": project, "app/uv.lock": string(text)}

		for _, p := range []job.Python{{UV: "app/uv.lock"}, {UV: "app/pyproject.toml"}} {
			run := y.launch(p, printVersions)
			check(t, y.end(run), 0, "", "", false, "")

			if got := y.output(run)[logs.Stdout]; !strings.Contains(got, "1.0 0.5 False\ntool of alpha\n") {
				t.Errorf("%s: it says %q", p.UV, got)
			}
		}
	})
}

// fakeConda is a program that does what micromamba does for us: it makes a directory with programs in it.
const fakeConda = `#!/bin/sh
set -e
while [ $# -gt 0 ]; do
  case $1 in --prefix) prefix=$2; shift ;; --file) file=$2; shift ;; esac
  shift
done
if grep -q nosuch "$file"; then
  echo 'error    libmamba Could not solve for environment specs'
  echo '    The following package could not be found'
  echo '    └─ nosuch =* * does not exist (perhaps a typo or a missing channel).'
  exit 1
fi
mkdir -p "$prefix/bin"
printf '#!/bin/sh\necho conda-python of $CONDA_PREFIX\n' > "$prefix/bin/python"
chmod 755 "$prefix/bin/python"
`

func TestAnEnvironmentOfConda(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "micromamba")
	if err := os.WriteFile(program, []byte(fakeConda), 0o600); err != nil {
		t.Fatal(err)
	}

	tools := pypi.Program(t, "micromamba", program)
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, map[string]string{"environment.yml": "dependencies: [python=3.11]\n"}, mode)
		p := job.Python{Conda: "environment.yml"}
		run := y.launch(p, `python | grep -qx "conda-python of $CONDA_PREFIX" && echo right "$VIRTUAL_ENV"`)
		check(t, y.end(run), 0, "", "", false, "")

		if got := y.output(run)[logs.Stdout]; got != "right \n" {
			t.Errorf("it says %q", got)
		}

		y.tree = map[string]string{"environment.yml": "dependencies: [nosuch]\n"}
		check(t, y.end(y.launch(p, "true")), 1, "", job.CauseSetupFailed, false, "package nosuch was not found")
	})
}

func TestAVisitorFindsTheEnvironment(t *testing.T) {
	t.Parallel()
	tools := pypi.UV(t)
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, nil, mode)
		run := y.launch(job.Python{Packages: []string{"alpha==1.0"}}, "sleep 10000")
		y.await(run, job.RunRunning)

		var g Visitor
		for clock.Sleep(t.Context(), time.Millisecond) { // people are let in a moment after the start
			var err error

			g, err = y.Visit(t.Context(), run, 0, Visit{ID: t.Name(), Shared: true, Command: []string{"alpha-tool"}})
			if err == nil {
				break
			}
		}

		defer func() { _ = g.Close() }()

		if got := says(t, g.Output()); got != "tool of alpha\n" {
			t.Errorf("it says %q and %q", got, says(t, g.Errors()))
		}
	})
}

// Environments are removed as set-ups are, also though they are read-only.
func TestOldEnvironmentsAreRemoved(t *testing.T) {
	t.Parallel()
	tools := pypi.UV(t)
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newPyYard(t, tools, nil, mode)
		hold, ready := pipe(t), pipe(t)
		run := y.launch(job.Python{Packages: []string{"beta"}}, "echo > $READY; read x < $HOLD", func(l *api.Launch) {
			maps.Copy(l.Env, map[string]string{"READY": ready, "HOLD": hold})
		})
		receive(t, ready)

		y.opt.SetupBytes = 1
		y.pruneSetups()

		if got := y.environments(); len(got) != 1 {
			t.Errorf("one that is in use was removed: %v", got)
		}

		release(t, hold)
		check(t, y.end(run), 0, "", "", false, "")
		y.pruneSetups()

		if left, err := os.ReadDir(filepath.Join(y.dir, rundir.SetupsDir)); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}
