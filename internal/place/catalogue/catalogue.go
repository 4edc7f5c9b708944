// Package catalogue lists every policy by name, with its parameters.
//
// The server, the simulator, the benchmarks and the reference pages all take the
// policies from here, so that what can be simulated can be run and the other way
// round. It decides nothing itself.
package catalogue

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/place/andreas/published"
	"trainyard/internal/place/baseline"
	"trainyard/internal/place/gangs"
	"trainyard/internal/place/goodput"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/lp"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/rules"
	"trainyard/internal/relocate"
)

// All returns the policies. solve solves the linear programs of harvest's conditions across
// jobs; nil if there is no solver.
func All(solve lp.Solve) place.Registry {
	all := place.Registry{
		{
			Name: "andreas",
			New:  newAndreas,
			Rule: "lowest sum of energy cost, node cost and late cost; " +
				"preempts, moves and resizes jobs where that saves more than it costs",
		},
		{
			Name: "andreas-published", New: newPublished,
			Rule: "the published randomised greedy rule for energy and lateness, for comparison; " +
				"ignores the cost of restarts",
		},
		first("andreas-fifo", "by submission, with the published rule's choice of GPUs; never preempts", published.FIFO),
		first("andreas-edf", "by deadline, with the published rule's choice of GPUs; never preempts", published.EDF),
		first("andreas-ps", "by the cost of being late, with the published rule's choice of GPUs; never preempts",
			published.Priority),
		{
			Name: "goodput", New: newGoodput(goodput.Completion),
			Rule: "elastic: each GPU goes where it shortens the jobs' mean completion time most",
		},
		{
			Name: "goodput-makespan", New: newGoodput(goodput.Makespan),
			Rule: "elastic: shortest makespan, i.e. the last job ends as early as possible",
		},
		{
			Name: "goodput-fair", New: newGoodput(goodput.Fairness),
			Rule: "elastic: max-min fairness; jobs take turns so that the slowest, " +
				"measured by its speed on an equal share of the yard, is as fast as possible",
		},
		{
			Name: "rules", New: newRules,
			Rule: "three classes of nodes in one queue, by each job's objective (time, cost or both); " +
				"provisions on-demand nodes when waiting costs more",
		},
		{
			Name: "harvest",
			New:  newHarvest(solve),
			Rule: "elastic jobs on idle nodes: the sizes with the highest total value over the planning horizon, " +
				"less the cost of every change",
		},
	}

	all = append(all, baseline.Policies()...)
	for i := range all {
		if kindOf := keepsToOneKind(all[i].Name); kindOf != nil {
			all[i].New = withGangs(all[i].New, kindOf)
		}

		if all[i].Name != "rules" { // which provisions together with its placement
			all[i].New = provisioning(all[i].New)
		}
	}

	slices.SortFunc(all, func(a, b place.Entry) int { return cmp.Compare(a.Name, b.Name) })

	return all
}

// keepsToOneKind returns what a policy takes for one kind of node if it keeps every job on one kind,
// nil if it also runs gangs on unlike nodes itself.
func keepsToOneKind(policy string) gangs.KindOf {
	switch policy {
	case "andreas", "andreas-published", "andreas-fifo", "andreas-edf", "andreas-ps":
		return gangs.ByGPUAndClass
	case "goodput", "goodput-fair", "goodput-makespan", "harvest", "afs-l", "edl", "elastic-fifo", "elastic-srjf",
		"elastic-tiresias", "equal-share", "ffdl", "tiresias":
		return gangs.ByGPU
	}

	return nil
}

// withGangs returns a constructor of the same policy that also runs gangs on unlike nodes.
func withGangs(
	make func(*place.Settings) (place.Policy, error), of gangs.KindOf,
) func(*place.Settings) (place.Policy, error) {
	return func(s *place.Settings) (place.Policy, error) {
		p, err := make(s)
		if err != nil {
			return nil, err
		}

		return gangs.Wrap(p, of), nil
	}
}

// provisioning returns a constructor of the same policy that provisions nodes by the common rule.
func provisioning(make func(*place.Settings) (place.Policy, error)) func(*place.Settings) (place.Policy, error) {
	return func(s *place.Settings) (place.Policy, error) {
		p, err := make(s)
		if err != nil {
			return nil, err
		}

		t := readTerms(s)

		return relocating(s, ondemand.Wrap(p, t), t.Value), nil
	}
}

// relocating returns the same policy with moves of running jobs, unless they are switched off. value is what an hour
// of a job's time is worth.
func relocating(s *place.Settings, p place.Policy, value map[job.Objective]money.PerHour) place.Policy {
	t := relocate.Standard()
	t.Value = value
	on := false

	s.Common(func() {
		on = s.Choice("relocate", "moves: bring jobs home from provisioned nodes when nodes of the yard idle",
			"yes", "no") == "yes"
		t.Left = s.Time("relocate_left", t.Left,
			"moves: least time that must be left of a job, by the lower bound of its forecast")
		t.Stay = s.Time("relocate_stay", t.Stay, "moves: minimum time between two moves of a job")
		t.Margin = s.Number("relocate_margin", t.Margin, 0, 1,
			"moves: share of the cost of staying that a move must save")
		t.Delay = s.Number("relocate_delay", t.Delay, 0, unbounded,
			"moves: maximum delay of a job that is not cost-sensitive, as a share of its remaining time")
	})

	if !on {
		return p
	}

	return relocate.Wrap(p, t)
}

// readTerms reads the terms of the common rule, which are the same parameters under every policy that is wrapped.
// The policy rules has parameters of its own for them, because its placement depends on them too.
func readTerms(s *place.Settings) ondemand.Terms {
	t := ondemand.Standard()

	s.Common(func() {
		for _, o := range objectives() {
			t.Value[o.objective] = money.PerHour(s.Number("provision_"+string(o.objective), float64(t.Value[o.objective]),
				0, unbounded, "provisioning: value of an hour of a "+o.who+" job, in dollars"))
		}

		t.Patience = s.Time("provision_patience", t.Patience,
			"provisioning: how long a cost-sensitive job waits for a node that is paid for anyway")
		t.Guess = s.Time("provision_guess", t.Guess,
			"provisioning: assumed run time of a job without an estimate or forecast")
		t.Setup = s.Time("provision_setup", t.Setup,
			"provisioning: time a provisioned node needs for a job's environment, after its boot")
	})

	return t
}

// namedObjective is an objective with what its jobs are called.
type namedObjective struct {
	objective job.Objective
	who       string
}

func objectives() []namedObjective {
	return []namedObjective{
		{job.ObjectiveTime, "time-sensitive"}, {job.ObjectiveBalanced, "balanced"}, {job.ObjectiveCost, "cost-sensitive"},
	}
}

func first(name, rule string, by published.Order) place.Entry {
	return place.Plain(name, rule, func() place.Policy { return published.NewFirstPrinciple(by) })
}

const unbounded = 1e9 // the maximum of numbers that have none of their own

func newAndreas(s *place.Settings) (place.Policy, error) {
	o := andreas.Defaults()
	o.Search = andreas.Search(s.Choice("search", "how it improves on its first solution",
		string(o.Search), string(andreas.Greedy), string(andreas.Random), string(andreas.Relink)))
	o.Rounds = s.Count("rounds", o.Rounds, 0, unbounded,
		"maximum number of search rounds; 0 for as many as time allows")
	o.Seed = uint64(s.Count("seed", int(o.Seed), 0, unbounded, "seed of the random choices"))
	o.Hedge = s.Number("hedge", o.Hedge, 0, 10,
		"safety margin before a deadline, as a share of the remaining time, where that costs little")
	o.Ahead = s.Number("ahead", o.Ahead, 0, 100,
		"planning horizon, as a multiple of the time that all present work takes")
	o.Crowd = s.Number("crowd", o.Crowd, 0, 100,
		"the yard counts as full below this many GPUs for each that its jobs use well; higher is earlier")
	o.Margin = s.Number("margin", o.Margin, 0, 100, "factor by which the gain of a preemption must exceed its cost")
	o.Dare = s.Number("dare", o.Dare, 0, 100,
		"spare time, as a multiple of the remaining time, with which a job waits for better GPUs")
	o.Restart = s.Time("restart", o.Restart, "minimum time to stop a job and start it again")
	o.Rest = s.Number("rest", o.Rest, 0, 1000, "how long a job is left alone after a start, as a multiple of restart")
	o.Late = s.Number("late", o.Late, 0, unbounded,
		"cost of missing a deadline without a late cost, as a multiple of the price of the job's GPUs")
	o.Wait = s.Number("wait", o.Wait, 0, unbounded,
		"cost of waiting without a deadline, from submission, as a multiple of the price of the job's GPUs")
	o.Patience = s.Time("patience", o.Patience, "time after which the cost of waiting doubles")
	o.Terms = readTerms(s)

	survival := s.Text("survival", "",
		"share of jobs that still run after 1/n, 2/n, … of their work, e.g. 0.9/0.6/0.3; empty if all run to the end")
	if survival == "" {
		return andreas.New(o), nil
	}

	for text := range strings.SplitSeq(survival, "/") {
		f, err := strconv.ParseFloat(text, 64)
		if n := len(o.Survival); err != nil || !(f >= 0 && f <= 1) || n > 0 && f > o.Survival[n-1] {
			return nil, fault.New(fault.Invalid, "bad_parameter",
				"survival must be falling shares between 1 and 0, separated by slashes, e.g. 0.9/0.6/0.3; got %s",
				survival).WithField("policy")
		}

		o.Survival = append(o.Survival, f)
	}

	return andreas.New(o), nil
}

func newRules(s *place.Settings) (place.Policy, error) {
	c := rules.Defaults()
	for _, o := range objectives() {
		c.Value[o.objective] = money.PerHour(s.Number(string(o.objective), float64(c.Value[o.objective]), 0, unbounded,
			"value of an hour of a "+o.who+" job, in dollars"))
	}

	c.Patience = s.Time("patience", c.Patience,
		"how long a cost-sensitive job waits for a node that is paid for anyway before one is provisioned")
	c.Ageing = s.Time("ageing", c.Ageing, "time after which a queued job goes before all others of its priority")
	c.Width = s.Number("width", c.Width, 0, 4,
		"preference for wide jobs: their length is divided by GPUs to this power")
	c.Guess = s.Time("guess", c.Guess, "assumed run time of a job without an estimate or forecast")
	c.Setup = s.Time("setup", c.Setup, "time a provisioned node needs for a job's environment, after its boot")
	c.Preempt = s.Choice("preempt",
		"let time-sensitive jobs preempt cost-sensitive ones that write checkpoints", "yes", "no") == "yes"

	return relocating(s, rules.New(c), c.Value), nil
}

func newPublished(s *place.Settings) (place.Policy, error) {
	o := published.Defaults()
	o.Rounds = s.Count("rounds", 0, -1, 1_000_000, "number of random orders; 0 for the published number, -1 for none")
	o.Seed = uint64(s.Count("seed", 0, 0, unbounded, "seed of the random choices"))

	return published.New(o), nil
}

func newGoodput(aim goodput.Aim) func(*place.Settings) (place.Policy, error) {
	return func(s *place.Settings) (place.Policy, error) {
		gap := s.Time("gap", aim.Gap(), "minimum time between two changes of a job")
		return goodput.Policy{Aim: aim, Gap: gap}, nil
	}
}

func newHarvest(solve lp.Solve) func(*place.Settings) (place.Policy, error) {
	return func(s *place.Settings) (place.Policy, error) {
		names := make([]string, 0, len(harvest.Objectives()))
		for _, o := range harvest.Objectives() {
			names = append(names, o.Name)
		}

		p := harvest.Params{
			LookAhead:   s.Time("ahead", 2*time.Minute, "time within which a change of size must pay off"),
			MaxParallel: s.Count("parallel", 30, 1, 100_000, "maximum number of jobs that share the nodes"),
			Hysteresis:  s.Number("hysteresis", 0, 0, 10, "minimum gain of a change, as a share of the job's present value"),
			Objective: s.Text("objective", "speedup",
				"value of a job on a number of nodes: "+strings.Join(names, ", ")+", or a formula in quotes"),
			Patience: s.Time("patience", time.Hour, "how long a job may wait because other jobs use the nodes better"),
			Probe:    s.Choice("probe", "try unmeasured sizes, doubling each time", "no", "yes") == "yes",
			Solve:    solve,
		}

		text := s.Text("at_most", "",
			"condition across jobs (needs a solver), e.g. \"alice,bob: 1 <= 8\": "+
				"the weight of each of their GPUs, and the maximum sum")

		if text != "" {
			c, err := readConstraint(text)
			if err != nil {
				return nil, err
			}

			p.Constraints = append(p.Constraints, c)
		}

		return harvest.New(p)
	}
}

// readConstraint reads users, what each of their GPUs counts for, and how much
// that may be in all: "alice,bob: 1 <= 8". Without users it is about everyone's jobs.
func readConstraint(text string) (harvest.Constraint, error) {
	c := harvest.Constraint{Name: text}
	rest := text
	if who, what, ok := strings.Cut(text, ":"); ok {
		for u := range strings.SplitSeq(who, ",") {
			c.Users = append(c.Users, id.User(strings.TrimSpace(u)))
		}

		rest = what
	}

	count, limit, ok := strings.Cut(rest, "<=")
	most, err := strconv.ParseFloat(strings.TrimSpace(limit), 64)
	if !ok || err != nil {
		return c, fault.New(fault.Invalid, "bad_parameter",
			"at_most must have the form \"alice,bob: 1 <= 8\", got %s", text).WithField("policy")
	}

	c.PerGPU, c.AtMost = strings.TrimSpace(count), most

	return c, nil
}
