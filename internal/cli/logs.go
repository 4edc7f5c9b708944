package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/internal/pattern"
)

// logStyle is how lines of output are written.
type logStyle struct {
	stamps bool // with the time of each
	ranks  bool // with the rank of each
	raw    bool // control sequences act on the terminal, and progress bars are written as they are
}

// rawHelp describes the flag of every command that writes the output of jobs.
const rawHelp = "let control sequences in the output act on your terminal; without it they are shown, except colors"

// logFlags are those of the command logs that need to be read.
type logFlags struct {
	run, rank, since, until, lines string
}

func (a *app) logs() *cobra.Command {
	var f api.LogFilter
	var given logFlags
	var toEnd bool
	var style logStyle
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Show the output of a job",
		Long: `Show the output of a job, of all its runs and ranks, or follow it live.

` + handlesHelp + `
A run's id (j7.2) in place of the job's shows that run alone. With -f the output
is followed to the job's end, into later runs and over restarts of the server,
and the command ends with the job's exit code (see: trainyard help exit-codes).
Ctrl-C stops following; the job goes on. -o json writes one object a line.

On a terminal, control characters in the output are shown as ^[ and the like, so
that a job cannot forge what you see, set your clipboard or rename the window.
Colors, tabs and carriage returns pass, so that progress bars move. In a file or
pipe, and with --grep, --errors, --tail or --lines, a line that was rewritten with
carriage returns is shown once, in its last state; all else is unchanged. With
--raw everything is as it was printed.

--lines takes the numbers that the portal shows: those of the lines of one rank,
0 without --rank, in one run, the latest without --run.`,
		Example: `  trainyard logs j7
  trainyard logs -f @last --tail 20
  trainyard logs -f a12
  trainyard logs j7.2 --rank 1 --stream stderr
  trainyard logs j7 --since 1h --rank all
  trainyard logs j7 --grep 'loss=.*nan' -t
  trainyard logs j7 --errors
  trainyard logs j7.2 --rank 1 --lines 1200-1300`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := given.read(cmd, &f, &style, a.Clock.Now()); err != nil {
				return err
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

			numbers, err := parseNumbers(cmd, given.lines)
			if err != nil {
				return err
			}

			return a.withClient(func(client *api.Client) error {
				if array, ok := arrayArg(args[0]); ok {
					if given.run != "" || given.lines != "" {
						return exit.Usagef(cmd, "--run and --lines are for one job: name an element, e.g. j7")
					}

					return a.arrayLogs(cmd.Context(), client, array, f, toEnd, style)
				}

				j, err := logTarget(cmd, client, args[0], given.run, &f)
				if err != nil {
					return err
				}

				if given.lines != "" {
					return a.printLines(cmd.Context(), client, j, f, numbers, style)
				}

				return a.doLogs(cmd.Context(), client, j, f, toEnd, style)
			})
		},
	}

	flags := cmd.Flags()
	flags.BoolVarP(&toEnd, "follow", "f", false, "follow until the job has ended")
	flags.IntVar(&f.Tail, "tail", 0, "show only the last `number` of lines")
	flags.StringVar(&given.run, "run", "", "only this run: its `number`, or its ID, e.g. j7.2")
	flags.StringVar(&given.rank, "rank", "", "only this `rank`; all for all ranks, each line with its rank")
	flags.StringVar(&f.Stream, "stream", "", "only this `stream`: stdout, stderr or yard (messages of Trainyard itself)")
	flags.StringVar(&f.Grep, "grep", "", "only lines that match this regular `expression`")
	flags.BoolVar(&f.Errors, "errors", false, "only lines that look like errors, such as tracebacks")
	flags.StringVar(&given.lines, "lines", "", "only the lines with these `numbers`, e.g. 1200-1300")
	flags.StringVar(&given.since, "since", "",
		"only lines from this `time` on: how long ago, e.g. 1h, or 2026-11-01T08:00")
	flags.StringVar(&given.until, "until", "", "only lines before this `time`, written likewise")
	flags.BoolVarP(&style.stamps, "timestamps", "t", false, "show the time of each line")
	flags.BoolVar(&style.raw, "raw", false, rawHelp)

	for _, other := range []string{"follow", "tail", "stream", "grep", "errors", "since", "until"} {
		cmd.MarkFlagsMutuallyExclusive("lines", other)
	}

	flags.VarP(
		console.Format{Into: &a.Output, Allowed: []string{console.Table, console.JSON}},
		"output",
		"o",
		"table (plain lines) or json (one object per line)",
	)

	return cmd
}

// allRanks is the rank that stands for all.
const allRanks = "all"

// read checks the flags and puts them into a filter.
func (g *logFlags) read(cmd *cobra.Command, f *api.LogFilter, style *logStyle, now time.Time) error {
	switch rank, err := strconv.Atoi(g.rank); {
	case g.rank == "":
	case g.rank == allRanks:
		style.ranks = true
	case err != nil || rank < 0:
		return exit.Usagef(cmd, "--rank must be an integer of at least 0, or all; got %q", g.rank)
	default:
		f.Rank = &rank
	}

	for _, flag := range []struct {
		name, text string
		into       *time.Time
	}{{"since", g.since, &f.Since}, {"until", g.until, &f.Until}} {
		at, err := agoOrMoment(flag.text, now)
		if err != nil {
			return exit.Usagef(cmd, "--%s: %v", flag.name, err)
		}

		*flag.into = at
	}

	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return exit.Usagef(cmd, "--since must be before --until")
	}

	return nil
}

// agoOrMoment reads a time that is written as how long ago it was, or as such.
func agoOrMoment(text string, now time.Time) (time.Time, error) {
	if d, err := job.ParseDuration(text); err == nil {
		return now.Add(-time.Duration(d)), nil
	}

	at, err := moment(text)
	if err != nil {
		return at, fmt.Errorf("%w, or how long ago, as in 1h", err)
	}

	return at, nil
}

// logTarget finds the job and the run that were asked for. From here on the job has its id: a name may mean another job
// while this one is followed.
func logTarget(cmd *cobra.Command, client *api.Client, arg, run string, f *api.LogFilter) (id.Job, error) {
	j, _, isRun := id.Run(arg).Split()
	if isRun {
		f.Run = id.Run(arg)
	} else {
		var err error
		j, err = client.FindJob(cmd.Context(), arg)
		if err != nil {
			return "", err
		}
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

// logPrinter returns what writes lines of output as the flags say.
func (a *app) logPrinter(f *api.LogFilter, style logStyle, ranks bool) *follow.Printer {
	seen := a.OnTerminal(a.Stdout)
	found := f.Grep != "" || f.Errors || f.Tail > 0 // rather than watched
	p := &follow.Printer{
		Out:      a.Stdout,
		Stamps:   style.stamps,
		JSON:     a.Output == console.JSON,
		Ranks:    style.ranks || ranks,
		Terminal: seen && !style.raw,
		Collapse: (!seen || found) && !style.raw,
	}

	f.Collapse = p.Collapse

	return p
}

// arrayLogs writes the output of the elements of an array, one after another or as they print it.
func (a *app) arrayLogs(
	ctx context.Context, client *api.Client, name id.Array, f api.LogFilter, toEnd bool, style logStyle,
) error {
	array, err := client.Array(ctx, name)
	if err != nil {
		return err
	}

	p := a.logPrinter(&f, style, false)
	if toEnd {
		return a.followArray(ctx, client, &array, f, p)
	}

	out := bufio.NewWriterSize(a.Stdout, outputBuffer)
	p.Out = out

	for i, j := range elements(&array) {
		detail, err := client.Job(ctx, j)
		if err != nil {
			return errors.Join(err, p.Close(), out.Flush())
		}

		p.Label = strconv.Itoa(i)
		if err := a.readLogs(ctx, client, &detail, f, p); err != nil {
			return errors.Join(err, p.Close(), out.Flush())
		}
	}

	return errors.Join(p.Close(), out.Flush())
}

func (a *app) doLogs(
	ctx context.Context,
	client *api.Client,
	j id.Job,
	f api.LogFilter,
	toEnd bool,
	style logStyle,
) error {
	detail, err := client.Job(ctx, j)
	if err != nil {
		return err
	}

	if err := checkRank(&detail, &f); err != nil {
		return err
	}

	out := bufio.NewWriterSize(a.Stdout, outputBuffer)
	p := a.logPrinter(&f, style, manyRanks(detail))

	if !toEnd {
		p.Out = out // nobody waits for a single line
		err := a.readLogs(ctx, client, &detail, f, p)

		return errors.Join(err, p.Close(), out.Flush())
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

	if closing := p.Close(); err == nil && closing != nil {
		err = fmt.Errorf("write output: %w", closing)
	}

	return a.followed(ctx, []string{string(j)}, []api.Job{last}, []error{err})
}

// outputBuffer is how much output is written at a time.
const outputBuffer = 256 << 10

// checkRank refuses a rank that no run of a job has.
func checkRank(j *api.JobDetail, f *api.LogFilter) error {
	if f.Rank == nil {
		return nil
	}

	most := 0
	for i := range j.Runs {
		if f.Run == "" || j.Runs[i].ID == f.Run {
			most = max(most, len(j.Runs[i].Ranks))
		}
	}

	if most == 0 || *f.Rank < most {
		return nil
	}

	of := string(j.ID)
	if f.Run != "" {
		of = string(f.Run)
	}

	return fault.New(fault.NotFound, "rank_not_found", "rank %d of %s not found: it has %s", *f.Rank, of,
		humanize.Count(most, "rank")).WithField("--rank").WithRemedy("ranks are counted from 0")
}

// readLogs writes what there is now: as it is stored where all of it is wanted, and page by page where the server looks
// for lines.
func (a *app) readLogs(
	ctx context.Context, client *api.Client, j *api.JobDetail, f api.LogFilter, p *follow.Printer,
) error {
	if f.Grep != "" || f.Errors || f.Tail > 0 {
		return a.pageLogs(ctx, client, j.ID, f, p)
	}

	runs := slices.Clone(j.Runs)
	slices.SortFunc(runs, func(x, y api.Run) int { return x.Epoch - y.Epoch })

	known := false
	for i := range runs {
		if f.Run != "" && runs[i].ID != f.Run {
			continue
		}

		known = true
		for rank := range runs[i].Ranks {
			if f.Rank != nil && *f.Rank != rank {
				continue
			}
			if err := copyLog(ctx, client, runs[i].ID, rank, &f, p); err != nil {
				return err
			}
		}
	}

	if f.Run != "" && !known {
		return fault.New(fault.NotFound, "run_not_found", "job %s has no run %s", j.ID, f.Run)
	}

	return nil
}

// copyLog writes the output of a rank. A download that breaks off continues with the frame where it was.
func copyLog(
	ctx context.Context, client *api.Client, run id.Run, rank int, f *api.LogFilter, p *follow.Printer,
) error {
	asm := logs.Assembler{Collapse: f.Collapse}
	offset := int64(0)

	for attempt := 1; ; attempt++ {
		read, err := copyPart(ctx, client, run, rank, offset, func(frame logs.Frame) error {
			return writeLines(run, rank, asm.Add(frame), f, p)
		})

		offset += read
		if read > 0 {
			attempt = 1
		}

		if err == nil {
			return writeLines(run, rank, asm.Flush(), f, p)
		}
		if fault.KindOf(err) != fault.Unavailable || attempt == searchAttempts || !follow.Backoff(ctx, attempt) {
			return err
		}
	}
}

// copyPart gives the frames of a rank from an offset on to a function, and returns how many bytes they had.
func copyPart(
	ctx context.Context, client *api.Client, run id.Run, rank int, offset int64, take func(logs.Frame) error,
) (int64, error) {
	body, size, err := client.OpenLog(ctx, run, rank, offset)
	if err != nil {
		return 0, err
	}

	defer func() { _ = body.Close() }()

	received := int64(0)
	dec := logs.NewDecoder(&counted{body, func(n int) { received += int64(n) }})

	for {
		frame, err := dec.Next()

		var damage *logs.DamageError
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return dec.Offset(), ctx.Err()
		case received == size && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return dec.Offset(), nil // the last frame may still be on its way to the server
		case errors.As(err, &damage):
			return dec.Offset(), fmt.Errorf("read the output of %s rank %d: %w", run, rank, err)
		default:
			return dec.Offset(), fault.New(fault.Unavailable, "download_broken",
				"the download of the output broke off: %v", err).
				WithCause(err)
		}

		if err := take(frame); err != nil {
			return dec.Offset(), err
		}
	}
}

func writeLines(run id.Run, rank int, lines []logs.Line, f *api.LogFilter, p *follow.Printer) error {
	for i := range lines {
		l := &lines[i]
		if f.Stream != "" && l.Stream.String() != f.Stream || !f.Since.IsZero() && l.At.Before(f.Since) ||
			!f.Until.IsZero() && !l.At.Before(f.Until) {
			continue
		}

		if err := p.Line("", api.NewLogLine(run, rank, l)); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
	}

	return nil
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
