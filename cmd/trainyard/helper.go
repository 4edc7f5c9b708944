package main

import (
	"log/slog"

	"trainyard/internal/agent/runtime/helper"
)

// helperPath returns the path of the program that is started for every run: the embedded helper or, in a binary that
// was built without one, "" for this binary, which does the same and takes longer to start. The helper stays in memory
// until this process ends.
func helperPath(embedded []byte, log *slog.Logger) string {
	if len(embedded) == 0 {
		return ""
	}

	program, err := helper.Load(embedded)
	if err != nil { // machines can forbid programs without a file
		log.Warn("runs start more slowly, because their helper could not be loaded", "error", err)
		return ""
	}

	return program.Path()
}
