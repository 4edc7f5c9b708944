package cli

import (
	"cmp"
	"context"
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
)

// jobColumn is a column of the list of jobs.
type jobColumn struct {
	name string
	wide bool // only with -o wide, or if it is asked for
	more bool // only if it is asked for
	cell func(j *api.Job, now time.Time) table.Cell
	// order compares two jobs by it; nil compares what is shown.
	order func(x, y *api.Job, now time.Time) int
}

// jobColumns lists the columns in the order in which they are shown.
func jobColumns() []jobColumn {
	return []jobColumn{
		{name: "id", cell: text(func(j *api.Job) string { return string(j.ID) }), order: by(jobNumber)},
		{name: "name", cell: text(elementName)},
		{name: "owner", cell: text(func(j *api.Job) string { return string(j.Owner) })},
		{
			name: "status",
			cell: func(j *api.Job, _ time.Time) table.Cell {
				return table.Cell{Text: string(j.Status), Color: statusColor(j.Status)}
			},
			order: by(func(j *api.Job) int { return slices.Index(job.Statuses(), j.Status) }),
		},
		{name: "resources", cell: text(jobResources)},
		{
			name:  "submitted",
			cell:  func(j *api.Job, now time.Time) table.Cell { return table.Cell{Text: humanize.Ago(j.Submitted, now)} },
			order: by(func(j *api.Job) int64 { return j.Submitted.UnixNano() }),
		},
		{
			name:  "duration",
			cell:  func(j *api.Job, now time.Time) table.Cell { return table.Cell{Text: ranFor(*j, now)} },
			order: func(x, y *api.Job, now time.Time) int { return cmp.Compare(ran(x, now), ran(y, now)) },
		},
		{name: "left", cell: func(j *api.Job, now time.Time) table.Cell { return forecasts.Left(j, now) }, order: byLeft},
		{name: "nodes", cell: text(func(j *api.Job) string { return nodeList(j.Nodes) })},
		{name: "project", wide: true, cell: text(func(j *api.Job) string { return string(j.Project) })},
		{
			name: "priority", wide: true, cell: text(func(j *api.Job) string { return strconv.Itoa(j.Priority) }),
			order: by(func(j *api.Job) int { return j.Priority }),
		},
		{
			name: "runs", wide: true, cell: text(func(j *api.Job) string { return strconv.Itoa(j.Epoch) }),
			order: by(func(j *api.Job) int { return j.Epoch }),
		},
		{name: "exit", wide: true, cell: text(exitCode)},
		{name: "done", wide: true, cell: text(func(j *api.Job) string { return percent(*j) }), order: by(donePercent)},
		{name: "deadline", wide: true, cell: deadlineCell, order: by(deadlineOrder)},
		{name: "cost", more: true, cell: text(func(j *api.Job) string { return costText(*j) }), order: by(jobCost)},
		{name: "array", more: true, cell: text(func(j *api.Job) string { return string(j.Array) })},
		{name: "value", more: true, cell: text(func(j *api.Job) string { return j.Value })},
		{name: "pipeline", more: true, cell: text(func(j *api.Job) string { return j.Pipeline })},
		{
			name: "reason",
			cell: func(j *api.Job, _ time.Time) table.Cell {
				return table.Cell{Text: remarked(j), Color: remarkColor(j)}
			},
		},
	}
}

// text makes a cell of a word.
func text(word func(*api.Job) string) func(*api.Job, time.Time) table.Cell {
	return func(j *api.Job, _ time.Time) table.Cell { return table.Cell{Text: word(j)} }
}

// by compares two jobs by a figure.
func by[T cmp.Ordered](figure func(*api.Job) T) func(x, y *api.Job, _ time.Time) int {
	return func(x, y *api.Job, _ time.Time) int { return cmp.Compare(figure(x), figure(y)) }
}

func jobNumber(j *api.Job) uint64 {
	n, ok := j.ID.Number()
	if !ok {
		n, _ = id.Array(j.ID).Number()
	}

	return n
}

// elementName is the name of a job, with its index if it is an element of an array: "sweep[3]".
func elementName(j *api.Job) string {
	if j.Index == nil {
		return j.Name
	}

	return j.Name + "[" + strconv.Itoa(*j.Index) + "]"
}

func jobCost(j *api.Job) float64 { return j.Cost }

func jobResources(j *api.Job) string {
	if j.FakeGPUs {
		return j.Resources + " (fake)"
	}

	return j.Resources
}

func exitCode(j *api.Job) string {
	if j.ExitCode == nil {
		return ""
	}

	return strconv.Itoa(*j.ExitCode)
}

func donePercent(j *api.Job) float64 {
	if j.Percent == nil {
		return -1
	}

	return *j.Percent
}

func deadlineCell(j *api.Job, now time.Time) table.Cell {
	if j.Deadline == nil {
		return table.Cell{}
	}

	return table.Cell{Text: humanize.Ago(*j.Deadline, now)}
}

// deadlineOrder puts jobs without a deadline behind all others.
func deadlineOrder(j *api.Job) int64 {
	if j.Deadline == nil {
		return 1<<63 - 1
	}

	return j.Deadline.UnixNano()
}

// byLeft compares the estimated ends; jobs without an estimate come last.
func byLeft(x, y *api.Job, _ time.Time) int {
	end := func(j *api.Job) int64 {
		if j.Forecast == nil || j.Forecast.End.IsZero() {
			return 1<<63 - 1
		}

		return j.Forecast.End.UnixNano()
	}

	return cmp.Compare(end(x), end(y))
}

// jobsView is how a list of jobs is shown.
type jobsView struct {
	columns []string // to show; none for the usual ones
	sorted  []string // columns to sort by, the first decides; "-" before one turns it round
	counts  bool     // only how many there are
}

// sort sorts jobs as they are to be shown; they stay as they are if nothing was asked for.
func (v jobsView) sort(jobs []api.Job, now time.Time) {
	var orders []func(x, y *api.Job) int

	for _, word := range v.sorted {
		name, reverse := strings.CutPrefix(word, "-")
		column := columnOf(name)
		orders = append(orders, func(x, y *api.Job) int {
			if reverse {
				x, y = y, x
			}
			if column.order != nil {
				return column.order(x, y, now)
			}

			return strings.Compare(column.cell(x, now).Text, column.cell(y, now).Text)
		})
	}

	slices.SortStableFunc(jobs, func(x, y api.Job) int {
		for _, order := range orders {
			if c := order(&x, &y); c != 0 {
				return c
			}
		}

		return 0
	})
}

// serverSort is the order of all ended jobs that the server can list them in. For another one it is "": then the newest
// ones are listed, and sorted here.
func (v jobsView) serverSort() string {
	if len(v.sorted) == 0 {
		return ""
	}

	switch strings.TrimPrefix(v.sorted[0], "-") {
	case "cost", "name":
		return v.sorted[0]
	}

	return ""
}

// columnOf returns a column by its name, which was checked.
func columnOf(name string) jobColumn {
	all := jobColumns()
	return all[slices.IndexFunc(all, func(c jobColumn) bool { return c.name == name })]
}

// jobTable lays out a list of jobs.
func (a *app) jobTable(jobs []api.Job, view jobsView) *table.Table {
	var columns []jobColumn

	for _, c := range jobColumns() {
		if len(view.columns) == 0 && !c.more && (!c.wide || a.Output == console.Wide) {
			columns = append(columns, c)
		}
	}

	for _, name := range view.columns {
		columns = append(columns, columnOf(name))
	}

	var head []string
	for _, c := range columns {
		head = append(head, strings.ToUpper(c.name))
	}

	now, t := a.Clock.Now(), a.NewTable(head...)
	for i := range jobs {
		var row []table.Cell
		for _, c := range columns {
			row = append(row, c.cell(&jobs[i], now))
		}

		t.Cells(row...)
	}

	return t
}

// showCounts shows how many jobs there are, by their status.
func (a *app) showCounts(ctx context.Context, client *api.Client, q jobsQuery) error {
	f := q.filter
	f.Counts, f.Limit = true, 1

	page, err := client.Jobs(ctx, f)
	if err != nil {
		return err
	}

	counts := api.JobPage{Jobs: []api.Job{}, Counts: page.Counts}

	return a.Show(counts, nil, func() error {
		t, total := a.NewTable("STATUS", "JOBS"), 0
		for _, c := range counts.Counts {
			t.Cells(table.Cell{Text: string(c.Status), Color: statusColor(c.Status)}, table.Cell{Text: strconv.Itoa(c.Jobs)})
			total += c.Jobs
		}

		if total > 0 {
			t.Row("all", strconv.Itoa(total))
		}

		return a.WriteTable(t, "no jobs", "trainyard submit job.yaml")
	})
}

// jobsShown is what the flags of jobs say about states, columns and order.
type jobsShown struct {
	states                []string
	active, ended, counts bool
	columns, sorted       []string
}

func (s *jobsShown) flags(cmd *cobra.Command) {
	var names []string
	for _, c := range jobColumns() {
		names = append(names, c.name)
	}

	flags := cmd.Flags()
	flags.StringArrayVar(&s.states, "state", nil,
		"only jobs in this `state`, or with this word as their STATUS; may be given several times")
	flags.BoolVar(&s.active, "active", false, "only jobs that have not ended")
	flags.BoolVar(&s.ended, "ended", false, "only jobs that have ended, however long ago")
	flags.BoolVar(&s.counts, "counts", false, "only count the jobs that match, by their status, however many and old")
	flags.StringSliceVar(&s.columns, "columns", nil, "show these `columns`: "+strings.Join(names, ", "))
	flags.StringSliceVar(&s.sorted, "sort", nil,
		"sort the listed jobs by these `columns`; - before one reverses it: --sort=-cost. "+
			"With --ended, name and cost sort all jobs that have ended, before --limit")

	CompleteFlag(cmd, "columns", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	CompleteFlag(cmd, "sort", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// apply puts what the flags say into a query.
func (s *jobsShown) apply(cmd *cobra.Command, a *app, q *jobsQuery) error {
	if s.active && s.ended || (s.active || s.ended) && len(s.states) > 0 {
		return exit.Usagef(cmd, "give one of --active, --ended and --state")
	}

	for _, word := range s.states {
		word = strings.ToLower(word)
		if err := oneOf(cmd, "state", word, job.StateWords()); err != nil {
			return err
		}

		q.filter.States = append(q.filter.States, job.State(word))
	}

	active, ended := splitStates(nil)
	switch {
	case s.active:
		q.filter.States = active
	case s.ended:
		q.filter.States = ended
	}

	if s.counts && (a.Quiet || len(s.columns) > 0 || len(s.sorted) > 0) {
		return exit.Usagef(cmd, "--counts lists no jobs: --columns, --sort and -q have no effect")
	}

	var names []string
	for _, c := range jobColumns() {
		names = append(names, c.name)
	}

	for i := range s.columns {
		s.columns[i] = strings.ToLower(s.columns[i])
		if err := oneOf(cmd, "columns", s.columns[i], names); err != nil {
			return err
		}
	}

	for i := range s.sorted {
		s.sorted[i] = strings.ToLower(s.sorted[i])
		if err := oneOf(cmd, "sort", strings.TrimPrefix(s.sorted[i], "-"), names); err != nil {
			return err
		}
	}

	q.view = jobsView{columns: s.columns, sorted: s.sorted, counts: s.counts}

	return nil
}

// splitStates sorts words for states into those of active and of ended jobs; none stands for all states.
func splitStates(words []job.State) (active, ended []job.State) {
	if len(words) == 0 {
		words = job.States()
	}

	for _, w := range words {
		isState := slices.Contains(job.States(), w)
		if isState && w.Final() || slices.Contains(endedWords, job.Status(strings.ToUpper(string(w)))) {
			ended = append(ended, w)
			continue
		}

		active = append(active, w)
	}

	return active, ended
}

// endedWords are the words that only jobs that have ended show.
var endedWords = []job.Status{
	job.StatusFailedSetup, job.StatusOutOfMemory, job.StatusTimeout, job.StatusNodeFail, job.StatusPreempted,
}

// activeStates lists the states of jobs that have not ended.
func activeStates() []job.State {
	active, _ := splitStates(nil)
	return active
}

// ran returns how long a job has run, or ran, in all.
func ran(j *api.Job, now time.Time) time.Duration {
	if j.Started == nil {
		return 0
	}

	d := time.Duration(j.Ran)

	// A server of an older release does not say.
	switch {
	case d == 0 && j.Ended != nil:
		d = max(j.Ended.Sub(*j.Started), 0)
	case d == 0 && j.State == job.Running:
		d = max(now.Sub(j.Since), 0)
	}

	return d
}
