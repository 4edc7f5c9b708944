//go:build chaos

package clock_test

import (
	"os"
	"testing"
	"time"

	"trainyard/internal/clock"
)

func TestAFileStepsTheWallClock(t *testing.T) { //nolint:paralleltest // it steps the clock of this process
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	steady := clock.NewSteady()
	file := program + ".clock"
	t.Cleanup(func() { _ = os.Remove(file) })

	for _, step := range []time.Duration{-3 * time.Hour, 3 * time.Hour, 0} {
		if err := os.WriteFile(file, []byte(step.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		for { // until the file is read
			if off := time.Until(clock.Wall{}.Now()) - step; off.Abs() < time.Minute {
				break
			}
		}

		if off := time.Until(steady.Now()); off.Abs() > time.Minute {
			t.Errorf("a step of %s moved the steady clock by %s", step, off)
		}
	}
}
