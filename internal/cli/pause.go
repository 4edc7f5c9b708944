package cli

import (
	"context"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/id"
)

// pause takes jobs off their nodes until they are resumed.
func (a *app) pause() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "pause",
		short: "Pause jobs until they are resumed",
		long: `Stop jobs and release their resources. A running program gets SIGTERM and its grace period to save a
checkpoint. A paused job keeps its ID and starts a new run when it is resumed: from its newest
checkpoint, or from the beginning if its job file has no checkpoint. Before work is lost that way, pause asks.`,
		next:   "its resources are released once it has stopped",
		call:   (*api.Client).PauseJob,
		before: a.confirmPause,
	})
}

// confirmPause asks before jobs are paused that lose their work by it.
func (a *app) confirmPause(ctx context.Context, client *api.Client, jobs []string) error {
	var running []api.Job

	for _, name := range jobs {
		j, err := client.Job(ctx, id.Job(name))
		if err == nil { // otherwise pausing it says why
			running = append(running, j.Job)
		}
	}

	return a.confirmLoss(ctx, running, "Pause")
}

// confirmLoss asks before jobs are stopped that have no checkpoint, so that they start again from the beginning. Where
// nobody can be asked it only says so.
func (a *app) confirmLoss(ctx context.Context, jobs []api.Job, verb string) error {
	losers := 0

	for _, j := range jobs {
		if !j.NoCheckpoint || !j.State.Live() || j.Ran == 0 {
			continue
		}

		losers++
		a.Note("%s has no checkpoint: its work so far (%s) is lost, and it starts again from the beginning.",
			table.Plain(jobName(&j)), ranFor(j, a.Clock.Now()))
	}

	switch losers {
	case 0:
		return nil
	case 1:
		return a.sure(ctx, verb+" it all the same?")
	default:
		return a.sure(ctx, verb+" them all the same?")
	}
}

// jobName names a job by its id and its name.
func jobName(j *api.Job) string {
	if j.Name == "" {
		return string(j.ID)
	}

	return string(j.ID) + " " + j.Name
}
