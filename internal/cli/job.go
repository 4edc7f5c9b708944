package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/forecasts"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/spec"
)

func (a *app) job() *cobra.Command {
	var show forecasts.Options
	var env bool
	cmd := &cobra.Command{
		Use:     "job JOB",
		Aliases: []string{"describe", "why"},
		Short:   "Show a job: state, reason, estimated finish, runs and job file",
		Long: `Show everything about a job: its estimated finish, the basis of that forecast and how accurate
such forecasts have been, with the curve of its metric and its extrapolation. For a queued job:
why it is not running, which jobs hold the resources, and what would let it start earlier.
Of an array (a12) it shows how many elements have which status, and those that failed.`,
		Example: `  trainyard job j7
  trainyard job a12
  trainyard job @last
  trainyard job j7 --metric train_loss --methods
  trainyard job j7 --no-plot
  trainyard job j7 -o json | jq .why`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect()
			if err != nil {
				return err
			}

			defer client.Close()

			if array, ok := arrayArg(args[0]); ok {
				return a.showArray(cmd.Context(), client, array)
			}

			read := client.Job
			if env {
				read = client.JobWithEnv
			}

			detail, err := read(cmd.Context(), id.Job(args[0])) // the server knows names too
			if err != nil {
				return err
			}

			return a.Show(detail, nil, func() error {
				lines, err := failureLines(cmd.Context(), client, &detail)
				if err != nil {
					return err
				}

				return a.jobDetail(detail, lines, func() error { return a.foresee.Job(cmd.Context(), client, detail, show) })
			})
		},
	}

	show.Flags(cmd)
	cmd.Flags().BoolVar(&env, "show-env", false, "show the values of env in the job file of your own job")
	a.OutputFlag(cmd)

	return cmd
}

// jobDetail writes a job for people, with the last lines of the rank that failed first; foreseen writes what is
// expected of it.
func (a *app) jobDetail(j api.JobDetail, failure []string, foreseen func() error) error {
	now := a.Clock.Now()
	if j.Why != nil {
		j.Reason = "" // it says why in more detail below
	}

	if err := a.jobFields(j.Job, now); err != nil {
		return err
	}
	if err := a.jobWhy(j.Why, now); err != nil {
		return err
	}
	for i := range j.Questions {
		if err := a.questionText(&j.Questions[i], now); err != nil {
			return err
		}
	}

	if err := foreseen(); err != nil {
		return err
	}
	if err := a.jobShare(j.Share); err != nil {
		return err
	}
	if err := a.jobUse(j.Utilization); err != nil {
		return err
	}
	if err := a.jobRuns(j.Runs, now); err != nil {
		return err
	}
	for _, line := range failure {
		if _, err := fmt.Fprintln(a.Stdout, table.Plain(line)); err != nil {
			return err
		}
	}

	if err := a.jobOutputs(&j); err != nil {
		return err
	}

	if len(j.Spec) > 0 {
		text, err := jobFile(j.Spec)
		if err != nil {
			return err
		}

		lines := strings.TrimRight(string(text), "\n")
		if _, err := io.WriteString(a.Stdout, "\nFile:\n  "+strings.ReplaceAll(lines, "\n", "\n  ")+"\n"); err != nil {
			return err
		}
	}

	for i := range j.Questions {
		if !j.Questions[i].Notice {
			a.nextForQuestion(&j.Questions[i])
			return nil
		}
	}

	a.nextForJob(j.Job)

	return nil
}

// jobFile writes a spec as a job file; one of a newer yard as it came.
func jobFile(fields json.RawMessage) ([]byte, error) {
	var s job.Spec
	decoder := json.NewDecoder(bytes.NewReader(fields))
	decoder.DisallowUnknownFields()

	if decoder.Decode(&s) == nil {
		return spec.Render(s)
	}

	return console.ToYAML(fields)
}

func (a *app) jobFields(j api.Job, now time.Time) error {
	status := console.Field{Name: "Status", Value: string(j.Status), Color: statusColor(j.Status)}

	age, past := strings.CutSuffix(humanize.Ago(j.Since, now), " ago")
	switch {
	case past && j.State.Final():
		status.Value += " " + age + " ago"
	case past:
		status.Value += " for " + age
	}

	resources := j.Resources
	if j.FakeGPUs {
		resources += " (fake)"
	}

	var needs []string
	for _, n := range j.Needs {
		needs = append(needs, string(n))
	}

	fields := []console.Field{
		{Name: "Job", Value: strings.TrimSpace(string(j.ID) + " " + j.Name)}, status, {Name: "Reason", Value: j.Reason},
		{Name: "Remarks", Value: strings.Join(j.Remarks, "; "), Color: table.Yellow},
		{Name: "Owner", Value: string(j.Owner)}, {Name: "Project", Value: string(j.Project)},
		{Name: "Resources", Value: resources}, {Name: "Nodes", Value: nodeList(j.Nodes)},
		{Name: "Priority", Value: strconv.Itoa(j.Priority)}, {Name: "Needs", Value: strings.Join(needs, ", ")},
		{Name: "Pipeline", Value: j.Pipeline}, {Name: "Array", Value: elementText(&j)},
		{Name: "Submitted", Value: stamp(&j.Submitted, now)},
		{Name: "Started", Value: stamp(j.Started, now)}, {Name: "Ended", Value: stamp(j.Ended, now)},
		{Name: "Ran", Value: ranFor(j, now)}, {Name: "Progress", Value: headway(j)},
		{Name: "Deadline", Value: stamp(j.Deadline, now)}, {Name: "Late cost", Value: lateCost(j.LateCost)},
		{Name: "Cost", Value: costText(j)},
	}

	if j.ExitCode != nil {
		fields = append(fields, console.Field{Name: "Exit code", Value: strconv.Itoa(*j.ExitCode)})
	}

	return a.Fields(fields...)
}

// elementText writes which element of its array a job is: "a12, element 3 (0.1)".
func elementText(j *api.Job) string {
	if j.Index == nil {
		return ""
	}

	return fmt.Sprintf("%s, element %d (%s)", j.Array, *j.Index, j.Value)
}

// headway writes how far a job has come: "65M of 130M (50%)".
func headway(j api.Job) string {
	text := ""
	switch {
	case j.Done != nil && j.Work > 0:
		text = table.Amount(*j.Done) + " of " + table.Amount(j.Work)
	case j.Done != nil:
		text = table.Amount(*j.Done)
	case j.Work > 0:
		text = "? of " + table.Amount(j.Work)
	}

	if p := percent(j); p != "" {
		text += " (" + p + ")"
	}

	return text
}

// percent writes the share of a job's work that is done.
func percent(j api.Job) string {
	if j.Percent == nil {
		return ""
	}

	return strconv.FormatFloat(*j.Percent, 'f', -1, 64) + "%"
}

func lateCost(m job.Money) string {
	if m == 0 {
		return ""
	}

	return dollars(m) + " per hour past the deadline"
}

// dollars writes an amount of a job file: "$2.50".
func dollars(m job.Money) string { return humanize.Dollars(m.Amount()) }

// costText writes what a job has cost so far: "$3.20 of its budget of $40.00".
func costText(j api.Job) string {
	if j.Cost == 0 && j.Budget == 0 {
		return ""
	}

	text := humanize.Dollars(j.Cost)
	if j.Budget > 0 {
		text += " of its budget of " + dollars(j.Budget)
	}

	return text
}

// jobWhy writes what a job waits for.
func (a *app) jobWhy(why *api.Why, now time.Time) error {
	if why == nil {
		return nil
	}

	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "\nWhy: %s\n", table.Plain(why.Sentence))

	if why.Position > 0 {
		_, _ = fmt.Fprintf(&out, "  position %d in the queue\n", why.Position)
	}

	if why.Start != nil {
		_, _ = fmt.Fprintf(&out, "  estimated start: %s\n", inAbout(*why.Start, now))
	}

	if why.NotBefore != nil && why.NotBefore.After(now) {
		_, _ = fmt.Fprintf(&out, "  start: unknown, not within %s\n", humanize.Duration(why.NotBefore.Sub(now)))
	}

	if _, err := io.WriteString(a.Stdout, out.String()); err != nil {
		return err
	}

	if len(why.Holders) > 0 {
		t := a.NewTable("  HELD BY", "OWNER", "NODE", "GPUS", "CPUS", "UNTIL")
		for _, h := range why.Holders {
			until := ""
			if h.Until != nil {
				until = inAbout(*h.Until, now)
			}

			t.Row("  "+string(h.Job), string(h.Owner), string(h.Node), strconv.Itoa(h.GPUs), h.CPUs.String(), until)
		}

		if err := t.Write(a.Stdout); err != nil {
			return err
		}
	}

	for _, r := range why.Remedies {
		if _, err := fmt.Fprintf(a.Stdout, "  what would help: %s\n", table.Plain(r)); err != nil {
			return err
		}
	}

	return nil
}

// inAbout writes when something is expected.
func inAbout(at, now time.Time) string {
	if !at.After(now) {
		return "any moment"
	}

	return "in " + humanize.Duration(at.Sub(now))
}

// jobRuns writes the runs, newest first, with a line for each rank.
func (a *app) jobRuns(runs []api.Run, now time.Time) error {
	if len(runs) == 0 {
		return nil
	}

	t := a.NewTable("RUN", "RANK", "NODE", "GPUS", "STATE", "STARTED", "DURATION", "EXIT", "REASON")
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(x, y api.Run) int { return y.Epoch - x.Epoch })
	for _, r := range runs {
		started, duration := "", ""

		if r.Started != nil {
			started = humanize.Ago(*r.Started, now)
			end := now
			if r.Ended != nil {
				end = *r.Ended
			}

			duration = humanize.Duration(max(end.Sub(*r.Started), 0))
		}

		for _, k := range r.Ranks {
			exit := k.Signal
			if exit == "" && k.ExitCode != nil {
				exit = strconv.Itoa(*k.ExitCode)
			}

			reason := k.Reason
			if reason == "" {
				reason = r.Reason
			}

			t.Cells(table.Cell{Text: string(r.ID)}, table.Cell{Text: strconv.Itoa(k.Rank)}, table.Cell{Text: string(k.Node)},
				table.Cell{Text: devices(k)}, table.Cell{Text: string(k.State), Color: rankColor(k)},
				table.Cell{Text: started}, table.Cell{Text: duration}, table.Cell{Text: exit}, table.Cell{Text: reason})
		}
	}

	if _, err := io.WriteString(a.Stdout, "\n"); err != nil {
		return err
	}

	if err := t.Write(a.Stdout); err != nil {
		return err
	}

	if err := a.images(&runs[0]); err != nil {
		return err
	}

	return a.passedEnv(&runs[0])
}

// images says which container image a run got, if any.
func (a *app) images(r *api.Run) error {
	for _, k := range r.Ranks {
		if k.Digest == "" {
			continue
		}

		_, err := fmt.Fprintf(a.Stdout, "\nImage of %s: %s\n", r.ID, table.Plain(k.Digest))

		return err
	}

	return nil
}

// passedEnv says which settings of its node a run got, if any.
func (a *app) passedEnv(r *api.Run) error {
	for _, k := range r.Ranks {
		if len(k.PassedEnv) == 0 {
			continue
		}

		_, err := fmt.Fprintf(a.Stdout, "\nVariables of node %s that %s got: %s\n", k.Node, r.ID,
			table.Plain(strings.Join(k.PassedEnv, ", ")))

		return err
	}

	return nil
}

// jobOutputs says which output files of a job are kept.
func (a *app) jobOutputs(j *api.JobDetail) error {
	if len(j.Outputs) == 0 {
		return nil
	}

	t := a.NewTable("OUTPUT FILES OF", "RANK", "FILES", "SIZE", "REMARK")
	kept := false

	for i := range j.Outputs {
		o := &j.Outputs[i]
		remark := strings.Join(o.Notes, "; ")
		if o.Removed != "" {
			remark = "removed: " + o.Removed
		}

		kept = kept || o.Removed == "" && o.Files > 0
		t.Row(string(o.Run), strconv.Itoa(o.Rank), strconv.Itoa(o.Files), size(o.Bytes), remark)
	}

	if err := a.after(t.Write); err != nil || !kept {
		return err
	}

	_, err := fmt.Fprintf(a.Stdout, "  fetch them: trainyard fetch %s\n", j.ID)

	return err
}

// devices names the GPUs of a rank: "0,1", or "50% of 0" if other runs share it.
func devices(k api.Rank) string {
	if k.Share > 0 {
		return humanize.Percent(k.Share) + " of " + indices(k.GPUs)
	}

	return indices(k.GPUs)
}

func rankColor(k api.Rank) table.Color {
	switch {
	case k.State == job.RunRunning:
		return table.Cyan
	case k.Cause != job.CauseNone:
		return table.Red
	case k.State == job.RunEnded:
		return table.Green
	}

	return table.NoColor
}

// indices writes the numbers of GPUs: 0,1,4.
func indices(gpus []int) string {
	words := make([]string, len(gpus))
	for i, g := range gpus {
		words[i] = strconv.Itoa(g)
	}

	return strings.Join(words, ",")
}

// nextForJob suggests what one may do with a job in its state.
func (a *app) nextForJob(j api.Job) {
	show := fmt.Sprintf("trainyard logs %s         show its output", j.ID)
	switch {
	case j.State.Final():
		a.Next(show)
	case j.State == job.Paused:
		a.Next(fmt.Sprintf("trainyard resume %s       requeue it", j.ID), show)
	default:
		a.Next(
			fmt.Sprintf("trainyard logs -f %s      follow it", j.ID),
			fmt.Sprintf("trainyard cancel %s       cancel it", j.ID),
		)
	}
}
