package rules

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// minRun is how long a job must have run before it is preempted.
const minRun = 10 * time.Minute

// victim is a running job that could be preempted, and what that costs.
type victim struct {
	running *place.Running
	gpus    uint64
	loss    money.Amount // the work that is lost, the restart, and the job's time at its value
	next    int32        // victim of the same host: its index in the list of all, plus one; 0 for none
}

// lossPerGPU is what each of the GPUs that it holds costs.
func (v *victim) lossPerGPU() money.Amount {
	return v.loss.Times(1 / float64(bits.OnesCount64(v.gpus)))
}

// timeSensitive reports whether a job is time-sensitive.
func timeSensitive(j *queuedJob) bool { return j.item.Spec.Objective == job.ObjectiveTime }

// preempt stops running jobs for a queued one and returns the option to start it in their
// place, if that saves more than it costs compared with waiting until later; otherwise nil.
// A time-sensitive job may preempt cost-sensitive ones, and a job whose owner is within
// their quota those on borrowed GPUs.
func (e *engine) preempt(j *queuedJob, later *option) *option {
	if !e.cfg.Preempt || j.item.Spec == nil || !timeSensitive(j) && !e.lends(j) {
		return nil
	}

	if need := &j.item.Shape.Need; need.Nodes > 1 || need.GPUs == 0 {
		return nil
	}

	gain := j.value.For(later.startsIn)
	s := e.shapeOf(j)
	var best option
	var from *host
	least := gain

	for i, h := range e.hostsOf(s) {
		e.hostVisits++
		if h.leastLoss > least || i == maxHosts || e.spent() {
			break // none of the others costs less
		}
		if !h.capacity.Holds(s.Takes) || e.timeline.Reserved(h.room) {
			continue
		}

		o := e.ifEmpty(j, s, h)
		if o.score >= later.score { // not worth it even if stopping cost nothing
			continue
		}

		loss, count, ok := e.victims(j, h, s.Match, nil)
		if !ok {
			continue
		}

		// The victims are delayed by the run time of the job that takes their place.
		loss += e.costHourValue.Times(float64(count)).For(o.runs)
		if loss > least || loss == least && (from == nil || h.room > from.room) {
			continue
		}

		if o.score+loss < later.score {
			least, best, from = loss, *o, h
		}
	}

	if from == nil {
		return nil
	}

	best.rooms = []int32{from.room}
	var taken []*victim
	e.victims(j, from, s.Match, func(v *victim) { taken = append(taken, v) })

	for _, v := range taken {
		e.stop(j, from.room, v, gain)
		best.stops = append(best.stops, v.running)
	}

	return &best
}

// ifEmpty is what it would cost to run a job on a host if it were empty. That is the same on
// all hosts of a pool, unless rent is paid for them or data must be copied there.
func (e *engine) ifEmpty(j *queuedJob, s *shape, h *host) *option {
	if len(e.emptyHosts) == 0 {
		e.emptyHosts = make([]emptyHost, len(e.timeline.Pools()))
	}

	x := &e.emptyHosts[h.pool.Index]
	if x.job == j && e.costs.of(h.pool).rent == 0 && !e.needsStaging(j) {
		return &x.option
	}

	x.job, x.room[0] = j, h.room
	x.option = option{pool: h.pool, rooms: x.room[:], gpus: s.Takes.GPUs, runs: e.takes(j, h.pool, s.Takes.GPUs, 1, s)}
	e.price(j, &x.option)
	e.score(j, &x.option)

	return &x.option
}

// emptyHost is the option that ifEmpty has computed last for a pool.
type emptyHost struct {
	job    *queuedJob
	option option
	room   [1]int32
}

// host is a room in which jobs run that could be preempted. Its victims are a linked list in
// the list of all, until they are sorted.
type host struct {
	room      int32
	first     int32 // victim: its index plus one; 0 for none
	last      int32
	pool      *timeline.Pool
	victims   []*victim     // once sorted
	leastLoss money.Amount  // of its victims
	capacity  timeline.Size // free without its victims
}

// cheapest lists the victims of a host, by what stopping them costs for each GPU.
func (e *engine) cheapest(h *host) []*victim {
	if h.victims == nil {
		for at := h.first; at > 0; at = e.policy.scratch.victims[at-1].next {
			h.victims = append(h.victims, &e.policy.scratch.victims[at-1])
		}

		slices.SortStableFunc(h.victims, func(a, b *victim) int {
			return cmp.Compare(a.lossPerGPU(), b.lossPerGPU())
		})
	}

	return h.victims
}

// maxHosts bounds how many rooms are compared for one job, the cheapest first.
const maxHosts = 256

// hostsOf lists those of the hosts that could run a shape, no more than are compared.
func (e *engine) hostsOf(s *shape) []*host {
	list, listed := e.hostsByShape[s]
	if !listed {
		list = make([]*host, 0, maxHosts+1)
		for _, h := range e.hosts() {
			if r := &e.view.Rooms[h.room]; r.Open && slices.Contains(s.Able, h.pool) && s.Match.Eligible(r) {
				list = append(list, h)
				if len(list) > maxHosts {
					break
				}
			}
		}

		e.hostsByShape[s] = list
	}

	return list
}

// hosts lists the rooms in which jobs run that could be preempted, the cheapest first. It is
// made once in a round: what stopping a job costs does not depend on who takes its place.
func (e *engine) hosts() []*host {
	if e.hostsListed {
		return e.hostList
	}

	e.hostsListed = true
	p := e.policy
	list, runs := p.scratch.hosts[:0], p.scratch.victims[:0]
	of := make([]int32, len(e.view.Rooms)) // index in the list plus one
	e.eachStoppable(func(r *place.Running, at int32, gpus uint64, takes timeline.Size) {
		if of[at] == 0 {
			list = append(list, host{room: at, pool: e.timeline.PoolOf(at), leastLoss: money.Amount(math.Inf(1)),
				capacity: e.timeline.Free(at).Size()})
			of[at] = int32(len(list))
		}

		h := &list[of[at]-1]
		v := victim{running: r, gpus: gpus, loss: e.loss(r, h.pool)}
		runs = append(runs, v)
		nth := int32(len(runs))
		if h.last > 0 {
			runs[h.last-1].next = nth
		} else {
			h.first = nth
		}

		h.last = nth
		h.leastLoss = min(h.leastLoss, v.loss)
		h.capacity = h.capacity.Plus(takes)
	})

	p.scratch.hosts, p.scratch.victims = list, runs

	e.hostList = make([]*host, len(list))
	for i := range list {
		e.hostList[i] = &list[i]
	}

	slices.SortFunc(e.hostList, func(a, b *host) int {
		if a.leastLoss != b.leastLoss {
			return cmp.Compare(a.leastLoss, b.leastLoss)
		}

		return cmp.Compare(a.room, b.room)
	})

	return e.hostList
}

// eachStoppable calls visit for the jobs that could be preempted, by order of submission.
// Where there are no quotas, the backlog has listed them.
func (e *engine) eachStoppable(visit func(r *place.Running, at int32, gpus uint64, takes timeline.Size)) {
	if e.anyBorrowed() {
		for _, r := range e.view.Running {
			if e.stoppable(r) && e.settled(r) {
				if at, found := e.timeline.Find(r.Allocations[0].Node); found {
					visit(r, at, r.Allocations[0].GPUs, sizeHeld(r))
				}
			}
		}

		return
	}

	for i := range e.backlog.stoppable {
		c := &e.backlog.stoppable[i]
		if c.item != c.Item { // its item was replaced: read it again
			c.item, c.outlook, c.takes, c.gpus = c.Item, c.Outlook, sizeHeld(c.Running), c.Allocations[0].GPUs
		}

		if c.Stopping || c.Stays || !c.outlook.Resumes || !e.settled(c.Running) {
			continue
		}

		if c.version != e.timeline.Version() {
			at, found := e.timeline.Find(c.Allocations[0].Node)
			c.version, c.room = e.timeline.Version(), at
			if !found {
				c.room = -1
			}
		}

		if c.room >= 0 {
			visit(c.Running, c.room, c.gpus, c.takes)
		}
	}
}

// sizeHeld is what a job of one node holds of it.
func sizeHeld(r *place.Running) timeline.Size {
	return timeline.Size{
		GPUs:   bits.OnesCount64(r.Allocations[0].GPUs),
		CPUs:   r.Shape.Need.CPUs,
		Memory: r.Shape.Need.Memory,
	}
}

// stoppable reports whether a job may be preempted once it has run for a while: it is
// cost-sensitive or on borrowed GPUs, resumes from checkpoints, and is on one node.
func (e *engine) stoppable(r *place.Running) bool {
	return r.Spec != nil && single(r) && !r.Stopping && r.Outlook.Resumes &&
		(r.Spec.Objective == job.ObjectiveCost || e.borrowed(r))
}

// settled reports whether a job has run for long enough to be preempted. If not, another
// round is requested for when it has.
func (e *engine) settled(r *place.Running) bool {
	if r.Began.IsZero() {
		return false
	}

	if e.view.Now.Sub(r.Began) < minRun {
		e.wakeAt(r.Began.Add(minRun))
		return false
	}

	return true
}

// mayStop reports whether a job may be preempted for another: a cost-sensitive one for a
// time-sensitive one, and one on borrowed GPUs for one whose owner is within their quota.
func (e *engine) mayStop(j *queuedJob, r *place.Running) bool {
	return timeSensitive(j) && r.Spec.Objective == job.ObjectiveCost || e.lends(j) && e.borrowed(r)
}

// victims calls take for the running jobs of a host whose preemption costs least until a job
// fits there, and returns what that costs and how many they are. It is not ok if the job
// never fits. No job is preempted for one of lower priority.
func (e *engine) victims(
	j *queuedJob, h *host, m *fleet.Matcher, take func(*victim),
) (loss money.Amount, count int, ok bool) {
	present := e.timeline.Free(h.room)
	usable := m.MatchingGPUs(&e.view.Rooms[h.room])
	need := timeline.SizeOf(&m.Need)
	gpus := present.GPUs & usable
	free := timeline.Size{GPUs: bits.OnesCount64(gpus), CPUs: present.CPUs, Memory: present.Memory}

	for _, v := range e.cheapest(h) {
		if free.Holds(need) {
			break
		}

		if v.gpus&usable == 0 || v.running.Priority > j.item.Priority {
			continue
		}

		if e.timeline.Vacated(v.running.Job) || !e.mayStop(j, v.running) {
			continue
		}

		gpus |= v.gpus & usable
		free.GPUs = bits.OnesCount64(gpus)
		free.CPUs += v.running.Shape.Need.CPUs
		free.Memory += v.running.Shape.Need.Memory

		loss += v.loss
		count++

		if take != nil {
			take(v)
		}
	}

	return loss, count, count > 0 && free.Holds(need)
}
