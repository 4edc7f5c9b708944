package andreas

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
)

// addCounterfactuals says for the decisions of a plan what would have been done otherwise: a running
// job would have stayed where it is, and a queued one would have had the best other configuration
// that there is room for. Nothing is said of jobs that wait for others.
func (y *planner) addCounterfactuals(p *place.Plan) {
	kinds := y.moveKinds()
	place.AddStays(y.View, p, func(s *place.Stop) place.DecisionKind { return kinds[s.Running] })

	starts := make(map[*place.Allocation]*place.Start, len(p.Starts)) // by their seats
	for i := range p.Starts {
		starts[&p.Starts[i].Allocations[0]] = &p.Starts[i]
	}

	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Running != nil || len(t.Seats) == 0 {
			continue
		}

		if s := starts[&t.Seats[0]]; s != nil {
			s.Counterfactual = y.otherConfiguration(int32(i))
		}
	}
}

// moveKinds returns the kind of decision that moves each running task: to save power if it gets
// slower GPUs or fewer of them, or leaves a node that is then switched off.
func (y *planner) moveKinds() map[*place.Running]place.DecisionKind {
	kinds := map[*place.Running]place.DecisionKind{}
	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Running == nil || t.Assigned < 0 {
			continue
		}

		was, is := &t.Candidates[t.Current], &t.Candidates[t.Assigned]
		kinds[t.Running] = place.Move
		if is.Rate < was.Rate || t.Assigned == t.Current && y.Kinds[was.Kind].PowersOff {
			kinds[t.Running] = place.Power
		}
	}

	return kinds
}

// otherConfiguration is what a queued task would have had without the configuration that it gets. A
// faster one was left to save power or money.
func (y *planner) otherConfiguration(i int32) *place.Counterfactual {
	t := &y.Tasks[i]
	chosen := t.Assigned
	seats, rooms := y.RemoveSeats(i)

	order := make([]int, 0, len(t.Candidates))
	for k := range t.Candidates {
		if k != chosen && !y.declines(t, k) && !math.IsInf(t.Candidates[k].Gain, -1) {
			order = append(order, k)
		}
	}

	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(t.Candidates[b].Gain, t.Candidates[a].Gain)
	})

	var c *place.Counterfactual
	for _, k := range order {
		t.Assigned = k

		if y.fits(i, k) && y.tryAllocate(i, nil) {
			c = y.describeInstead(t, chosen, k)
			if slices.ContainsFunc(t.Positions, y.cold) {
				c.ReadyIn = job.Seconds(y.Kinds[t.Candidates[k].Kind].Boot)
			}

			y.RemoveSeats(i)

			break
		}
	}

	t.Assigned = chosen
	y.RestoreSeats(i, seats, rooms)

	return c
}

// cold reports whether the node of a room, on which a task has seats for the moment, is switched
// off: nothing else runs or starts there.
func (y *planner) cold(room int32) bool {
	return y.Kinds[y.Positions[room].Kind].PowersOff && len(y.TasksIn[room]) <= 1 &&
		len(y.View.Rooms[room].Holds) == 0
}

// describeInstead describes a candidate whose seats a task has for the moment.
func (y *planner) describeInstead(t *problem.Task, chosen, other int) *place.Counterfactual {
	is, o := &t.Candidates[chosen], &t.Candidates[other]
	c := &place.Counterfactual{
		Kind: place.Placement, What: "start on " + y.Where(t), Allocations: slices.Clone(t.Seats),
		Runs: job.Seconds(o.Duration), Ratio: 1,
	}

	if o.Duration < is.Duration {
		c.Kind = place.Power
	}

	if s := t.Item.Outlook.Speed; s != nil {
		c.Startup = time.Duration(s.Start)
	}

	if o.Rate > 0 {
		c.Ratio = is.Rate / o.Rate
	}

	return c
}
