package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// changes are the commands that change jobs: what they say of themselves and what they call.
var changes = map[string]struct {
	short, long, next string
	call              func(*api.Client, context.Context, id.Job) (api.Job, error)
}{
	"cancel": {
		"End jobs", "End jobs for good. A running program gets SIGTERM and its grace time to save itself, then SIGKILL.",
		"its program has its grace time to save itself", (*api.Client).CancelJob,
	},
	"kill": {
		"End jobs at once", "End jobs for good and at once, by SIGKILL: the program cannot save itself. Prefer cancel.",
		"its processes are killed", (*api.Client).KillJob,
	},
	"pause": {
		"Stop jobs so that they can be resumed", "Stop jobs and free what they hold. A running program gets SIGTERM and its grace time to save itself.\nA paused job keeps its id and starts a new run when it is resumed.",
		"it holds nothing once it has stopped", (*api.Client).PauseJob,
	},
	"resume": {
		"Let paused jobs go on", "Put paused jobs back into the queue. They start a new run, from their checkpoint if they have one.",
		"it waits for its turn", (*api.Client).ResumeJob,
	},
}

// change is one of the commands that change jobs.
func (a *app) change(verb string) *cobra.Command {
	c := changes[verb]
	cmd := &cobra.Command{
		Use: verb + " JOB...", Short: c.short, Long: c.long,
		Example:           fmt.Sprintf("  trainyard %s j7\n  trainyard %s $(trainyard jobs -q --name sweep)", verb, verb),
		Args:              exit.Args(1, 0, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doChange(cmd.Context(), verb, args)
		},
	}
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	return cmd
}

// doChange changes each job; one that cannot be changed does not keep the others from it.
func (a *app) doChange(ctx context.Context, verb string, jobs []string) error {
	client, err := a.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	page := api.JobPage{Jobs: []api.Job{}}
	var first error
	for _, name := range jobs {
		j, err := changes[verb].call(client, ctx, id.Job(name))
		if err == nil {
			page.Jobs = append(page.Jobs, j)
			continue
		}
		err = fmt.Errorf("%s %s: %w", verb, name, err)
		if kind := fault.KindOf(err); ctx.Err() != nil || kind == fault.Unavailable || kind == fault.Unknown {
			return err // the others would fare no better
		}
		if first != nil {
			exit.Show(a.Stderr, err, a.Output == console.JSON)
			continue
		}
		first = err
	}
	if err := a.Show(page, func() []string { return ids(page.Jobs) }, func() error { return a.changed(verb, page.Jobs) }); err != nil {
		return err
	}
	return first
}

func (a *app) changed(verb string, jobs []api.Job) error {
	for _, j := range jobs {
		text := fmt.Sprintf("%s %s", j.ID, j.Status)
		if j.Reason != "" {
			text += ": " + table.Plain(j.Reason)
		}
		if _, err := fmt.Fprintln(a.Stdout, text); err != nil {
			return err
		}
		if !j.State.Final() {
			a.Note("  next: %s", changes[verb].next)
		}
	}
	return nil
}
