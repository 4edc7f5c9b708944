package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/executable"
	"trainyard/internal/fleet"
)

// program writes a program that everybody may execute.
func program(t *testing.T, path, text string) {
	t.Helper()

	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = executable.Write(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)
	}

	if err != nil {
		t.Fatal(err)
	}
}

func TestWithWhatEnvironmentsAreMade(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}

	bin := filepath.Join(root, "bin")
	mark := filepath.Join(root, "started")
	shims := filepath.Join(root, "shims")
	closed := filepath.Join(root, "closed")

	// What one interpreter has in its files is read there; one without a version in its name is asked.
	program(t, filepath.Join(bin, "python3.11"), "touch "+mark)
	program(t, filepath.Join(bin, "python3.12"), "touch "+mark)
	program(t, filepath.Join(bin, "uv"), "")
	program(t, filepath.Join(shims, "python3"), "echo 3.9")
	program(t, filepath.Join(shims, "python"), "echo 2.7")
	program(t, filepath.Join(closed, "conda"), "")

	for _, name := range []string{"3.11/os.py", "3.11/venv/__init__.py", "3.11/ensurepip/__init__.py", "3.12/os.py"} {
		program(t, filepath.Join(root, "lib", "python"+name), "")
	}

	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", bin+":"+shims+":"+closed+":/usr/bin/nothing")

	var e environments
	now := time.Unix(0, 0)

	// Who does not say its version by its name is asked beside, and is known at a later look.
	if found := e.look(t.Context(), false, now); found.UV != "uv" || found.Pythons != "Python 3.11" {
		t.Errorf("at first it found %+v", found)
	}

	found := e.settled(t, false, now)
	if found.UV != "uv" || found.Conda != "conda" || found.Pythons != "Python 3.11, 3.9" {
		t.Errorf("found %+v", found)
	}

	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an interpreter was started: %v", err)
	}

	// Later it is looked for again.
	if err := os.Remove(filepath.Join(bin, "uv")); err != nil {
		t.Fatal(err)
	}

	if e.look(t.Context(), false, now.Add(lookEvery-1)).UV == "" || e.look(t.Context(), false, now.Add(lookEvery)).UV != "" {
		t.Error("that uv was removed is not noticed after a while, or at once")
	}

	// Jobs that run as users of their own do not get what they cannot reach.
	if os.Geteuid() == 0 {
		var walled environments
		if found := walled.settled(t, true, now); found.Conda != "" || found.Pythons != "Python 3.11, 3.9" {
			t.Errorf("with walls it found %+v", found)
		}
	}
}

func TestAnInterpreterThatIsAScriptEndsWithItsChildren(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	python, begun, late := filepath.Join(dir, "python3"), filepath.Join(dir, "begun"), filepath.Join(dir, "late")
	program(t, python, "(touch "+begun+"; sleep 60; touch "+late+") & wait")

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()

		for {
			if _, err := os.Stat(begun); err == nil || !clock.Sleep(t.Context(), time.Millisecond) {
				return
			}
		}
	}()

	if v := askVersion(ctx, python, false); v != "" { // it reads until nobody has its output open any more
		t.Errorf("the version is %q", v)
	}

	if _, err := os.Stat(late); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its child went on until it was done: %v", err)
	}
}

// settled looks until everybody who is asked has answered.
func (e *environments) settled(t *testing.T, isolated bool, now time.Time) *fleet.Environments {
	t.Helper()

	for {
		found := e.look(t.Context(), isolated, now)
		e.mu.Lock()
		settled := e.at.Equal(now)
		e.mu.Unlock()

		if settled {
			return found
		}
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatal("the test was ended")
		}
	}
}
