package ondemand

import (
	"fmt"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// leased is a queued job for which nodes are being provisioned or have been, or a running one that
// waits for faster ones.
type leased struct {
	item   *queue.Item // nil of a running job
	leases []*fleet.Lease
}

// leasedJobs finds the queued jobs with nodes of their own, and the running ones that wait for some,
// by job.
func leasedJobs(v *place.View) map[id.Job]*leased {
	jobs := map[id.Job]*leased{}
	for _, l := range v.Leases {
		if l.Job == "" || !l.Live() {
			continue
		}

		if jobs[l.Job] == nil {
			jobs[l.Job] = &leased{}
		}

		jobs[l.Job].leases = append(jobs[l.Job].leases, l)
	}

	if len(jobs) == 0 {
		return nil
	}

	for _, it := range v.Queue.Stays {
		if j, ok := jobs[it.Job]; ok {
			j.item = it
		}
	}

	awaits := map[id.Job]bool{}
	for _, r := range v.Running {
		if j, ok := jobs[r.Job]; ok {
			j.leases = slices.DeleteFunc(j.leases, func(l *fleet.Lease) bool { return !r.Awaits(l) })
			awaits[r.Job] = len(j.leases) > 0
		}
	}

	for name, j := range jobs {
		if j.item == nil && !awaits[name] {
			delete(jobs, name)
		}
	}

	return jobs
}

// kept is what is kept for the jobs that it was provisioned for.
type kept struct {
	rooms  []int // empty provisioned nodes of jobs that wait for them, ascending
	starts []place.Start
}

// keep finds the nodes that no other job may use, and starts the jobs whose nodes are ready.
func keep(v *place.View, jobs map[id.Job]*leased) kept {
	var k kept
	for _, l := range v.Leases {
		j := jobs[l.Job]
		if j == nil || j.leases[0] != l { // once for each job, in the order of the leases
			continue
		}

		rooms := j.ready(v)
		k.rooms = append(k.rooms, rooms...)

		if j.item == nil { // its move is decided elsewhere
			continue
		}

		if s, ok := j.start(v, rooms); ok {
			k.starts = append(k.starts, s)
		}
	}

	slices.Sort(k.rooms)

	return k
}

// ready lists the rooms of the nodes of a job that have joined and on which nothing runs.
func (j *leased) ready(v *place.View) []int {
	var rooms []int
	for _, l := range j.leases {
		at, ok := find(v, l.Node)
		if ok && v.Rooms[at].Node.Lease == l.ID && len(v.Rooms[at].Holds) == 0 {
			rooms = append(rooms, at)
		}
	}

	return rooms
}

// find returns the room of a node.
func find(v *place.View, n id.Node) (int, bool) {
	if n == "" {
		return 0, false
	}

	return slices.BinarySearchFunc(v.Rooms, n, func(r fleet.Room, n id.Node) int {
		switch {
		case r.Node.ID < n:
			return -1
		case r.Node.ID > n:
			return 1
		}

		return 0
	})
}

// start starts a job on its nodes once all of them are ready. A job that is not allowed to
// spend more does not start there; its nodes are released when they have been idle.
func (j *leased) start(v *place.View, rooms []int) (place.Start, bool) {
	a := v.Allow(j.item)
	need := place.Capped(j.item.Shape.Need, a.Ceiling)
	if len(rooms) < len(j.leases) || len(rooms) < need.Nodes || a.HoldReason != "" || a.NoProvisioning {
		return place.Start{}, false
	}

	match := fleet.NewMatcher(need)
	s := place.Start{Item: j.item}
	words, part := "", ""
	gpus := need.MaxGPUs

	if need.Share > 0 {
		part = humanize.Percent(need.Share) + " of "
	}

	for _, at := range rooms { // each rank gets as many GPUs as the smallest node has
		fits, ok := match.Fits(&v.Rooms[at])
		if !ok {
			return place.Start{}, false
		}

		gpus = min(gpus, bits.OnesCount64(fits))
	}

	for _, at := range rooms[:min(len(rooms), max(need.MaxNodes, 1))] {
		r := &v.Rooms[at]
		fits, _ := match.Fits(r)
		s.Allocations = append(s.Allocations, place.Allocation{
			Node: r.Node.ID, GPUs: fleet.LowestGPUs(fits, gpus), Share: need.Share,
		})

		if g := r.Node.Inventory.GPUs; len(g) > 0 && gpus > 0 {
			words = ": " + part + humanize.GPUs(gpus, g[0].Model, g[0].Memory)
		}
	}

	where := string(s.Allocations[0].Node)
	if more := len(s.Allocations) - 1; more > 0 {
		where = fmt.Sprintf("%s and %d more", where, more)
	}

	s.Reason = where + " (on-demand, provisioned for this job)" + words

	return s, true
}

// plan makes a plan around what is kept: the policy sees the kept nodes as closed, the jobs
// that start there not at all, jobs that may not spend on nodes as ones that avoid the
// provisioned ones, and jobs with a range of GPUs as ones that ask for no more than their quotas
// leave.
func (k *kept) plan(v *place.View, policy func(*place.View) place.Plan) place.Plan {
	bars := barredNodes(v)
	caps := cappedNeeds(v)
	if len(k.rooms) == 0 && bars == "" && caps == nil {
		return policy(v)
	}

	c := v.Clone()
	for _, at := range k.rooms {
		c.Rooms[at].Open = false
	}

	starts := map[id.Job]bool{}
	for _, s := range k.starts {
		starts[s.Item.Job] = true
	}

	// restricted returns what a job may have of what it needs.
	restricted := func(it *queue.Item) fleet.Need {
		need := it.Shape.Need
		if capped, ok := caps[it.Job]; ok {
			need = capped
		}

		if bars != "" && v.Allow(it).NoProvisioning {
			need.Avoid += bars
		}

		return need
	}

	for _, it := range c.Queue.Items() {
		need := restricted(it)

		switch {
		case starts[it.Job]:
			c.Queue.Remove(it)
		case need != it.Shape.Need:
			c.Queue.Remove(it)
			c.Queue.Add(it, need)
		}
	}

	for _, r := range c.Running {
		if need := restricted(r.Item); need != r.Shape.Need {
			r.Shape = c.Queue.ShapeOf(need)
		}
	}

	plan := bind(v, policy(c))
	plan.Starts = append(plan.Starts, k.starts...)

	return plan
}

// cappedNeeds returns the needs of the jobs with a range of GPUs or nodes of which their quotas do
// not leave the whole, each with as much of it as they do; nil if there are none. What is left
// goes to one running job after the other, because two that grow would exceed it together; jobs
// that start are cut down when they do.
func cappedNeeds(v *place.View) map[id.Job]fleet.Need {
	if v.Limits == nil {
		return nil
	}

	var caps map[id.Job]fleet.Need
	add := func(it *queue.Item, need fleet.Need) {
		if need == it.Shape.Need {
			return
		}

		if caps == nil {
			caps = map[id.Job]fleet.Need{}
		}

		caps[it.Job] = need
	}

	for _, it := range v.Queue.Stays {
		add(it, place.Capped(it.Shape.Need, v.Allow(it).Ceiling))
	}

	claims := place.NewClaims(v)
	for _, r := range v.Running {
		left := claims.Allow(r.Item).Ceiling
		if left == tenant.NoLimit {
			continue
		}

		need := place.Capped(r.Shape.Need, r.GPUs+left)
		need.MaxNodes = max(need.MaxNodes, len(r.Allocations))
		for _, a := range r.Allocations { // it keeps what it has
			need.MaxGPUs = max(need.MaxGPUs, bits.OnesCount64(a.GPUs))
		}

		add(r.Item, need)
		claims.Start(r.Item, min(max(need.MaxGPUs*need.MaxNodes-r.GPUs, 0), left))
	}

	return caps
}

// barredNodes lists the provisioned nodes in the form of fleet.Need.Avoid, "" if there are none
// or every payer may spend on them.
func barredNodes(v *place.View) string {
	if v.Limits == nil {
		return ""
	}

	barred := false
	for _, p := range v.Limits.Payers {
		barred = barred || p.Allowance.NoProvisioning
	}

	for _, a := range v.Limits.Jobs {
		barred = barred || a.NoProvisioning
	}

	if !barred {
		return ""
	}

	list := ""
	for i := range v.Rooms {
		if v.Rooms[i].Node.Class == fleet.OnDemand {
			list += "|" + string(v.Rooms[i].Node.ID) + "|"
		}
	}

	return list
}

// bind replaces the jobs of a clone by those of the view itself.
func bind(v *place.View, plan place.Plan) place.Plan {
	items := make(map[id.Job]*queue.Item, v.Queue.Len())
	for _, it := range v.Queue.Stays {
		items[it.Job] = it
	}

	running := make(map[id.Job]*place.Running, len(v.Running))
	for _, r := range v.Running {
		running[r.Job] = r
	}

	for i := range plan.Stops {
		plan.Stops[i].Running = running[plan.Stops[i].Running.Job]
	}

	for i := range plan.Starts {
		name := plan.Starts[i].Item.Job
		if it, queued := items[name]; queued {
			plan.Starts[i].Item = it
		} else {
			plan.Starts[i].Item = running[name].Item
		}
	}

	for i := range plan.Provisions {
		plan.Provisions[i].Item = items[plan.Provisions[i].Item.Job]
	}

	for i := range plan.Deferrals {
		plan.Deferrals[i].Item = items[plan.Deferrals[i].Item.Job]
	}

	return plan
}
