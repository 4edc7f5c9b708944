package harvest

import (
	"fmt"
	"slices"

	"trainyard/internal/formula"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Constraint is a condition across jobs, set by the administrator of a yard: the sum over its jobs
// of PerGPU for each GPU and PerJob for each job is at most AtMost. A quota is PerGPU "1" for some
// users; a budget is PerGPU "price"; "job 12 only together with job 7" is PerJob "(job == 12) -
// (job == 7)" with AtMost 0.
type Constraint struct {
	Name   string
	Users  []id.User // owners of the jobs that it applies to; none means everyone
	PerGPU string    // formula for each GPU of a job; "" for 0
	PerJob string    // formula for a job that has any GPUs; "" for 0
	AtMost float64
}

// constraint is a Constraint with compiled formulas.
type constraint struct {
	*Constraint
	perGPU, perJob *formula.Program
}

func newConstraint(c *Constraint) (constraint, error) {
	out := constraint{Constraint: c}
	for _, f := range []struct {
		text string
		to   **formula.Program
		what string
	}{{c.PerGPU, &out.perGPU, "per_gpu"}, {c.PerJob, &out.perJob, "per_job"}} {
		if f.text == "" {
			continue
		}

		p, err := formula.Compile(f.text, sizeless())
		if err != nil {
			return out, fmt.Errorf("constraint %q, %s: %w", c.Name, f.what, err)
		}

		*f.to = p
	}

	if out.perGPU == nil && out.perJob == nil {
		return out, wrong("constraints", "condition %q must count GPUs or jobs", c.Name)
	}

	return out, nil
}

// counts returns the values of a job's GPU and of the job itself. A value that is not a finite
// number counts as 0.
func (c *constraint) counts(values []float64, user id.User) (perGPU, perJob float64) {
	if len(c.Users) > 0 && !slices.Contains(c.Users, user) {
		return 0, 0
	}

	if c.perGPU != nil {
		perGPU, _ = c.perGPU.Value(values)
	}

	if c.perJob != nil {
		perJob, _ = c.perJob.Value(values)
	}

	return perGPU, perJob
}

// sides returns the conditions for the jobs of a round. The use of jobs that are left alone is
// subtracted from the limits.
func (r *round) sides() []SideRow {
	rows := make([]SideRow, len(r.policy.rows))
	for i := range r.policy.rows {
		c := &r.policy.rows[i]
		row := SideRow{Name: c.Name, AtMost: c.AtMost, PerJob: make([]float64, len(r.jobs))}
		for _, f := range r.fixed {
			perGPU, perJob := c.counts(r.sizeless(f.Item, f, r.priceOf(f)), f.User)
			row.AtMost -= perGPU*float64(f.GPUs) + perJob
		}

		for j := range r.jobs {
			b := &r.jobs[j]
			each := make([]float64, len(r.kinds))
			for k := range r.kinds {
				perGPU, perJob := c.counts(r.sizeless(b.item, b.running, r.kinds[k].price), b.item.User)
				each[k], row.PerJob[j] = perGPU*float64(r.kinds[k].unit), perJob
			}

			row.PerNode = append(row.PerNode, each)
		}

		rows[i] = row
	}

	return rows
}

// Bars says which condition across jobs keeps a job from starting on allocations together with a
// plan, "" if none does.
func (h *Policy) Bars(
	v *place.View, p *place.Plan, it *queue.Item, allocations []place.Allocation,
) string {
	if len(h.rows) == 0 {
		return ""
	}

	r := &round{policy: h, view: v, rooms: v.Rooms}
	own := &place.Running{Item: it, Allocations: allocations, GPUs: gpusOf(allocations)}
	var others []*place.Running
	for i := range p.Starts {
		s := &p.Starts[i]
		others = append(others, &place.Running{Item: s.Item, Allocations: s.Allocations, GPUs: gpusOf(s.Allocations)})
	}

	for _, run := range v.Running {
		if !slices.ContainsFunc(p.Stops, func(s place.Stop) bool { return s.Running.Job == run.Job }) {
			others = append(others, run)
		}
	}

	for i := range h.rows {
		row := &h.rows[i]
		use := func(run *place.Running) float64 {
			perGPU, perJob := row.counts(r.sizeless(run.Item, nil, r.priceOf(run)), run.User)
			return perGPU*float64(run.GPUs) + perJob
		}

		used := 0.0
		for _, run := range others {
			used += use(run)
		}

		if needs := use(own); needs > 0 && used+needs > row.AtMost+tolerance {
			return conditionWords(row.Name, row.AtMost, used, needs)
		}
	}

	return ""
}

// tolerance is the rounding error allowed in a sum.
const tolerance = 1e-9

// priceOf returns the cost of one GPU-hour where a job runs.
func (r *round) priceOf(f *place.Running) money.PerGPUHour {
	if len(f.Allocations) > 0 {
		if at, found := r.find(f.Allocations[0].Node); found {
			return price(r.view, &r.view.Rooms[at])
		}
	}

	return 0
}
