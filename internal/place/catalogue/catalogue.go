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
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/place/baseline"
	"trainyard/internal/place/goodput"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/lp"
	"trainyard/internal/place/rules"
)

// All returns the policies. solve is what harvest's constraints across jobs are
// solved by; nil if there is no solver.
func All(solve lp.Solve) place.Registry {
	all := place.Registry{
		{Name: "andreas", Rule: "the cheapest in energy, rent and lateness together; stops, moves and resizes jobs where that saves more than it costs", New: newAndreas},
		{Name: "andreas-published", Rule: "the published randomised greedy rule for energy and lateness, for comparison; takes restarts for free", New: newPublished},
		first("andreas-fifo", "by submission, with the published rule's choice of GPUs; never revises", andreas.FIFO),
		first("andreas-edf", "by deadline, with the published rule's choice of GPUs; never revises", andreas.EDF),
		first("andreas-ps", "by what being late costs, with the published rule's choice of GPUs; never revises", andreas.Priority),
		{Name: "goodput", Rule: "elastic: each GPU goes where it shortens the jobs' mean completion time most", New: newGoodput(false)},
		{Name: "goodput-makespan", Rule: "elastic: the last job ends as early as possible", New: newGoodput(true)},
		{Name: "rules", Rule: "three classes of nodes in one queue, by what each job cares about: time, cost or both; hires on-demand nodes when waiting costs more", New: newRules},
		{Name: "harvest", Rule: "elastic jobs on whatever nodes are idle, as many of each as are worth most over the time ahead, with the cost of every change", New: newHarvest(solve)},
	}
	all = append(all, baseline.Policies()...)
	slices.SortFunc(all, func(a, b place.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func first(name, rule string, by andreas.Order) place.Entry {
	return place.Plain(name, rule, func() place.Policy { return andreas.NewFirst(by) })
}

const far = 1e9 // a bound for numbers that have none of their own

func newAndreas(s *place.Settings) (place.Policy, error) {
	o := andreas.Defaults()
	o.Search = andreas.Search(s.Choice("search", "how it looks for something better than its first answer",
		string(o.Search), string(andreas.Greedy), string(andreas.Random), string(andreas.Relink)))
	o.Rounds = s.Count("rounds", o.Rounds, 0, far, "how often it looks at most; 0 as long as it has time")
	o.Seed = uint64(s.Count("seed", int(o.Seed), 0, far, "of the chances it takes"))
	o.Hedge = s.Number("hedge", o.Hedge, 0, 10, "share of its remaining time that a job is kept ahead of its deadline where that costs little")
	o.Ahead = s.Number("ahead", o.Ahead, 0, 100, "how far ahead it looks, in times of what all work that is there would take")
	o.Crowd = s.Number("crowd", o.Crowd, 0, 100, "how soon the yard counts as full")
	o.Margin = s.Number("margin", o.Margin, 0, 100, "by how much what a stop wins must exceed what it costs")
	o.Dare = s.Number("dare", o.Dare, 0, 100, "time to spare, in times of what is left, with which a job waits for GPUs that suit it better")
	o.Restart = s.Time("restart", o.Restart, "what stopping a job and starting it again takes at least")
	o.Rest = s.Number("rest", o.Rest, 0, 1000, "how long a job is left alone after a start, in times of that")
	o.Late = s.Number("late", o.Late, 0, far, "what missing a deadline without a price costs, in prices of the job's GPUs")
	o.Wait = s.Number("wait", o.Wait, 0, far, "the same for a job without a deadline, from its submission")
	o.Patience = s.Time("patience", o.Patience, "after which that doubles")
	survival := s.Text("survival", "", "share of jobs that still run after 1/n, 2/n, … of their work, as 0.9/0.6/0.3; empty if all run to their end")
	if survival == "" {
		return andreas.New(o), nil
	}
	for text := range strings.SplitSeq(survival, "/") {
		f, err := strconv.ParseFloat(text, 64)
		if n := len(o.Survival); err != nil || !(f >= 0 && f <= 1) || n > 0 && f > o.Survival[n-1] {
			return nil, fault.New(fault.Invalid, "bad_parameter", "survival must be falling shares between 1 and 0, separated by slashes, e.g. 0.9/0.6/0.3; got %s", survival).WithField("policy")
		}
		o.Survival = append(o.Survival, f)
	}
	return andreas.New(o), nil
}

func newRules(s *place.Settings) (place.Policy, error) {
	c := rules.Defaults()
	for _, o := range []struct {
		objective job.Objective
		who       string
	}{{job.ObjectiveTime, "time-sensitive"}, {job.ObjectiveBalanced, "balanced"}, {job.ObjectiveCost, "cost-sensitive"}} {
		c.Value[o.objective] = s.Number(string(o.objective), c.Value[o.objective], 0, far, "what an hour of a "+o.who+" job is worth, in money")
	}
	c.Patience = s.Time("patience", c.Patience, "how long a cost-sensitive job waits for a node that is paid for anyway before one is hired for it")
	c.Ageing = s.Time("ageing", c.Ageing, "after which a job that waits goes before all others of its priority")
	c.Width = s.Number("width", c.Width, 0, 4, "how much wide jobs go first: their length counts divided by their GPUs to this power")
	c.Guess = s.Time("guess", c.Guess, "how long a job is taken to last of which nothing is known")
	c.Setup = s.Time("setup", c.Setup, "how long a hired node needs for a job's environment, beyond its boot")
	c.Preempt = s.Choice("preempt", "let a time-sensitive job have the nodes of cost-sensitive ones that save themselves", "yes", "no") == "yes"
	return rules.New(c), nil
}

func newPublished(s *place.Settings) (place.Policy, error) {
	o := andreas.PublishedDefaults()
	o.Rounds = s.Count("rounds", 0, -1, 1_000_000, "orders that are drawn; 0 as many as were published, -1 none")
	o.Seed = uint64(s.Count("seed", 0, 0, far, "of the chances it takes"))
	return andreas.NewPublished(o), nil
}

func newGoodput(makespan bool) func(*place.Settings) (place.Policy, error) {
	standard := 5 * time.Second
	if makespan {
		standard = time.Minute // jobs take turns
	}
	return func(s *place.Settings) (place.Policy, error) {
		return goodput.Policy{Makespan: makespan, Gap: s.Time("gap", standard, "how long a job that has just begun keeps what it has")}, nil
	}
}

func newHarvest(solve lp.Solve) func(*place.Settings) (place.Policy, error) {
	return func(s *place.Settings) (place.Policy, error) {
		names := make([]string, 0, len(harvest.Objectives()))
		for _, o := range harvest.Objectives() {
			names = append(names, o.Name)
		}
		p := harvest.Params{
			LookAhead:   s.Time("ahead", 2*time.Minute, "over how long a size must pay for the change to it"),
			MaxParallel: s.Count("parallel", 30, 1, 100_000, "jobs that share the nodes at once"),
			Hysteresis:  s.Number("hysteresis", 0, 0, 10, "share of its worth by which a job is better left as it is"),
			Objective:   s.Text("objective", "speedup", "what a job on so many nodes is worth: "+strings.Join(names, ", ")+", or a formula between quotes"),
			Patience:    s.Time("patience", time.Hour, "how long a job may be left with nothing because its nodes bring more elsewhere"),
			Probe:       s.Choice("probe", "try sizes that nobody measured, one doubling at a time", "no", "yes") == "yes",
			Solve:       solve,
		}
		text := s.Text("at_most", "", "a condition across jobs that needs a solver, as \"alice,bob: 1 <= 8\": what each of their GPUs counts for, and how much at most")
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
		return c, fault.New(fault.Invalid, "bad_parameter", "at_most must have the form \"alice,bob: 1 <= 8\", got %s", text).WithField("policy")
	}
	c.PerGPU, c.AtMost = strings.TrimSpace(count), most
	return c, nil
}
