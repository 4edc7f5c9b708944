package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/cli/table"
	"trainyard/internal/cli/upload"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/workdir"
)

// submitFlags are the flags that submit and run share.
type submitFlags struct {
	detach, dryRun  bool
	raw             bool
	name, envFile   string
	env, include    []string
	params          []string
	priority, retry int
}

func (f *submitFlags) add(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&f.detach, "detach", "d", false, "submit without following the job")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan and submit nothing")
	flags.BoolVar(&f.raw, "raw", false, rawHelp)
	flags.StringVarP(&f.name, "name", "n", "", "`name` of the job")
	flags.StringArrayVar(
		&f.env,
		"env",
		nil,
		"variable for the job, `KEY=VALUE`; KEY alone takes its value from your environment; may be given several times",
	)

	flags.StringArrayVar(&f.params, "set", nil,
		"value of a parameter of the job file, `PARAM=VALUE`; may be given several times")
	flags.StringVar(&f.envFile, "env-file", "", "`file` with lines of KEY=VALUE")
	flags.StringArrayVar(&f.include, "include", nil,
		"upload this `file` although it is ignored or looks as if it held a secret; may be given several times")
	flags.IntVar(&f.priority, "priority", 0, "`priority` from 0 to 100; higher starts first")
	flags.IntVar(&f.retry, "retry", 0, "`number` of times a failed run is retried")
	a.YesFlag(cmd)
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
}

// changes returns what the flags change about a job file.
func (f *submitFlags) changes(cmd *cobra.Command) jobfile.Changes {
	ch := jobfile.Changes{Name: f.name, Env: f.env, EnvFile: f.envFile, Params: f.params}
	if cmd.Flags().Changed("priority") {
		ch.Priority = &f.priority
	}

	if cmd.Flags().Changed("retry") {
		ch.Retry = &f.retry
	}

	return ch
}

func (a *app) maker() jobfile.Maker { return jobfile.Maker{LookupEnv: a.LookupEnv, Now: a.Clock.Now()} }

func (a *app) submit() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit a job file and follow the job",
		Long: `Submit a job file. On a terminal, the plan is shown first and you are asked to confirm.
Then the working directory is uploaded (only files that the server does not have), the
job is submitted and followed: its output goes to standard output, its state changes to
standard error, and the exit code is that of the job (see trainyard help exit-codes). Ctrl-C
stops following; the job keeps running.

With -q or -o json|yaml the job is not followed. FILE may be - for standard input.`,
		Example: `  trainyard submit job.yaml
  trainyard submit job.yaml --dry-run
  trainyard submit job.yaml -y -n lr-0.1 --set lr=0.1
  id=$(trainyard submit -q job.yaml)`,
		Args: exit.Args(1, 1, "job file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := jobfile.Read(args[0], a.In)
			if err != nil {
				return err
			}

			draft, err := a.maker().Make(text, filepath.Dir(args[0]), f.changes(cmd)) // the folder of "-" is "."
			if err != nil {
				return err
			}

			return a.doSubmit(cmd.Context(), draft, f)
		},
	}

	f.add(a, cmd)

	return cmd
}

// doSubmit shows the plan, uploads the working directory, submits the job and follows it.
func (a *app) doSubmit(ctx context.Context, draft *jobfile.Draft, f submitFlags) error {
	client, err := a.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	if draft.Filled {
		// A server that does not know placeholders would run them as they stand.
		if _, err := client.Arrays(ctx, api.ArrayFilter{Page: api.Page{Limit: 1}}); withoutArrays(err) {
			return err
		}
	}

	plain := a.Output == console.Table && !a.Quiet

	var tree *workdir.Tree
	if draft.Workdir != "" {
		tree, err = a.scan(ctx, draft.Workdir, f.include)
		if err == nil {
			err = uploaded(tree, draft)
		}

		if err != nil {
			return err
		}
	}

	if f.dryRun {
		return a.dryRun(ctx, client, draft, tree)
	}

	if plain && a.OnTerminal(a.Stderr) {
		a.noteSize(draft.Workdir, tree)

		plan, err := client.Submit(ctx, draft.Request(true), "")
		if err != nil {
			return err
		}
		if err := a.plan(a.Stderr, plan); err != nil {
			return err
		}

		ok, err := a.Confirm(ctx, "Submit "+humanize.Count(planned(plan.Plan), "job")+"?")
		if err != nil || !ok {
			return a.declined(err)
		}
	}

	if tree != nil {
		draft.Digest = tree.Digest
		if err := a.upload(ctx, client, tree); err != nil {
			return err
		}
	}

	reply, err := a.send(ctx, client, draft.Request(false))
	if err != nil {
		return err
	}

	a.notes(reply.Notes)

	if reply.Schedule != nil {
		one := *reply.Schedule
		return a.Show(reply, func() []string { return []string{string(one.ID)} }, func() error { return a.scheduled(one) })
	}

	if !plain || f.detach {
		return a.Show(reply, func() []string { return submittedIDs(&reply) }, func() error { return a.submitted(&reply) })
	}

	for i := range reply.Arrays {
		a.Note("%s", submittedArray(&reply.Arrays[i]))
	}

	for _, j := range reply.Jobs {
		a.Note("%s", a.stateLine(j))
	}

	return a.attachAll(ctx, client, &reply, f.raw)
}

// planned counts the jobs of a plan.
func planned(plan []api.PlannedJob) int {
	total := 0
	for i := range plan {
		total += max(plan[i].Elements, 1)
	}

	return total
}

// submittedIDs lists what was submitted: arrays by their own ids.
func submittedIDs(r *api.SubmitReply) []string {
	all := listedJobs{JobPage: api.JobPage{Jobs: r.Jobs}, Arrays: r.Arrays}
	return all.names()
}

// submittedArray says which jobs an array has.
func submittedArray(array *api.Array) string {
	return strings.TrimSpace(string(array.ID)+" "+table.Plain(array.Name)) +
		fmt.Sprintf(": %s, %s to %s", humanize.Count(array.Size, "job"), array.First, array.Last)
}

// plannedWorkdir is the working directory of a submission, for programs.
type plannedWorkdir struct {
	Files int       `json:"files"`
	Bytes job.Bytes `json:"bytes"`
}

func (a *app) dryRun(ctx context.Context, client *api.Client, draft *jobfile.Draft, tree *workdir.Tree) error {
	plan, err := client.Submit(ctx, draft.Request(true), "")
	if err != nil {
		return err
	}

	shown := struct {
		api.SubmitReply

		Workdir *plannedWorkdir `json:"workdir,omitempty"`
	}{SubmitReply: plan}
	if tree != nil {
		shown.Workdir = &plannedWorkdir{len(tree.Manifest.Files), job.Bytes(tree.Size)}
	}

	return a.Show(shown, func() []string { return nil }, func() error {
		if err := a.plan(a.Stdout, plan); err != nil {
			return err
		}

		a.noteSize(draft.Workdir, tree)

		a.notes(plan.Notes)

		return nil
	})
}

// plan shows what would happen to each job.
func (a *app) plan(w io.Writer, plan api.SubmitReply) error {
	t := a.NewTableFor(w, "JOB", "RESOURCES", "FITS ON", "START")
	now := a.Clock.Now()

	for i, p := range plan.Plan {
		fits := table.Cell{Text: fmt.Sprintf("%s: %s", humanize.Count(p.FitCount, "node"), nodeList(p.Fits))}
		if p.FitCount == 0 {
			fits = table.Cell{Text: "no node now", Color: table.Yellow}
		}

		start := table.Cell{Text: "now", Color: table.Green}
		if p.Why != nil && (p.Why.Blocker != "none" || p.Why.Start == nil) {
			start = table.Cell{Text: p.Why.Sentence, Color: table.Yellow}
			if p.Why.Start != nil {
				start.Text = inAbout(*p.Why.Start, now) + ": " + start.Text
			}
		} else if p.Why != nil {
			if _, more, found := strings.Cut(p.Why.Sentence, "; "); found { // beside where and when
				start.Text += "; " + more
			}
		}

		if p.Elements > 1 {
			p.Resources = fmt.Sprintf("%d jobs of %s", p.Elements, p.Resources)
		}

		t.Cells(table.Cell{Text: jobTitle(&p, i)}, table.Cell{Text: p.Resources}, fits, start)
	}

	if err := t.Write(w); err != nil {
		return err
	}

	for i := range plan.Plan {
		p := plan.Plan[i]
		if len(plan.Plan) > 1 {
			p.Name = jobTitle(&p, i)
		} else {
			p.Name = ""
		}

		if err := a.options(w, &p); err != nil {
			return err
		}
	}

	return nil
}

// jobTitle names a job of a plan: by its name, or by its place in the file.
func jobTitle(p *api.PlannedJob, at int) string {
	if p.Name != "" {
		return p.Name
	}

	return "#" + strconv.Itoa(at+1)
}

// options shows the ways to run a job, the one that would be taken first. Of several jobs of a file each has its name.
func (a *app) options(w io.Writer, p *api.PlannedJob) error {
	if len(p.Options) == 0 {
		return nil
	}

	now := a.Clock.Now()
	t := a.NewTableFor(w, "", "WHERE", "CLASS", "START", "FINISH (80%)", "COST", "WHY")

	for i, o := range p.Options {
		mark := table.Cell{}
		if i == 0 {
			mark = table.Cell{Text: "->", Color: table.Green}
		}

		start, done := "now", "unknown"
		if o.Start != nil && o.Start.Sub(now) > time.Second {
			start = inAbout(*o.Start, now)
		}

		if o.Finish != nil && !o.Guess {
			done = inAbout(*o.Finish, now)
		}

		if o.Earliest != nil && o.Latest != nil && !o.Guess {
			done += fmt.Sprintf(" (%s to %s)", length(*o.Earliest, now), length(*o.Latest, now))
		}

		cost := humanize.Dollars(o.Cost)
		switch {
		case o.Unpriced:
			cost = "" // the price of the node is unknown, which is not the same as free
		case o.Guess && o.Cost > 0:
			cost = "unknown"
		case o.CostMost > o.Cost*1.005:
			cost += " (up to " + humanize.Dollars(o.CostMost) + ")"
		}

		t.Cells(
			mark,
			table.Cell{Text: o.What},
			table.Cell{Text: o.Class},
			table.Cell{Text: start},
			table.Cell{Text: done},
			table.Cell{Text: cost},
			table.Cell{Text: o.Verdict},
		)
	}

	title := "Options"
	if p.Name != "" {
		title += " for " + table.Plain(p.Name)
	}

	if p.Elements > 1 {
		title += fmt.Sprintf(" of one of its %d jobs", p.Elements)
	}

	basis := "times based on " + p.Options[0].Basis
	if p.Options[0].Guess {
		basis = "run time unknown; planned by " + p.Options[0].Basis
	}

	if _, err := fmt.Fprintf(w, "\n%s (%s):\n", title, basis); err != nil {
		return err
	}

	if err := t.Write(w); err != nil || p.Elements < 2 || p.Options[0].Cost == 0 || p.Options[0].Guess {
		return err
	}

	_, err := fmt.Fprintf(w, "All %d jobs like the first option: %s\n", p.Elements,
		humanize.Dollars(p.Options[0].Cost*float64(p.Elements)))

	return err
}

// length writes the time from now until t.
func length(t, now time.Time) string {
	return humanize.Duration(max(t.Sub(now), 0))
}

func (a *app) notes(notes []string) {
	for _, n := range notes {
		a.Note("note: %s", table.Plain(n))
	}
}

// submitted lists accepted jobs that are not followed.
func (a *app) submitted(reply *api.SubmitReply) error {
	jobs := reply.Jobs

	for i := range reply.Arrays {
		if _, err := fmt.Fprintln(a.Stdout, "Submitted "+submittedArray(&reply.Arrays[i])); err != nil {
			return err
		}
	}

	for _, j := range jobs {
		if _, err := fmt.Fprintln(a.Stdout, strings.TrimSpace("Submitted "+string(j.ID)+" "+
			table.Plain(j.Name))); err != nil {
			return err
		}
	}

	if list := submittedIDs(reply); len(list) > 0 {
		first := list[0]
		a.Next(
			fmt.Sprintf("trainyard logs -f %s      follow it", first),
			fmt.Sprintf("trainyard job %s          show its state and reason", first),
			fmt.Sprintf("trainyard cancel %s       cancel it", first),
		)
	}

	return nil
}

// submitAttempts bounds how often a submission is sent when the server does not respond.
const submitAttempts = 6

// send submits under a key of its own, so that an attempt whose answer was
// lost can be repeated without a second job.
func (a *app) send(ctx context.Context, client *api.Client, request api.SubmitRequest) (api.SubmitReply, error) {
	var random [16]byte
	if _, err := io.ReadFull(a.Entropy, random[:]); err != nil {
		return api.SubmitReply{}, fmt.Errorf("create idempotency key: %w", err)
	}

	key := hex.EncodeToString(random[:])
	for attempt := 1; ; attempt++ {
		reply, err := client.Submit(ctx, request, key)
		if err == nil {
			return reply, nil
		}

		if ctx.Err() != nil {
			return reply, &exit.Result{
				Code: exit.Interrupted,
				Err: fault.New(fault.Unavailable, "interrupted", "interrupted while submitting; the job may have been accepted").
					WithRemedy("check with: trainyard jobs"),
			}
		}

		var refusal *fault.Error
		lost := !errors.As(err, &refusal) || refusal.Kind == fault.Unavailable // an interrupted reply is not a fault
		if !lost || attempt == submitAttempts {
			return reply, err
		}

		a.Note("Server not responding, retrying (%d of %d).", attempt, submitAttempts-1)

		if !follow.Backoff(ctx, attempt) {
			return reply, ctx.Err()
		}
	}
}

// scan lists a working directory, and says what is remarkable about it.
func (a *app) scan(ctx context.Context, dir string, include []string) (*workdir.Tree, error) {
	bar := a.NewProgress()
	defer bar.Done()

	tree, err := workdir.Scan(ctx, dir, workdir.Options{
		CacheDir: a.CacheDir, Clock: a.Clock, Include: include,
		Progress: func(files int, bytes int64) {
			bar.Set("reading %s: %s, %s", dir, humanize.Count(files, "file"), humanize.Size(bytes))
		},
	})
	if err != nil {
		return nil, err
	}

	bar.Done()
	a.notes(tree.Notes)

	if tree.Size > largeWorkdir {
		var parts []string
		for _, p := range tree.Largest(3) {
			parts = append(parts, fmt.Sprintf("%s (%s)", p.Name, humanize.Size(p.Size)))
		}

		a.Note("warning: the working directory %s has %s in %s, mostly %s", dir, humanize.Size(tree.Size),
			humanize.Count(len(tree.Manifest.Files), "file"), table.Plain(humanize.List(parts...)))
		a.Note("  leave out what the job does not need with lines in .trainyardignore; register data with trainyard data add")
	}

	return tree, nil
}

// largeWorkdir is from how many bytes on people are warned: programs are smaller, data is not.
const largeWorkdir = 100 << 20

// uploaded refuses a draft with a Python environment whose file would not be uploaded: its jobs would fail.
func uploaded(tree *workdir.Tree, draft *jobfile.Draft) error {
	for _, name := range draft.Files {
		there := func(f api.ManifestFile) bool {
			return f.Path == name || f.Link != "" && strings.HasPrefix(name, f.Path+"/")
		}

		if !slices.ContainsFunc(tree.Manifest.Files, there) {
			return fault.New(fault.Invalid, "no_file", "%s is not among the files of the working directory %s",
				name, draft.Workdir).WithField("python").
				WithRemedy("correct the path, or upload it with --include %s if it is ignored", name)
		}
	}

	return nil
}

// noteSize says how much is uploaded.
func (a *app) noteSize(dir string, tree *workdir.Tree) {
	if tree != nil {
		a.Note("working directory %s: %s, %s", dir, humanize.Count(len(tree.Manifest.Files), "file"),
			humanize.Size(tree.Size))
	}
}

// upload sends what the server lacks of a working directory.
func (a *app) upload(ctx context.Context, client *api.Client, tree *workdir.Tree) error {
	bar := a.NewProgress()
	defer bar.Done()

	encoded, err := workdir.Encode(tree.Manifest)
	if err != nil {
		return err
	}

	content := upload.Content{Digest: tree.Digest, Manifest: tree.Manifest, Encoded: encoded, Open: tree.Open}

	return upload.Upload(ctx, client, content, func(p upload.Progress) {
		bar.Set("uploading: %d of %s, %s of %s", p.Files, humanize.Count(p.AllFiles, "file"), humanize.Size(p.Bytes),
			humanize.Size(p.AllBytes))
	})
}
