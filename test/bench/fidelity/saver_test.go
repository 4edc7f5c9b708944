package fidelity

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program that is suspended goes on afterwards, and does not compute meanwhile: what it has done afterwards fits
// into the time in which it ran, but for the step of 50 ms in which it was suspended.
func TestTheSaverDoesNoWorkWhileItIsSuspended(t *testing.T) {
	t.Parallel()

	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}

	const rate, suspended = 100, 3 * time.Second

	folder, here := t.TempDir(), filepath.Join(t.TempDir(), "v100-1")
	began := time.Now()
	cmd := exec.Command(python, "-c", program(), "100000", "0.1", "1", "v100="+strconv.Itoa(rate))
	cmd.Env = append(os.Environ(),
		"TRAINYARD_CHECKPOINT_DIR="+folder, "TRAINYARD_RANK_DIR="+here, "CUDA_VISIBLE_DEVICES=0")
	cmd.Stderr = os.Stderr

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	saves := func(after int) int {
		for newestStep(t, folder) <= after && time.Since(began) < 5*time.Minute {
			time.Sleep(10 * time.Millisecond)
		}

		return newestStep(t, folder)
	}

	saves(0)
	signals(t, cmd, syscall.SIGSTOP)

	ran, before := time.Since(began), newestStep(t, folder)

	time.Sleep(suspended)

	continued := time.Now()
	signals(t, cmd, syscall.SIGCONT)

	for range 2 { // it also saves when it ends
		now := saves(before)
		if now <= before {
			t.Fatalf("it does nothing more after %d units of work, when it was suspended", before)
		}

		before = now
	}

	signals(t, cmd, syscall.SIGTERM)

	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}

	ran += time.Since(continued)

	done := newestStep(t, folder)
	if most := (ran + 50*time.Millisecond).Seconds() * rate; done == 0 || float64(done) > most {
		t.Errorf("it did %d units of work in %s, at %d a second", done, ran, rate)
	}
}

// newestStep returns the step of the newest checkpoint, 0 before there is one.
func newestStep(t *testing.T, folder string) int {
	t.Helper()

	names, err := filepath.Glob(filepath.Join(folder, "step-*"))
	if err != nil {
		t.Fatal(err)
	}

	newest := 0
	for _, name := range names {
		step, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "step-"))
		if err != nil {
			t.Fatal(err)
		}

		newest = max(newest, step)
	}

	return newest
}

func signals(t *testing.T, cmd *exec.Cmd, list ...syscall.Signal) {
	t.Helper()

	for _, s := range list {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}
