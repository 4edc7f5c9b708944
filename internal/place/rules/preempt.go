package rules

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
)

// leastRun is how long a job must have run before it is stopped for another's sake.
const leastRun = 10 * time.Minute

// victim is a running job that could make room, and what stopping it costs.
type victim struct {
	running *place.Running
	gpus    uint64
	loss    float64 // money: work that is lost, its start, and its time at what that is worth
	next    int32   // of the same host, one more than its place
}

// hurried reports whether a job is time-sensitive.
func hurried(w *wait) bool { return w.it.Spec.Objective == job.ObjectiveTime }

// lends reports whether a job's owner has a claim on what others have borrowed: there
// are limits, and the owner is within them.
func (e *engine) lends(w *wait) bool { return e.view.Borrows != nil && !e.view.Borrows(w.it) }

// borrowed reports whether a running job is of someone who has more than their limit.
func (e *engine) borrowed(r *place.Running) bool {
	return e.view.Borrows != nil && e.view.Borrows(r.Item)
}

// preempt returns a way to start a job now on nodes that others give up, if that saves
// more than it costs, with the stops written down: a time-sensitive one on those of
// cost-sensitive ones, and anyone's on those of people who have borrowed them. Nil if not.
func (e *engine) preempt(w *wait, waits *option) *option {
	if !e.cfg.Preempt || w.it.Spec == nil || !hurried(w) && !e.lends(w) || w.it.Shape.Need.Nodes > 1 || w.it.Shape.Need.GPUs == 0 {
		return nil
	}
	gain := w.value * waits.wait.Hours()
	s := e.shapeOf(w)
	var best option
	var from *host
	least := gain
	for i, h := range e.hostsOf(s) {
		if e.hostVisits++; h.least > least || i == maxHosts || e.spent() {
			break // none of the others costs less
		}
		if !h.most.Holds(s.Takes) || e.timeline.Reserved(h.room) {
			continue
		}
		o := e.there(w, s, h)
		if o.score >= waits.score { // whatever it costs to stop someone
			continue
		}
		loss, count, ok := e.victims(w, h, s.Match, nil)
		if !ok {
			continue
		}
		loss += float64(count) * e.thrift * o.runs.Hours() // so much later they are done
		if loss > least || loss == least && (from == nil || h.room > from.room) {
			continue
		}
		if o.score+loss < waits.score {
			least, best, from = loss, *o, h
		}
	}
	if from == nil {
		return nil
	}
	best.rooms = []int32{from.room}
	var taken []*victim
	e.victims(w, from, s.Match, func(v *victim) { taken = append(taken, v) })
	for _, v := range taken {
		e.stop(w, from.room, v, gain)
		best.stops = append(best.stops, v.running)
	}
	return &best
}

// there is what it costs to run a job in a host, were it empty. In rooms of one stock
// that is the same, unless rent is paid for them or data are brought there.
func (e *engine) there(w *wait, s *shape, h *host) *option {
	if len(e.away) == 0 {
		e.away = make([]away, len(e.timeline.Pools()))
	}
	x := &e.away[h.stock.Index]
	if x.of == w && e.costs.of(h.stock).rent == 0 && !e.stages(w) {
		return &x.option
	}
	x.of, x.room[0] = w, h.room
	x.option = option{stock: h.stock, rooms: x.room[:], gpus: s.Takes.GPUs, runs: e.takes(w, h.stock, s.Takes.GPUs, 1, s)}
	e.price(w, &x.option)
	e.score(w, &x.option)
	return &x.option
}

// away is what it costs a job to run in rooms of a stock in which others run.
type away struct {
	of     *wait
	option option
	room   [1]int32
}

// host is a room in which jobs run that could be stopped.
type host struct {
	room  int32
	first int32 // of them, one more than its place in the list of all, so that 0 is nowhere
	last  int32
	stock *timeline.Pool
	runs  []*victim     // once sorted
	least float64       // of what stopping one of them costs
	most  timeline.Size // that would be free without them
}

// cheapest lists the jobs of a host, the one whose stop costs least for each of its GPUs first.
func (e *engine) cheapest(h *host) []*victim {
	if h.runs == nil {
		for at := h.first; at > 0; at = e.policy.stoppable[at-1].next {
			h.runs = append(h.runs, &e.policy.stoppable[at-1])
		}
		slices.SortStableFunc(h.runs, func(a, b *victim) int {
			return cmp.Compare(a.loss/float64(bits.OnesCount64(a.gpus)), b.loss/float64(bits.OnesCount64(b.gpus)))
		})
	}
	return h.runs
}

// maxHosts bounds how many rooms are compared for one job, the cheapest first.
const maxHosts = 256

// hostsOf lists those of the hosts that could run a shape, no more than are compared.
func (e *engine) hostsOf(s *shape) []*host {
	list, listed := e.suiting[s]
	if !listed {
		list = make([]*host, 0, maxHosts+1)
		for _, h := range e.hosts() {
			if r := &e.view.Rooms[h.room]; r.Open && slices.Contains(s.Able, h.stock) && s.Match.Eligible(r) {
				if list = append(list, h); len(list) > maxHosts {
					break
				}
			}
		}
		e.suiting[s] = list
	}
	return list
}

// hosts lists the rooms in which someone runs who could be stopped, the cheapest first.
// It is made once in a round: what stopping a job costs does not depend on for whom it is.
func (e *engine) hosts() []*host {
	if e.listed {
		return e.hosting
	}
	e.listed = true
	p := e.policy
	list, runs := p.hosts[:0], p.stoppable[:0]
	of := make([]int32, len(e.view.Rooms)) // one more than its place in the list
	e.loosest(func(r *place.Running, at int32, gpus uint64, takes timeline.Size) {
		if of[at] == 0 {
			list = append(list, host{room: at, stock: e.timeline.PoolOf(at), least: math.Inf(1), most: e.timeline.Free(at).Size()})
			of[at] = int32(len(list))
		}
		h := &list[of[at]-1]
		v := victim{running: r, gpus: gpus, loss: e.loss(r, h.stock)}
		runs = append(runs, v)
		nth := int32(len(runs))
		if h.last > 0 {
			runs[h.last-1].next = nth
		} else {
			h.first = nth
		}
		h.last = nth
		h.least = min(h.least, v.loss)
		h.most = h.most.Plus(takes)
	})
	p.hosts, p.stoppable = list, runs
	e.hosting = make([]*host, len(list))
	for i := range list {
		e.hosting[i] = &list[i]
	}
	slices.SortFunc(e.hosting, func(a, b *host) int {
		if a.least != b.least {
			return cmp.Compare(a.least, b.least)
		}
		return cmp.Compare(a.room, b.room)
	})
	return e.hosting
}

// loosest tells the jobs that could be stopped for another's sake, with their rooms, by
// order of submission. Where nobody has borrowed anything they are among the cheap ones.
func (e *engine) loosest(tell func(r *place.Running, at int32, gpus uint64, takes timeline.Size)) {
	if e.view.Borrows != nil {
		for _, r := range e.view.Running {
			if e.loose(r) && e.settled(r) {
				if at, found := e.timeline.Find(r.Seats[0].Node); found {
					tell(r, at, r.Seats[0].GPUs, held(r))
				}
			}
		}
		return
	}
	for i := range e.line.cheap {
		c := &e.line.cheap[i]
		if c.item != c.Item { // what is known of it may be elsewhere now
			c.item, c.outlook, c.takes, c.gpus = c.Item, c.Outlook, held(c.Running), c.Seats[0].GPUs
		}
		if c.Stopping || !c.outlook.Resumes || !e.settled(c.Running) {
			continue
		}
		if c.serial != e.timeline.Version() {
			at, found := e.timeline.Find(c.Seats[0].Node)
			if c.serial, c.room = e.timeline.Version(), at; !found {
				c.room = -1
			}
		}
		if c.room >= 0 {
			tell(c.Running, c.room, c.gpus, c.takes)
		}
	}
}

// held is what a job of one node holds of it.
func held(r *place.Running) timeline.Size {
	return timeline.Size{GPUs: bits.OnesCount64(r.Seats[0].GPUs), CPUs: r.Shape.Need.CPUs, Memory: r.Shape.Need.Memory}
}

// loose reports whether a job may be stopped for another's sake once it has run for a
// while: it is cost-sensitive, or has borrowed what it holds, goes on from where it was,
// and is on one node.
func (e *engine) loose(r *place.Running) bool {
	return r.Spec != nil && single(r) && !r.Stopping && r.Outlook.Resumes && (r.Spec.Objective == job.ObjectiveCost || e.borrowed(r))
}

// settled reports whether a job has run for a while. One that has not is looked at again then.
func (e *engine) settled(r *place.Running) bool {
	if r.Began.IsZero() {
		return false
	}
	if e.view.Now.Sub(r.Began) < leastRun {
		e.ask(r.Began.Add(leastRun))
		return false
	}
	return true
}

// mayStop reports whether one job may be stopped for another's sake: a cost-sensitive one for a
// time-sensitive one, and a borrower's for someone within their limit.
func (e *engine) mayStop(w *wait, r *place.Running) bool {
	return hurried(w) && r.Spec.Objective == job.ObjectiveCost || e.lends(w) && e.borrowed(r)
}

// victims tells the running jobs of a room whose stop costs least until a job fits
// there, and returns what that costs and how many they are. It is not ok if it never
// does. No job is stopped for one of lower priority.
func (e *engine) victims(w *wait, h *host, m *fleet.Matcher, tell func(*victim)) (loss float64, count int, ok bool) {
	o := e.timeline.Free(h.room)
	wanted := m.Wanted(&e.view.Rooms[h.room])
	need, gpus := timeline.SizeOf(&m.Need), o.GPUs&wanted
	free := timeline.Size{GPUs: bits.OnesCount64(gpus), CPUs: o.CPUs, Memory: o.Memory}
	for _, v := range e.cheapest(h) {
		if free.Holds(need) {
			break
		}
		if v.gpus&wanted == 0 || v.running.Priority > w.it.Priority || e.timeline.Vacated(v.running.Job) || !e.mayStop(w, v.running) {
			continue
		}
		gpus |= v.gpus & wanted
		its := &v.running.Shape.Need
		free = timeline.Size{GPUs: bits.OnesCount64(gpus), CPUs: free.CPUs + its.CPUs, Memory: free.Memory + its.Memory}
		loss += v.loss
		count++
		if tell != nil {
			tell(v)
		}
	}
	return loss, count, count > 0 && free.Holds(need)
}

// loss returns what stopping a job costs whoever takes its place: what it has done
// since it last saved itself, if it does not save itself when told to, and its start.
func (e *engine) loss(r *place.Running, st *timeline.Pool) float64 {
	lost := time.Duration(0)
	if s := r.Outlook.Speed; s != nil {
		lost = time.Duration(s.Save) + time.Duration(s.Start)
	}
	if every := r.Outlook.Every; every > 0 {
		lost += e.view.Now.Sub(r.Began) % every
	}
	hours := lost.Hours()
	rates := e.costs.of(st)
	return hours*float64(r.GPUs)*(rates.shown+rates.energy) + hours*e.thrift + float64(r.Outlook.Stops)*0.01
}

// stop takes a job off its nodes.
func (e *engine) stop(w *wait, at int32, v *victim, gain float64) {
	e.timeline.Vacate(at, v.running.Job, v.gpus, &v.running.Shape.Need)
	e.freed++
	e.plan.Stops = append(e.plan.Stops, place.Stop{Running: v.running, Reason: e.whyStop(w, v, gain)})
}
