package andreas

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ondemand"
)

// addCounterfactuals says for the starts of a plan what would have been done otherwise, and which of its
// moves save power.
func (y *planner) addCounterfactuals(p *place.Plan, f *freeing, claims *place.Claims) {
	y.nameMoves(p)

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
			s.Counterfactual = y.insteadOfStart(int32(i), f, claims)
		}
	}
}

// nameMoves says which stops of a plan save power: the job gets slower GPUs or fewer of them, or leaves
// a node that is then switched off.
func (y *planner) nameMoves(p *place.Plan) {
	saves := map[*place.Running]bool{}
	for i := range y.Tasks {
		t := &y.Tasks[i]
		if t.Running == nil || t.Assigned < 0 {
			continue
		}

		was, is := &t.Candidates[t.Current], &t.Candidates[t.Assigned]
		saves[t.Running] = is.Rate < was.Rate || t.Assigned == t.Current && y.Kinds[was.Kind].PowersOff
	}

	for i := range p.Stops {
		if s := &p.Stops[i]; saves[s.Running] {
			s.Kind = place.Power
		}
	}
}

// insteadOfStart is what would have been done with a queued task without the configuration that it
// gets: it would have had the best other one that there is room for, or have waited for nodes of the
// yard, or nodes would have been provisioned for it, whatever costs less.
func (y *planner) insteadOfStart(i int32, f *freeing, claims *place.Claims) *place.Counterfactual {
	t := &y.Tasks[i]
	taken := job.Seconds(t.Candidates[t.Assigned].Duration)
	c, total := y.otherConfiguration(i)
	awaited := later{at: -1}

	if c == nil {
		awaited = f.best(t, t.Positions)
		total = y.waitTotal(t, &awaited)
	}

	o := t.OnOffer
	if o != nil && o.Booting {
		return nil // it was decided when the nodes were provisioned
	}

	if o != nil && o.Total() < total && y.mayProvision(t, claims) {
		return ondemand.Instead(place.Placement, y.View, t.Item, taken, &o.Option)
	}

	if awaited.at >= 0 && awaited.wait > 0 { // of nodes that are free it would have had some
		return y.waitFor(t, &awaited, taken)
	}

	return c
}

// insteadOfProvisioning is what would have been done with a task without its offer: another would have
// been provisioned, or it would have had nodes of the yard.
func (y *planner) insteadOfProvisioning(t *problem.Task, own *later) *place.Counterfactual {
	taken := t.OnOffer.Finish.Sub(t.OnOffer.Start)
	if other := y.NextOffer(t); other != nil && other.Total() < y.waitTotal(t, own) {
		return ondemand.Instead(place.Placement, y.View, t.Item, taken, &other.Option)
	}

	if own.at < 0 {
		return nil
	}

	return y.waitFor(t, own, taken)
}

// deferral is the decision that a task waits for nodes of the yard although nodes could be provisioned
// for it. Without those that it waits for it might wait for others.
func (y *planner) deferral(t *problem.Task, f *freeing, own *later) place.Deferral {
	d := place.Deferral{Item: t.Item}
	if other := f.best(t, own.rooms); t.OnOffer.Total() < y.waitTotal(t, &other) {
		taken := job.Seconds(t.Candidates[own.at].Duration)
		d.Counterfactual = ondemand.Instead(place.Waiting, y.View, t.Item, taken, &t.OnOffer.Option)
	}

	return d
}

// waitFor is the counterfactual of a task that would have waited for nodes of the yard. taken is how long
// it runs where it is placed.
func (y *planner) waitFor(t *problem.Task, l *later, taken time.Duration) *place.Counterfactual {
	o := &t.Candidates[l.at]
	c := &place.Counterfactual{
		Kind: place.Placement, What: "start on " + y.Describe(o),
		StartsIn: job.Seconds(l.wait), Runs: job.Seconds(o.Duration),
	}
	if l.wait > 0 {
		c.What = "wait for " + y.Describe(o)
	}

	c.ReadyIn = c.StartsIn
	match := y.ShapeOf(t.Item.Shape).Match

	for i, at := range l.rooms {
		r := &y.View.Rooms[at]
		gpus := fleet.LowestGPUs(match.MatchingGPUs(r), o.On(i))
		c.Allocations = append(c.Allocations, place.Allocation{Node: r.Node.ID, GPUs: gpus, Share: o.Share})

		if l.wait == 0 && y.cold(at) {
			c.ReadyIn = job.Seconds(y.Kinds[o.Kind].Boot)
		}
	}

	c.Compare(t.Item, taken)

	return c
}

// otherConfiguration is what a queued task would have had without the configuration that it gets, and
// what it costs there in all. A faster one was left to save power or money.
func (y *planner) otherConfiguration(i int32) (*place.Counterfactual, money.Amount) {
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
	total := money.Amount(math.Inf(1))

	for _, k := range order {
		t.Assigned = k

		if y.fits(i, k) && y.tryAllocate(i, nil) {
			c, total = y.describeInstead(t, chosen, k), y.ownTotal(t, k, 0)
			if slices.ContainsFunc(t.Positions, y.cold) {
				c.ReadyIn = job.Seconds(y.Kinds[t.Candidates[k].Kind].Boot)
			}

			y.RemoveSeats(i)

			break
		}
	}

	t.Assigned = chosen
	y.RestoreSeats(i, seats, rooms)

	return c, total
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
