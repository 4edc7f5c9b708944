package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// statusColor is the colour of a job's status word.
func statusColor(s job.Status) table.Color {
	switch s {
	case job.StatusSucceeded:
		return table.Green
	case job.StatusRunning, job.StatusStarting:
		return table.Cyan
	case job.StatusPending, job.StatusPaused, job.StatusPausing, job.StatusRecovering, job.StatusPreempted,
		job.StatusSuspended:
		return table.Yellow
	case job.StatusFailed, job.StatusFailedSetup, job.StatusOutOfMemory, job.StatusTimeout, job.StatusNodeFail:
		return table.Red
	case job.StatusCancelled, job.StatusCancelling:
		return table.Gray
	}

	return table.NoColor
}

// oneOf reports a flag value that is not one of the allowed words.
func oneOf[T ~string](cmd *cobra.Command, flag, value string, allowed []T) error {
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = string(w)
	}

	if value == "" || slices.Contains(words, value) {
		return nil
	}

	return exit.Usagef(cmd, "--%s must be %s, got %q", flag, humanize.Or(words...), value)
}

// declined ends a command whose question was answered with no.
func (a *app) declined(err error) error {
	if err != nil {
		return err
	}

	a.Note("Nothing was changed.")

	return exit.With(exit.Error)
}

// remarked writes why a job is in its state, after what its owner should know. That a job has succeeded its status
// says.
func remarked(j *api.Job) string {
	parts := slices.Clone(j.Remarks)
	if j.Reason != "" && j.State != job.Succeeded {
		parts = append(parts, j.Reason)
	}

	return strings.Join(parts, "; ")
}

// few writes some of a list, and how many there are beyond.
func few[T ~string](list []T) string {
	var words []string
	for i, w := range list {
		if i == 2 && len(list) > 3 {
			words = append(words, "+"+strconv.Itoa(len(list)-2))
			break
		}

		words = append(words, string(w))
	}

	return strings.Join(words, ",")
}

// sure asks before something is done that cannot be undone.
func (a *app) sure(ctx context.Context, question string) error {
	ok, err := a.Confirm(ctx, table.Plain(question))
	if err != nil || ok {
		return err
	}

	return a.declined(nil)
}

// stamp writes a time and how long ago it was.
func stamp(at *time.Time, now time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}

	return at.UTC().Format("2006-01-02 15:04:05 UTC") + " (" + humanize.Ago(*at, now) + ")"
}

func orNone(is bool, text string) string {
	if !is {
		return ""
	}

	return text
}
