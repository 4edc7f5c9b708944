package snapshot_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/agent/snapshot"
	"trainyard/internal/executable"
	"trainyard/internal/fleet"
)

// fakeDriver returns an interpreter that finds a driver without a GPU, and the folder with the states of processes.
func fakeDriver(t *testing.T, broken string) (snapshot.CUDA, string) {
	t.Helper()

	compiler, err := exec.LookPath("cc")
	if err != nil {
		lacking(t, "a C compiler is missing: run make setup")
	}

	dir := t.TempDir()
	library := filepath.Join(dir, "libcuda.so.1")
	cmd := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", library, "testdata/fakecuda.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	python := program(t, fmt.Sprintf("export FAKECUDA=%s FAKECUDA_BROKEN=%s LD_LIBRARY_PATH=%s\n"+
		"exec /usr/bin/python3 \"$@\"", dir, broken, dir))

	return snapshot.CUDA{Python: python}, dir
}

// program writes a shell script and returns its path.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := executable.Write(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	return path
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}

	return strings.Join(strings.Fields(string(data)), " ")
}

func TestTheDriverSuspendsAndResumesThoseThatUseIt(t *testing.T) {
	t.Parallel()
	cuda, dir := fakeDriver(t, "")
	put(t, filepath.Join(dir, "11"), "0")
	put(t, filepath.Join(dir, "13"), "0")

	users, err := cuda.Suspend(t.Context(), []int{11, 12, 13})
	if err != nil || fmt.Sprint(users) != "[11 13]" {
		t.Fatalf("suspended %v, %v", users, err)
	}

	if err := cuda.Resume(t.Context(), []int{11, 12, 13}); err != nil {
		t.Fatal(err)
	}

	want := "lock 11 checkpoint 11 lock 13 checkpoint 13 restore 11 unlock 11 restore 13 unlock 13"
	if got := read(t, filepath.Join(dir, "calls")); got != want {
		t.Errorf("calls are %q, want %q", got, want)
	}
}

func TestAProcessWhoseMemoryCannotBeMovedGoesOn(t *testing.T) {
	t.Parallel()
	cuda, dir := fakeDriver(t, "checkpoint")
	put(t, filepath.Join(dir, "11"), "0")

	users, err := cuda.Suspend(t.Context(), []int{11})
	if err == nil || !strings.Contains(err.Error(), "cuCheckpointProcessCheckpoint: CUDA error 2") {
		t.Errorf("suspended %v, %v", users, err)
	}

	if got := read(t, filepath.Join(dir, "11")); got != "0" {
		t.Errorf("the process is left in state %s", got)
	}
}

func TestMemoryThatCannotBeHadBackIsAnError(t *testing.T) {
	t.Parallel()
	cuda, dir := fakeDriver(t, "restore")
	put(t, filepath.Join(dir, "11"), "2")

	if err := cuda.Resume(t.Context(), []int{11}); err == nil || !strings.Contains(err.Error(), "CUDA error 2") {
		t.Errorf("resumed with %v", err)
	}
}

func TestWhatANodeCanDoAndWhyNot(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		lacking(t, "needs root")
	}

	driver, _ := fakeDriver(t, "")
	answers := func(version, check string) string {
		return program(t, `case "$1" in --version) echo "Version: `+version+`" ;; check) `+check+` ;; esac`)
	}
	good := answers("4.1.1", "exit 0")
	h200 := fleet.GPU{Driver: "580.159.04"}
	const oldDriver = "GPU driver 550.90.07 is too old, 570 or newer is needed"

	tests := map[string]struct {
		probe              snapshot.Probe
		suspend, proc, gpu string // "" if it can
	}{
		"all": {snapshot.Probe{CRIU: good, CUDA: driver, GPUs: []fleet.GPU{h200}}, "", "", ""},
		"no GPU": {
			snapshot.Probe{CRIU: good, CUDA: driver},
			"no GPU", "", "no GPU",
		},
		"no CRIU": {
			snapshot.Probe{CRIU: "criu-that-is-not-there", CUDA: driver, GPUs: []fleet.GPU{h200}},
			"", "CRIU is not installed", "CRIU is not installed",
		},
		"an old CRIU": {
			snapshot.Probe{CRIU: answers("3.17.1", "exit 0"), CUDA: driver, GPUs: []fleet.GPU{h200}},
			"", "CRIU 3.17.1 is too old, 4.0 or newer is needed", "CRIU 3.17.1 is too old, 4.0 or newer is needed",
		},
		"a kernel that lacks something": {
			snapshot.Probe{CRIU: answers("4.1", `echo "Error (criu/cr-check.c:1): no such call"; exit 1`), CUDA: driver},
			"no GPU", "criu check: no such call", "criu check: no such call",
		},
		"an old driver": {
			snapshot.Probe{CRIU: good, CUDA: driver, GPUs: []fleet.GPU{{Driver: "550.90.07"}}},
			oldDriver, "", oldDriver,
		},
		"fake GPUs": {
			snapshot.Probe{CRIU: good, CUDA: driver, GPUs: []fleet.GPU{{Fake: true, Driver: "580"}}},
			"", "", "its GPUs are fake",
		},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.probe.Run(t.Context())
			for what, pair := range map[string]struct {
				got  fleet.Ability
				want string
			}{"suspend": {got.Suspend, tt.suspend}, "process": {got.Process, tt.proc}, "gpu": {got.GPU, tt.gpu}} {
				if pair.got.Reason != pair.want || pair.got.OK != (pair.want == "") {
					t.Errorf("%s: %+v, want %q", what, pair.got, pair.want)
				}
			}
		})
	}
}

func TestTheRealCRIUCanSaveProcessesHere(t *testing.T) {
	t.Parallel()

	if got := (snapshot.Probe{CRIU: criu(t)}).Run(t.Context()); !got.Process.OK {
		t.Errorf("processes cannot be saved here: %s", got.Process.Reason)
	}
}
