package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/job"
)

// statusColor is the colour of a job's status word.
func statusColor(s job.Status) table.Color {
	switch s {
	case job.StatusSucceeded:
		return table.Green
	case job.StatusRunning, job.StatusStarting:
		return table.Cyan
	case job.StatusPending, job.StatusPaused, job.StatusPausing, job.StatusRecovering, job.StatusPreempted:
		return table.Yellow
	case job.StatusFailed, job.StatusFailedSetup, job.StatusOutOfMemory, job.StatusTimeout, job.StatusNodeFail:
		return table.Red
	case job.StatusCancelled, job.StatusCancelling:
		return table.Gray
	}
	return table.NoColor
}

// oneOf reports a flag value that is none of the words that may be there.
func oneOf[T ~string](cmd *cobra.Command, flag, value string, allowed []T) error {
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = string(w)
	}
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	return exit.Usagef(cmd, "--%s cannot be %q: choose %s", flag, value, strings.Join(words, ", "))
}

// declined ends a command whose question was answered with no.
func (a *app) declined(err error) error {
	if err != nil {
		return err
	}
	a.Note("Nothing was changed.")
	return exit.With(exit.Error)
}
