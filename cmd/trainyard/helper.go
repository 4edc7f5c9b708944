package main

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"

	"trainyard/internal/agent/runtime/subprocess"
)

// helperPath returns the path of the program that is started for every run: the embedded helper or, in a binary that
// was built without one and on a machine that forbids programs without a file, "" for this binary, which does the same
// and takes longer to start. The helper stays in memory until this process ends.
func helperPath(embedded []byte, log *slog.Logger) string {
	if len(embedded) == 0 {
		return ""
	}

	program, err := subprocess.Load(embedded)
	if err == nil {
		err = tryHelper(program)
	}

	if err != nil {
		log.Warn("runs start more slowly, because their helper cannot be started from memory", "error", err)
		return ""
	}

	return program.Path()
}

// tryHelper starts the helper once. Without arguments it says that only an agent starts it, and fails.
func tryHelper(program *subprocess.Program) error {
	err := exec.CommandContext(context.Background(), program.Path()).Run()

	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		return nil
	}

	return errors.Join(err, program.Close())
}
