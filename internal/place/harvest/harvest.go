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

// Params say how the policy decides. The zero value of each means the usual.
type Params struct {
	// LookAhead is over how long a size must pay for the change to it; 2 minutes.
	// Short ones change little, long ones follow every hole.
	LookAhead time.Duration
	// MaxParallel is how many jobs share the nodes at once; 30. Fewer jobs finish
	// sooner each, more use large holes better.
	MaxParallel int
	// Hysteresis is the share of its worth by which a job is better left as it is, on
	// top of what a change costs; 0.
	Hysteresis float64
	// Objective is what a job on so many nodes is worth: a name of Objectives, or a
	// formula over Names. "" is speedup.
	Objective string
	// Patience is how long after its submission a job that takes part may be left
	// with nothing because its nodes bring more elsewhere; one hour.
	Patience time.Duration
	// Probe lets jobs try sizes beyond those that were measured, one doubling at a
	// time. It is for yards whose jobs report progress: one that does not would hold
	// nodes without anyone knowing whether it can use them.
	Probe bool
	// Constraints are conditions across jobs. They need a solver.
	Constraints []Constraint
	// Solve solves a linear programme; nil if there is no solver.
	Solve lp.Solve
	// Effort is how hard to search where the allocator is not exact.
	Effort knapsack.Effort
}

// Policy is the harvest policy.
type Policy struct {
	Params
	worth *formula.Program
	rows  []constraint
}

var _ place.Searcher = (*Policy)(nil)

// New makes the policy. A mistake in its parameters is a *fault.Error that names the field.
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

// Default is the policy with its usual parameters.
func Default() *Policy {
	h, err := New(Params{})
	if err != nil {
		return &Policy{} // cannot happen: the defaults are tested
	}

	return h
}

func wrong(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_parameter", format, args...).WithField(field)
}

// Name is what the policy is called in the configuration.
func (*Policy) Name() string { return "harvest" }

// Revises reports that it also changes what runs.
func (*Policy) Revises() bool { return true }

// Plan gives the jobs the sizes that are worth most together.
func (h *Policy) Plan(v *place.View) place.Plan { return h.Search(v, nil) }

// Slow reports that the server does not wait for it.
func (*Policy) Slow() bool { return true }

// Search gives the jobs the best sizes that it finds in its time.
func (h *Policy) Search(v *place.View, enough func() bool) place.Plan {
	r := newRound(h, v)
	r.enough = enough
	if len(r.jobs) == 0 {
		return place.Plan{}
	}

	r.value()

	d, note, ok := r.decide()
	if !ok {
		return place.Plan{}
	}

	r.note = note

	return r.plan(d)
}
