package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/pattern"
)

// logStyle is how lines of output are written.
type logStyle struct {
	stamps bool // with the time of each
	raw    bool // control sequences act on the terminal
}

// rawHelp describes the flag of every command that writes the output of jobs.
const rawHelp = "let control sequences in the output act on your terminal; without it they are shown, except colors"

func (a *app) logs() *cobra.Command {
	var f api.LogFilter
	var toEnd bool
	var style logStyle
	var run string
	rank := -1
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Show the output of a job",
		Long: `Show the output of a job, of all its runs and ranks, or follow it live.

A run's id (j7.2) in place of the job's shows that run alone. With -f the output
is followed to the job's end, into later runs and over restarts of the server,
and the command ends with the job's exit code (see: trainyard help exit-codes).
Ctrl-C stops following; the job goes on. -o json writes one object a line.

On a terminal, control characters in the output are shown as ^[ and the like, so
that a job cannot forge what you see, set your clipboard or rename the window.
Colors, tabs and carriage returns pass; --raw lets everything pass. A file or pipe
gets the output unchanged.`,
		Example: `  trainyard logs j7
  trainyard logs -f j7 --tail 20
  trainyard logs j7.2 --rank 1 --stream stderr
  trainyard logs j7 --grep 'loss=.*nan' -t`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := logTarget(cmd, args[0], run, &f)
			if err != nil {
				return err
			}

			if cmd.Flags().Changed("rank") {
				if rank < 0 {
					return exit.Usagef(cmd, "--rank must be 0 or more")
				}

				f.Rank = &rank
			}

			if f.Tail < 0 {
				return exit.Usagef(cmd, "--tail must be 0 or more")
			}
			if err := oneOf(cmd, "stream", f.Stream, []string{"stdout", "stderr", "yard"}); err != nil {
				return err
			}
			if _, err := pattern.Compile(f.Grep); err != nil {
				return exit.Usagef(cmd, "--grep must be a regular expression: %v", err)
			}

			return a.doLogs(cmd.Context(), j, f, toEnd, style)
		},
	}

	flags := cmd.Flags()
	flags.BoolVarP(&toEnd, "follow", "f", false, "follow until the job has ended")
	flags.IntVar(&f.Tail, "tail", 0, "show only the last `number` of lines")
	flags.StringVar(&run, "run", "", "only this run: its `number`, or its ID, e.g. j7.2")
	flags.IntVar(&rank, "rank", 0, "only this `rank`")
	flags.StringVar(&f.Stream, "stream", "", "only this `stream`: stdout, stderr or yard (messages of Trainyard itself)")
	flags.StringVar(&f.Grep, "grep", "", "only lines that match this regular `expression`")
	flags.BoolVarP(&style.stamps, "timestamps", "t", false, "show the time of each line")
	flags.BoolVar(&style.raw, "raw", false, rawHelp)

	flags.VarP(
		console.Format{Into: &a.Output, Allowed: []string{console.Table, console.JSON}},
		"output",
		"o",
		"table (plain lines) or json (one object per line)",
	)

	return cmd
}

// logTarget reads the job and the run that were asked for.
func logTarget(cmd *cobra.Command, arg, run string, f *api.LogFilter) (id.Job, error) {
	j := id.Job(arg)
	if of, _, ok := id.Run(arg).Split(); ok {
		j, f.Run = of, id.Run(arg)
	}

	if run == "" {
		return j, nil
	}
	if f.Run != "" {
		return j, exit.Usagef(cmd, "give the run only once: by its ID or with --run")
	}

	f.Run = id.Run(run)
	if of, _, ok := f.Run.Split(); ok && of == j {
		return j, nil
	}

	f.Run = id.Run(string(j) + "." + run)
	if _, _, ok := f.Run.Split(); !ok {
		return j, exit.Usagef(cmd, "--run %q is not a run of %s: write its number, e.g. --run 2", run, j)
	}

	return j, nil
}

func (a *app) doLogs(ctx context.Context, j id.Job, f api.LogFilter, toEnd bool, style logStyle) error {
	client, err := a.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	detail, err := client.Job(ctx, j)
	if err != nil {
		return err
	}

	p := &follow.Printer{
		Out:      a.Stdout,
		Stamps:   style.stamps,
		JSON:     a.Output == console.JSON,
		Ranks:    manyRanks(detail),
		Terminal: a.OnTerminal(a.Stdout) && !style.raw,
	}

	if !toEnd {
		return a.pageLogs(ctx, client, j, f, p)
	}

	if detail.State.Waiting() || detail.State == job.Paused {
		a.Note("%s", a.stateLine(detail.Job))
	}

	notes := a.stateNotes(detail.Job)
	last, err := follow.Follower{
		Note: a.Note,
	}.Job(
		ctx,
		client,
		j,
		f,
		func(l api.LogLine) error { return p.Line("", l) },
		notes,
	)

	return a.followed(ctx, []string{string(j)}, []api.Job{last}, []error{err})
}

func manyRanks(j api.JobDetail) bool {
	for _, r := range j.Runs {
		if len(r.Ranks) > 1 {
			return true
		}
	}

	return len(j.Nodes) > 1
}

// pageLogs writes what there is now. A job that goes on printing does not keep
// it going: lines from after the start are left for the next call.
func (a *app) pageLogs(ctx context.Context, client *api.Client, j id.Job, f api.LogFilter, p *follow.Printer) error {
	start := a.Clock.Now()
	f.Limit = pageLimit
	for {
		page, err := logPage(ctx, client, j, f)
		if err != nil {
			return err
		}

		for _, l := range page.Lines {
			if err := p.Line("", l); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}

		caughtUp := len(page.Lines) == 0 && page.Next == f.Cursor ||
			len(page.Lines) > 0 && page.Lines[len(page.Lines)-1].At.After(start)
		if page.Ended || page.Next == "" || caughtUp {
			return nil
		}

		f.Cursor, f.Tail = page.Next, 0
	}
}

// searchAttempts is how often a search is tried while the server has others under way.
const searchAttempts = 8

// logPage reads one page. It waits for its turn if the server has too many searches under way.
func logPage(ctx context.Context, client *api.Client, j id.Job, f api.LogFilter) (api.LogPage, error) {
	for attempt := 1; ; attempt++ {
		page, err := client.Logs(ctx, j, f)

		var refused *fault.Error
		if !errors.As(err, &refused) || refused.Code != api.CodeTooManySearches || attempt == searchAttempts ||
			!follow.Backoff(ctx, attempt) {
			return page, err
		}
	}
}
