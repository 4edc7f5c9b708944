package simcli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/sim/trace/nodes"
	"trainyard/internal/sim/whatif"
	"trainyard/internal/sim/yardview"
)

// yardFlags say what would be changed in the yard.
type yardFlags struct {
	on     bool
	add    string
	assume lasting
}

func (y *yardFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&y.on, "from-yard", false, "simulate the yard as it is now: when will queued jobs start and end?")
	f.StringVar(&y.add, "add-nodes", "", "with --from-yard: add these nodes, e.g. 2xA100:80GBx8")
	f.Var(&y.assume, "assume", "with --from-yard: run time of jobs without an estimate, e.g. 2h")
}

func (y *yardFlags) given() bool { return y.add != "" || y.assume != 0 }

// dial returns a client for the yard that was chosen, as the other commands do.
func dial(cmd *cobra.Command, c *console.Console) (*api.Client, error) {
	file, err := contexts.Load(c.ConfigDir)
	if err != nil {
		return nil, err
	}

	name, err := cmd.Flags().GetString("context")
	if err != nil {
		return nil, fmt.Errorf("read --context: %w", err)
	}

	chosen, err := file.Choose(name, c.Getenv)
	if err != nil {
		return nil, err
	}
	if chosen.CA == "" {
		return api.NewClient(chosen.Server, chosen.Token, nil), nil
	}

	tls, err := auth.PinnedTLS([]byte(chosen.CA))
	if err != nil {
		return nil, err
	}

	return api.NewClient(chosen.Server, chosen.Token, tls), nil
}

// Prospect is when a job would start and end.
type Prospect struct {
	Job   id.Job         `json:"job"`
	Name  string         `json:"name,omitempty"`
	Owner id.User        `json:"owner"`
	State job.State      `json:"state"`
	Basis yardview.Basis `json:"basis"`
	When  []When         `json:"when"` // by case
}

// When is what would become of a job in one case.
type When struct {
	Start *time.Time `json:"start,omitempty"` // absent if it would never start, or has started
	End   *time.Time `json:"end,omitempty"`   // absent if it would never end
	Stops int        `json:"stops,omitempty"` // how often it would be stopped for others
	Why   string     `json:"why,omitempty"`   // it would never start
}

// Forecast is what would become of the yard, in each case.
type Forecast struct {
	Now   time.Time  `json:"now"`
	Cases []string   `json:"cases"` // what is simulated: the yard as it is, then each change
	Jobs  []Prospect `json:"jobs"`
	Gaps  []string   `json:"gaps,omitempty"` // what is not as it really is
}

// change is a case: the yard as it is, or with something changed.
type change struct {
	name   string
	policy whatif.Policy
	add    []fleet.Node
	tariff *fleet.Tariff
}

// fromYard simulates the yard as it is now, and with what the flags change.
func (s *simulation) fromYard(cmd *cobra.Command) error {
	client, err := dial(cmd, s.Console)
	if err != nil {
		return err
	}

	defer client.Close()

	line := s.NewProgress()
	view, err := yardview.Live(cmd.Context(), client, yardview.Options{Progress: func(done, total int) {
		line.Set("reading jobs: %d of %d", done, total)
	}})
	line.Done()

	if err != nil {
		return err
	}

	lengths := yardview.NewLengths(view, time.Duration(s.yard.assume))
	if unknown := lengths.Unknown(); len(unknown) > 0 {
		return unknownLengths(view, unknown)
	}

	cases, err := s.cases(cmd, view)
	if err != nil {
		return err
	}

	f := Forecast{Now: view.Now, Gaps: append(view.Gaps, gapsOf(view, lengths)...)}

	outcomes := make([]map[id.Job]sim.Outcome, len(cases))
	for i := range cases {
		f.Cases = append(f.Cases, cases[i].name)
		outcomes[i], err = cases[i].simulate(view, lengths, time.Duration(s.until))
		if err != nil {
			return fmt.Errorf("simulate %s: %w", cases[i].name, err)
		}
	}

	f.Jobs = prospects(view, lengths, outcomes)

	return s.Show(f, func() []string { return nil }, func() error { return s.showForecast(&f) })
}

// unknownLengths is the error for jobs whose run time is unknown.
func unknownLengths(v *yardview.View, jobs []id.Job) error {
	return fault.New(fault.Invalid, "unknown_length", "the run times of these jobs are unknown: %s",
		listed(jobs, v.Label)).
		WithRemedy("set a run time with --assume, e.g. --assume 2h; in a job file: expect, max_duration or speed")
}

// cases returns what to simulate: the yard as it is, and as it would be.
func (s *simulation) cases(cmd *cobra.Command, v *yardview.View) ([]change, error) {
	list, err := s.chosen(v.Policy)
	if err != nil {
		return nil, err
	}
	if len(list) > 1 || len(s.loads) > 1 || s.seeds > 1 {
		return nil, exit.Usagef(cmd, "--from-yard compares the yard with one change: name one policy, no loads and no seeds")
	}

	now, err := s.registry.Make(v.Policy)
	if err != nil {
		return nil, fault.New(fault.Conflict, "unknown_policy", "the server uses policy %q, which this version of "+
			"trainyard does not know", v.Policy).
			WithRemedy("use the same version as the server, or choose a policy with --policy").
			WithCause(err)
	}

	base := change{name: "as it is, " + v.Policy, policy: whatif.Policy{Name: v.Policy, New: now}}
	changed, what := base, []string{}
	if list[0].Name != v.Policy {
		changed.policy = list[0]
		what = append(what, list[0].Name)
	}

	if s.yard.add != "" {
		changed.add, err = scenario.Cluster(s.yard.add, "added-", fleet.Local)
		if err != nil {
			return nil, err
		}

		what = append(what, "with "+s.yard.add)
	}

	changed.tariff, err = s.tariff()
	if err != nil {
		return nil, err
	}

	if changed.tariff != nil {
		what = append(what, "with other prices")
	}

	if len(what) == 0 {
		return []change{base}, nil
	}

	changed.name = strings.Join(what, ", ")

	return []change{base, changed}, nil
}

// simulate lets the yard go on.
func (c *change) simulate(v *yardview.View, l *yardview.Lengths, until time.Duration) (map[id.Job]sim.Outcome, error) {
	ends := map[id.Job]sim.Outcome{}
	_, err := sim.Run(sim.Config{
		Policy: c.policy.New(), Changes: c.changes(), FairShare: true, Tariff: c.tariff, Until: until, Detect: time.Minute,
		Begin: &sim.Beginning{Now: v.Now, State: v.State, Truth: l.Truth},
		OnEnd: func(o *sim.Outcome) { ends[o.ID] = *o },
	})

	return ends, err
}

// changes lets the added nodes join at once.
func (c *change) changes() sim.Changes {
	var list []sim.Change
	for i := range c.add {
		list = append(list, sim.Change{Kind: sim.NodeJoins, ID: c.add[i].ID, Node: &c.add[i]})
	}

	return nodes.List(list)
}

// prospects puts together what becomes of each job, those that run first.
func prospects(v *yardview.View, l *yardview.Lengths, outcomes []map[id.Job]sim.Outcome) []Prospect {
	var list []Prospect
	for i := range v.State.Jobs {
		j := &v.State.Jobs[i]
		p := Prospect{Job: j.ID, Owner: j.Owner, Name: j.Spec.Name, State: j.State, Basis: l.Basis(j.ID)}
		for _, ends := range outcomes {
			p.When = append(p.When, whenOf(v, j, ends))
		}

		list = append(list, p)
	}

	slices.SortStableFunc(list, func(a, b Prospect) int {
		return cmp.Or(boolOrder(a.State.Waiting(), b.State.Waiting()), timeOrder(a.When[0].Start, b.When[0].Start))
	})

	return list
}

func whenOf(v *yardview.View, j *job.Job, ends map[id.Job]sim.Outcome) When {
	var w When
	o, ended := ends[j.ID]
	if !ended {
		if d, seen := v.Detail(j.ID); seen && d.Why != nil {
			w.Why = d.Why.Sentence
		}

		return w
	}

	w.Stops = o.Stops
	if o.State == job.Succeeded {
		w.End = timeAfter(v.Now, o.Ended)
	} else {
		w.Why = "it would end as " + string(o.State)
	}

	if j.State.Waiting() && o.Started != sim.NotStarted && o.Started >= 0 {
		w.Start = timeAfter(v.Now, o.Started)
	}

	return w
}

func timeAfter(now time.Time, d time.Duration) *time.Time {
	t := now.Add(d).UTC()
	return &t
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}

	return 1
}

// timeOrder puts the earlier first and none last.
func timeOrder(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}

	return a.Compare(*b)
}

// gapsOf says what the lengths of jobs were taken from.
func gapsOf(v *yardview.View, l *yardview.Lengths) []string {
	counts := map[yardview.Basis]int{}
	for i := range v.State.Jobs {
		counts[l.Basis(v.State.Jobs[i].ID)]++
	}

	var gaps []string
	for _, g := range []struct {
		basis yardview.Basis
		text  string
	}{
		{yardview.BasisMost, "with a maximum duration only, assumed to run that long"},
		{yardview.BasisOverdue, "running longer than expected, assumed to be half done"},
		{yardview.BasisAssumed, "without a run time; --assume is used"},
	} {
		if n := counts[g.basis]; n > 0 {
			gaps = append(gaps, fmt.Sprintf("%s: %s", humanize.Count(n, "job"), g.text))
		}
	}

	return gaps
}

// showForecast shows it to people.
func (s *simulation) showForecast(f *Forecast) error {
	head := []string{"JOB", "NAME", "OWNER", "STATE", "START", "END"}
	if len(f.Cases) > 1 {
		head = append(head, "START THEN", "END THEN", "EARLIER BY")
	}

	t := s.NewTable(append(head, "RUN TIME FROM")...)

	for i := range f.Jobs {
		p := &f.Jobs[i]
		cells := []string{string(p.Job), p.Name, string(p.Owner), string(p.State)}
		for k := range p.When {
			cells = append(cells, startText(p, k, f.Now), endText(p, k, f.Now))
		}

		if len(p.When) > 1 {
			cells = append(cells, sooner(&p.When[0], &p.When[1]))
		}

		t.Row(append(cells, string(p.Basis))...)
	}

	if err := s.WriteTable(t, "no running or queued jobs", "trainyard submit FILE"); err != nil {
		return err
	}

	for i, c := range f.Cases {
		what := "now: the yard "
		if i > 0 {
			what = "then: "
		}

		s.Note("%s%s", what, c)
	}

	for _, g := range f.Gaps {
		s.Note("note: %s", g)
	}

	return nil
}

func startText(p *Prospect, k int, now time.Time) string {
	w := &p.When[k]
	switch {
	case w.Start != nil:
		return humanize.Ago(*w.Start, now)
	case p.State.Waiting() && w.End == nil:
		return "never"
	case p.State.Waiting():
		return "now"
	}

	return "runs"
}

func endText(p *Prospect, k int, now time.Time) string {
	if w := &p.When[k]; w.End != nil {
		return humanize.Ago(*w.End, now)
	}

	return "never"
}

// sooner says by how much a job ends earlier with the change.
func sooner(now, then *When) string {
	switch {
	case now.End == nil && then.End == nil:
		return ""
	case now.End == nil:
		return "ends at all"
	case then.End == nil:
		return "never ends"
	}

	d := now.End.Sub(*then.End).Round(time.Second)
	switch {
	case d < 0:
		return "-" + humanize.Duration(-d)
	case d == 0:
		return "same"
	}

	return humanize.Duration(d)
}
