// Package harvest is the policy that runs elastic jobs on whatever nodes are open
// and idle, as FreeTrain (BFTrainer) does on the holes of a supercomputer.
//
// Each time something changes it computes what every size of every job is worth over the
// next minutes, less what changing to it costs, and chooses the sizes that are worth most
// together. Over one kind of node that is exact; over several kinds, or under conditions
// across jobs, it is a search with a proven bound (both in package knapsack) or, for those
// who want it, a linear program (package lp) for an external solver. instance.go writes a
// decision as either; nodemodel.go is the published program. What a job is worth is an
// objective: a formula over its speed, weight, price and so on.
//
// Like every policy it is a pure function from a view to a plan: it never runs a solver
// itself. Running jobs that cannot be resized or stopped, and nodes with several kinds of
// GPU, are left alone.
package harvest

import (
	"fmt"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/formula"
	"trainyard/internal/place"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
)

// Params are the parameters of the policy. A zero value means the default.
type Params struct {
	// LookAhead is the time within which a change of size must pay for itself; default 2 minutes.
	// With a short one jobs change rarely, with a long one they follow every change of the free
	// nodes.
	LookAhead time.Duration
	// MaxParallel is how many jobs share the nodes at once; default 30. With fewer, each job
	// finishes sooner; with more, large numbers of free nodes are used better.
	MaxParallel int
	// Hysteresis is the fraction of its value by which a job prefers its present size, in addition
	// to the cost of a change; default 0.
	Hysteresis float64
	// Objective is the value of a job at a size: a name from Objectives, or a formula over Names.
	// The default is speedup.
	Objective string
	// Patience is how long after its submission a participating job may be left without nodes
	// because they are worth more elsewhere; default one hour.
	Patience time.Duration
	// Probe lets jobs try sizes beyond those that were measured, one doubling at a time. It is for
	// yards whose jobs report progress: a job that reports none would occupy nodes without showing
	// whether it uses them.
	Probe bool
	// Constraints are conditions across jobs. They need a solver.
	Constraints []Constraint
	// Solve solves a linear programme; nil if there is no solver.
	Solve lp.Solve
	// Effort limits the search where the allocation is not exact.
	Effort knapsack.Effort
}

// Policy is the harvest policy.
type Policy struct {
	Params
	worth *formula.Program
	rows  []constraint
}

var _ place.Searcher = (*Policy)(nil)

// New returns the policy. An invalid parameter is a *fault.Error that names the field.
func New(p Params) (*Policy, error) {
	if p.LookAhead == 0 {
		p.LookAhead = 2 * time.Minute
	}

	if p.MaxParallel == 0 {
		p.MaxParallel = 30
	}

	if p.Patience == 0 {
		p.Patience = time.Hour
	}

	if p.Objective == "" {
		p.Objective = "speedup"
	}

	switch {
	case p.LookAhead < time.Second:
		return nil, wrong("look_ahead", "must be at least 1s, got %s", p.LookAhead)
	case p.MaxParallel < 0:
		return nil, wrong("max_parallel", "must not be negative, got %d", p.MaxParallel)
	case !(p.Hysteresis >= 0 && p.Hysteresis <= 1):
		return nil, wrong("hysteresis", "must be between 0 and 1, got %g", p.Hysteresis)
	case p.Patience < 0:
		return nil, wrong("patience", "must not be negative, got %s", p.Patience)
	}

	h := &Policy{Params: p}
	var err error
	h.worth, err = compile(p.Objective)
	if err != nil {
		return nil, fmt.Errorf("objective: %w", err)
	}

	if len(p.Constraints) > 0 && p.Solve == nil {
		return nil, fault.New(fault.Unavailable, "no_solver",
			"conditions across jobs need a solver, and none is installed").
			WithField("constraints").WithRemedy("install one, e.g. apt-get install coinor-cbc, or remove the conditions")
	}

	for i := range p.Constraints {
		c, err := newConstraint(&p.Constraints[i])
		if err != nil {
			return nil, err
		}

		h.rows = append(h.rows, c)
	}

	return h, nil
}

// Default returns the policy with default parameters.
func Default() *Policy {
	h, err := New(Params{})
	if err != nil {
		return &Policy{} // unreachable: a test covers the defaults
	}

	return h
}

func wrong(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_parameter", format, args...).WithField(field)
}

// Name returns the name of the policy in the configuration.
func (*Policy) Name() string { return "harvest" }

// Revises reports that the policy also changes running jobs.
func (*Policy) Revises() bool { return true }

// Plan gives the jobs the sizes with the largest total value.
func (h *Policy) Plan(v *place.View) place.Plan { return h.Search(v, nil) }

// Refuses says that conditions across jobs cannot be kept where nodes are provisioned: a job that a
// condition keeps waiting would get a node of its own.
func (h *Policy) Refuses(f place.Feature) string {
	if f != place.Clouds || len(h.Constraints) == 0 {
		return ""
	}

	return "at_most would not hold on nodes that are provisioned for the jobs it keeps waiting"
}

// Slow reports that the server plans in the background instead of waiting for the policy.
func (*Policy) Slow() bool { return true }

// Search is Plan with a time limit: it returns the best sizes found until enough is true.
func (h *Policy) Search(v *place.View, enough func() bool) place.Plan {
	r := newRound(h, v)
	r.enough = enough
	switch {
	case len(r.jobs) == 0 && len(r.withoutGPUs) == 0:
		return place.Plan{}
	case len(r.jobs) == 0:
		return r.plan(Decision{})
	}

	r.value()

	d, note, ok := r.decide()
	if !ok {
		return place.Plan{}
	}

	r.note = note

	return r.plan(d)
}
