package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// jobChange is a command that changes jobs: its help, its call, and what happens next.
type jobChange struct {
	verb        string
	short, long string
	next        string // said of a job that has not ended by the change itself
	ends        bool   // it ends jobs, so that one that has ended already needs nothing
	call        func(*api.Client, context.Context, id.Job) (api.Job, error)
	// before asks whether jobs shall be changed; nil if nothing is asked.
	before func(ctx context.Context, client *api.Client, jobs []string) error
}

// chosenJobs says which jobs a change is for, beside those that are named.
type chosenJobs struct {
	name  string
	owner string
	all   bool
}

// changeCommand returns the command of a change: cancel, kill, pause or resume.
func (a *app) changeCommand(c jobChange) *cobra.Command {
	var which chosenJobs
	cmd := &cobra.Command{
		Use:               c.verb + " JOB...",
		Short:             c.short,
		Long:              c.long + "\n\n" + arraysHelp,
		Example:           fmt.Sprintf("  trainyard %s j7\n  trainyard %s resnet50@last", c.verb, c.verb),
		Args:              exit.Args(1, 0, "job"),
		ValidArgsFunction: a.completeJobsIn(changeable(c.verb)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(client *api.Client) error {
				if !c.ends || len(args) > 0 {
					return a.doChange(cmd.Context(), client, c, args)
				}

				return a.changeChosen(cmd.Context(), client, c, which)
			})
		},
	}

	if c.ends {
		a.chooseFlags(cmd, c, &which)
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	if c.before != nil {
		a.YesFlag(cmd)
	}

	return cmd
}

// chooseFlags lets a command take jobs by what they have in common.
func (a *app) chooseFlags(cmd *cobra.Command, c jobChange, which *chosenJobs) {
	cmd.Use = c.verb + " [JOB...]"
	cmd.Long += `

With --name or --all it takes all your active jobs that match, lists them and asks. A job that has
already ended is not an error. List them first with: trainyard jobs --active --owner me --name TEXT`
	cmd.Example += fmt.Sprintf("\n  trainyard %s --name sweep\n  trainyard %s --all -y", c.verb, c.verb)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		many := which.all || which.name != ""

		switch {
		case which.all && which.name != "":
			return exit.Usagef(cmd, "give --name or --all, not both")
		case many && len(args) > 0:
			return exit.Usagef(cmd, "name jobs, or choose them with --name or --all, not both")
		case !many && which.owner != "":
			return exit.Usagef(cmd, "--owner needs --name or --all")
		case !many:
			return exit.Args(1, 0, "job")(cmd, args)
		}

		return nil
	}

	cmd.Flags().StringVar(&which.name, "name", "", "all your active jobs whose `name` contains this")
	cmd.Flags().BoolVar(&which.all, "all", false, "all your active jobs")
	cmd.Flags().StringVar(&which.owner, "owner", "", "with --name or --all: the jobs of this `user` instead of your own")
	a.YesFlag(cmd)
}

// changeChosen changes all active jobs of a choice, after a question.
func (a *app) changeChosen(ctx context.Context, client *api.Client, c jobChange, which chosenJobs) error {
	f := api.JobFilter{Owner: id.User(which.owner), Name: which.name, States: activeStates()}
	if f.Owner == "" || f.Owner == "me" {
		who, err := client.Whoami(ctx)
		if err != nil {
			return err
		}

		f.Owner = who.User
	}

	jobs, err := collect(func(p api.Page) ([]api.Job, string, error) {
		f.Page = p
		page, err := client.Jobs(ctx, f)
		return page.Jobs, page.Next, err
	})
	if err != nil {
		return err
	}

	if len(jobs) == 0 {
		a.Note("No active job of %s matches; nothing was changed.", f.Owner)
		return a.doChange(ctx, client, c, nil)
	}

	if a.Asks() {
		for i, j := range jobs {
			if i == mostShown {
				a.Note("and %s", humanize.Count(len(jobs)-i, "more job"))
				break
			}

			a.Note("%s", a.stateLine(j))
		}
	}

	question := fmt.Sprintf("%s %s?", strings.ToUpper(c.verb[:1])+c.verb[1:], humanize.Count(len(jobs), "job"))
	if err := a.sure(ctx, question); err != nil {
		return err
	}

	return a.doChange(ctx, client, c, ids(jobs))
}

// mostShown bounds how many jobs are listed before they are changed.
const mostShown = 20

// doChange changes each job; one that cannot be changed does not keep the others from it.
func (a *app) doChange(ctx context.Context, client *api.Client, c jobChange, handles []string) error {
	if c.before != nil {
		if err := c.before(ctx, client, handles); err != nil {
			return err
		}
	}

	page := changedJobs{JobPage: api.JobPage{Jobs: []api.Job{}}}
	ended := map[id.Job]bool{} // before
	var first error

	for _, handle := range handles {
		err := page.change(ctx, client, c, handle, ended)
		if err == nil {
			continue
		}

		err = fmt.Errorf("%s %s: %w", c.verb, handle, err)
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
		func() []string { return page.names() },
		func() error {
			for _, done := range page.Arrays {
				if err := a.changedArray(c, done); err != nil {
					return err
				}
			}

			return a.changed(c, page.Jobs, ended)
		},
	); err != nil {
		return err
	}

	return first
}

// changedJobs is what became of jobs and arrays.
type changedJobs struct {
	api.JobPage
	Arrays []api.ArrayChange `json:"arrays,omitempty"`
}

// change changes what one argument names: an array in one call, or a job.
func (p *changedJobs) change(
	ctx context.Context, client *api.Client, c jobChange, handle string, ended map[id.Job]bool,
) error {
	if array, ok := arrayArg(handle); ok {
		done, err := client.ChangeArray(ctx, array, c.verb)
		if err == nil {
			p.Arrays = append(p.Arrays, done)
		}

		return err
	}

	j, before, err := changeOne(ctx, client, c, id.Job(handle))
	if err == nil {
		p.Jobs = append(p.Jobs, j)
		ended[j.ID] = before
	}

	return err
}

// names lists what was changed.
func (p *changedJobs) names() []string {
	var list []string
	for i := range p.Arrays {
		list = append(list, string(p.Arrays[i].Array.ID))
	}

	return append(list, ids(p.Jobs)...)
}

// changeOne changes a job, and reports whether it needed nothing because it had ended before. The server knows names
// too.
func changeOne(ctx context.Context, client *api.Client, c jobChange, handle id.Job) (api.Job, bool, error) {
	j, err := c.call(client, ctx, handle)

	var refused *fault.Error
	if !c.ends || !errors.As(err, &refused) || refused.Code != "job_state" {
		return j, false, err
	}

	found, lost := client.Job(ctx, handle)
	if lost != nil || !found.State.Final() {
		return j, false, err
	}

	return found.Job, true, nil
}

// changed says what became of each job, and of all of them together if there are several.
func (a *app) changed(c jobChange, jobs []api.Job, ended map[id.Job]bool) error {
	states, before := map[job.Status]int{}, 0

	for _, j := range jobs {
		if ended[j.ID] {
			before++
			if _, err := fmt.Fprintf(a.Stdout, "%s had already ended (%s)\n", j.ID, j.Status); err != nil {
				return err
			}

			continue
		}

		text := fmt.Sprintf("%s %s", j.ID, j.Status)
		if j.Reason != "" {
			text += ": " + table.Plain(j.Reason)
		}

		if _, err := fmt.Fprintln(a.Stdout, text); err != nil {
			return err
		}

		states[j.Status]++
		if !j.State.Final() {
			a.Note("  next: %s", c.next)
		}
	}

	if len(jobs) > 1 {
		a.Note("%s: %s", humanize.Count(len(jobs), "job"), strings.Join(summary(states, before), ", "))
	}

	return nil
}

// summary counts jobs by their status: "2 CANCELLED", "1 had already ended".
func summary(states map[job.Status]int, before int) []string {
	var parts []string
	for _, s := range job.Statuses() {
		if n := states[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}

	if before > 0 {
		parts = append(parts, fmt.Sprintf("%d had already ended", before))
	}

	return parts
}
