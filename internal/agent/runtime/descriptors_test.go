package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/logs"
)

// leftOpen opens a file as a careless parent of the agent leaves it: programs inherit it.
func leftOpen(t *testing.T) (fd int, path string) {
	t.Helper()

	path = filepath.Join(t.TempDir(), "left-open")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = unix.Close(fd) })

	return fd, path
}

func TestProgramsInheritNothingFromTheParentOfTheAgent(t *testing.T) {
	t.Parallel()
	fd, path := leftOpen(t)
	y := newYard(t)

	run := y.script("ls -l /proc/self/fd")
	if st, out := y.end(run), y.output(run)[logs.Stdout]; st.ExitCode != 0 || strings.Contains(out, path) {
		t.Errorf("the program ended with %+v and has\n%s", st, out)
	}

	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the agent itself cannot read it any more: %v", err)
	}
}

// It runs alone: another test that opens a Runtime would withhold the descriptor.
func TestDescriptorsAreWithheldOnKernelsWithoutTheCall(t *testing.T) {
	fd, _ := leftOpen(t)

	if err := withholdListed("/proc/self/fd"); err != nil {
		t.Fatal(err)
	}

	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a descriptor that was inherited has the flags %x, %v", flags, err)
	}

	if err := withholdListed(t.TempDir() + "/missing"); err == nil {
		t.Error("descriptors that cannot be listed are taken to be withheld")
	}
}
