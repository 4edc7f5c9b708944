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

// jobChange is a command that changes jobs: its help, its call, and what happens next.
type jobChange struct {
	verb        string
	short, long string
	next        string // said of a job that has not ended by the change itself
	call        func(*api.Client, context.Context, id.Job) (api.Job, error)
	// before asks whether jobs shall be changed; nil if nothing is asked.
	before func(ctx context.Context, client *api.Client, jobs []string) error
}

// changeCommand returns the command of a change: cancel, kill, pause or resume.
func (a *app) changeCommand(c jobChange) *cobra.Command {
	cmd := &cobra.Command{
		Use:   c.verb + " JOB...",
		Short: c.short,
		Long:  c.long,
		Example: fmt.Sprintf("  trainyard %s j7\n  trainyard %s $(trainyard jobs -q --name sweep)",
			c.verb, c.verb),
		Args:              exit.Args(1, 0, "job"),
		ValidArgsFunction: a.completeJobsIn(changeable(c.verb)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doChange(cmd.Context(), c, args)
		},
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	if c.before != nil {
		a.YesFlag(cmd)
	}

	return cmd
}

// doChange changes each job; one that cannot be changed does not keep the others from it.
func (a *app) doChange(ctx context.Context, c jobChange, jobs []string) error {
	client, err := a.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	if c.before != nil {
		if err := c.before(ctx, client, jobs); err != nil {
			return err
		}
	}

	page := api.JobPage{Jobs: []api.Job{}}
	var first error

	for _, name := range jobs {
		j, err := c.call(client, ctx, id.Job(name))
		if err == nil {
			page.Jobs = append(page.Jobs, j)
			continue
		}

		err = fmt.Errorf("%s %s: %w", c.verb, name, err)
		if kind := fault.KindOf(err); ctx.Err() != nil || kind == fault.Unavailable || kind == fault.Unknown {
			return err // the others would fare no better
		}

		if first != nil {
			exit.Show(a.Stderr, err, a.Output == console.JSON)
			continue
		}

		first = err
	}

	if err := a.Show(
		page,
		func() []string { return ids(page.Jobs) },
		func() error { return a.changed(c, page.Jobs) },
	); err != nil {
		return err
	}

	return first
}

func (a *app) changed(c jobChange, jobs []api.Job) error {
	for _, j := range jobs {
		text := fmt.Sprintf("%s %s", j.ID, j.Status)
		if j.Reason != "" {
			text += ": " + table.Plain(j.Reason)
		}

		if _, err := fmt.Fprintln(a.Stdout, text); err != nil {
			return err
		}

		if !j.State.Final() {
			a.Note("  next: %s", c.next)
		}
	}

	return nil
}
