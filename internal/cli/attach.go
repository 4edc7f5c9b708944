package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/cli/forecasts"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// attachTail is how much of what a job has printed is shown when somebody attaches to it.
const attachTail = 20

// attach connects to the output of a running job.
func (a *app) attach() *cobra.Command {
	var rank int
	var style logStyle

	cmd := &cobra.Command{
		Use: "attach JOB", Short: "Attach to the output and the input of a running job",
		Long: `Attach to the output of a running job: its last lines, and what it prints from now on, into later runs and over
restarts of the server. State changes and remarks are shown, too. Ctrl-C detaches and the job goes on; when it ends, the
command ends with its exit code (see: trainyard help exit-codes).

The program of a job with interactive in its job file reads what you type, line by line, and its input never ends. Other
programs read no input. Output is shown line by line, too: a prompt appears with the rest of its line. trainyard shell
opens a shell beside the program, with a terminal.`,
		Example: `  trainyard attach j7
  trainyard attach @last --rank 1`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobsIn([]job.State{job.Pending, job.Starting, job.Running}),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				detail, err := c.Job(cmd.Context(), j)
				if err != nil {
					return err
				}

				if detail.State.Final() {
					return fault.New(fault.Conflict, "job_state", "job %s has ended: it is %s", j, detail.State).
						WithRemedy("see its output with: trainyard logs %s", j)
				}

				filter := api.LogFilter{Tail: attachTail}
				if cmd.Flags().Changed("rank") {
					filter.Rank = &rank
				}

				if err := a.passTyped(cmd.Context(), c, &detail, rank); err != nil {
					return err
				}

				return a.doLogs(cmd.Context(), c, j, filter, true, style)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "attach to this `rank` alone")
	cmd.Flags().BoolVar(&style.raw, "raw", false, rawHelp)

	return cmd
}

// stateNotes returns a function that reports the changes of a job, each once.
func (a *app) stateNotes(first api.Job) func(api.Job) {
	shown := first

	return func(j api.Job) {
		if j.Status == shown.Status && j.Reason == shown.Reason && slices.Equal(j.Remarks, shown.Remarks) {
			return
		}

		shown = j
		a.Note("%s", a.stateLine(j))
	}
}

// stateLine writes the state of a job in one line: "j1 digits PENDING: queued", "j1 digits SUCCEEDED in 22s".
func (a *app) stateLine(j api.Job) string {
	word := string(j.Status)
	if a.Color(a.Stderr) {
		word = statusColor(j.Status).Paint(word)
	}

	text := string(j.ID)
	if j.Name != "" {
		text += " " + table.Plain(j.Name)
	}

	text += " " + word

	if j.State.Final() && j.Started != nil {
		preposition := " after "
		if j.State == job.Succeeded {
			preposition = " in "
		}

		text += preposition + ranFor(j, a.Clock.Now())
	}

	if reason := remarked(&j); reason != "" {
		text += ": " + table.Plain(reason)
	}

	if rest := forecasts.Line(&j, a.Clock.Now()); rest != "" {
		text += ", " + rest
	}

	if j.FakeGPUs {
		text += " (fake GPUs)"
	}

	return text
}

// maxAttached bounds how many jobs of one file are followed at once.
const maxAttached = 20

// attachTo follows freshly submitted jobs to their end and returns the error
// that carries their exit code. raw lets control sequences of their output act on the terminal.
func (a *app) attachTo(ctx context.Context, client *api.Client, jobs []api.Job, raw bool) error {
	if len(jobs) > maxAttached {
		a.Note("The file has %d jobs, too many to follow. Watch them with: trainyard jobs -w", len(jobs))
		return nil
	}

	seen := a.OnTerminal(a.Stdout)
	p := &follow.Printer{Out: a.Stdout, Terminal: seen && !raw, Collapse: !seen && !raw}
	ends, errs := make([]api.Job, len(jobs)), make([]error, len(jobs))

	var group sync.WaitGroup
	for i, j := range jobs {
		label := ""
		if len(jobs) > 1 {
			label = string(j.ID)
			if j.Name != "" {
				label = table.Plain(j.Name)
			}
		}

		group.Go(func() {
			ends[i], errs[i] = follow.Follower{Note: a.Note}.Job(ctx, client, j.ID, api.LogFilter{Collapse: p.Collapse},
				func(l api.LogLine) error { return p.Line(label, l) }, a.stateNotes(j))
		})
	}

	group.Wait()

	if err := p.Close(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}

	return a.followed(ctx, ids(jobs), ends, errs)
}

// attachAll follows what was submitted: jobs together, and then each array.
func (a *app) attachAll(ctx context.Context, client *api.Client, reply *api.SubmitReply, raw bool) error {
	var first error
	if len(reply.Jobs) > 0 && len(reply.Arrays) == 0 {
		return a.attachTo(ctx, client, reply.Jobs, raw)
	}

	for i := range reply.Arrays {
		filter := api.LogFilter{}
		p := a.logPrinter(&filter, logStyle{raw: raw}, false)

		err := a.followArray(ctx, client, &reply.Arrays[i], filter, p)
		if ctx.Err() != nil {
			return err
		}

		if first == nil {
			first = err
		}
	}

	if len(reply.Jobs) > 0 {
		if err := a.attachTo(ctx, client, reply.Jobs, raw); first == nil {
			first = err
		}
	}

	return first
}

// followed turns how jobs ended, or how following them ended, into an exit code.
func (a *app) followed(ctx context.Context, jobs []string, ends []api.Job, errs []error) error {
	if ctx.Err() != nil {
		return a.detached(jobs)
	}

	for i := range jobs {
		if errs[i] != nil {
			return errs[i]
		}
		if code := exit.OfJob(ends[i]); code != exit.OK {
			return exit.With(code)
		}
	}

	return nil
}

// detached reports that the jobs keep running, and how to follow them again.
func (a *app) detached(jobs []string) error {
	list := strings.Join(jobs, " ")
	verb := "keeps"
	if len(jobs) > 1 {
		verb = "keep"
	}

	a.Note(
		"\nDetached; %s %s running.\n  follow again:  trainyard logs -f %s\n  cancel:        trainyard cancel %s",
		list,
		verb,
		jobs[0],
		list,
	)

	return exit.With(exit.Interrupted)
}

func ids(jobs []api.Job) []string {
	list := make([]string, len(jobs))
	for i, j := range jobs {
		list[i] = string(j.ID)
	}

	return list
}
