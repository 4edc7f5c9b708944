package rules

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// settled is how long a job must have run before it is stopped for another's sake.
const settled = 10 * time.Minute

// victim is a running job that could make room, and what stopping it costs.
type victim struct {
	running *place.Running
	gpus    uint64
	loss    float64 // money: work that is lost, its start, and its time at what that is worth
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
	s := e.shapeOf(w.it.Shape)
	var best option
	var from *host
	least := gain
	for i, h := range e.hostsOf(s) {
		if e.visits++; h.least > least || i == maxHosts || e.spent() {
			break // none of the others costs less
		}
		if e.booked[h.room] {
			continue
		}
		loss, count, ok := e.victims(w, h, s.match, nil)
		if !ok {
			continue
		}
		st := e.stocks[e.of[h.room]]
		runs := e.takes(w, st, s.match.Need.GPUs, 1, s)
		loss += float64(count) * e.cfg.Value[job.ObjectiveCost] * runs.Hours() // so much later they are done
		if loss > least || loss == least && (from == nil || h.room > from.room) {
			continue
		}
		o := option{stock: st, rooms: []int32{h.room}, gpus: s.match.Need.GPUs, runs: runs}
		o = e.price(w, &o)
		e.score(w, &o)
		if o.score+loss < waits.score {
			least, best, from = loss, o, h
		}
	}
	if from == nil {
		return nil
	}
	var taken []*victim
	e.victims(w, from, s.match, func(v *victim) { taken = append(taken, v) })
	for _, v := range taken {
		e.stop(w, from.room, v, gain)
		best.stops = append(best.stops, v.running)
	}
	return &best
}

// host is a room in which jobs run that could be stopped, the one whose stop costs
// least for each of its GPUs first.
type host struct {
	room  int32
	runs  []victim
	least float64 // of what stopping one of them costs
}

// maxHosts bounds how many rooms are compared for one job, the cheapest first.
const maxHosts = 256

// hostsOf lists those of the hosts that could run a shape.
func (e *engine) hostsOf(s *shape) []*host {
	if !s.listed {
		s.listed = true
		for _, h := range e.hosts() {
			if r := &e.view.Rooms[h.room]; r.Open && s.match.Eligible(r) {
				s.hosts = append(s.hosts, h)
			}
		}
	}
	return s.hosts
}

// hosts lists the rooms in which someone runs who could be stopped, the cheapest first.
// It is made once in a round: what stopping a job costs does not depend on for whom it is.
func (e *engine) hosts() []*host {
	if e.listed {
		return e.hosting
	}
	e.listed = true
	of := map[int32]*host{}
	for _, r := range e.view.Running {
		if !e.stoppable(r) {
			if e.loose(r) && !r.Began.IsZero() {
				e.ask(r.Began.Add(settled))
			}
			continue
		}
		at, found := slices.BinarySearchFunc(e.view.Rooms, r.Seats[0].Node, func(o fleet.Room, n id.Node) int { return cmp.Compare(o.Node.ID, n) })
		if !found {
			continue
		}
		h := of[int32(at)]
		if h == nil {
			h = &host{room: int32(at)}
			of[h.room] = h
			e.hosting = append(e.hosting, h)
		}
		h.runs = append(h.runs, victim{r, r.Seats[0].GPUs, e.loss(r, e.stocks[e.of[at]])})
	}
	for _, h := range e.hosting {
		h.least = slices.MinFunc(h.runs, func(a, b victim) int { return cmp.Compare(a.loss, b.loss) }).loss
		slices.SortStableFunc(h.runs, func(a, b victim) int {
			return cmp.Compare(a.loss/float64(bits.OnesCount64(a.gpus)), b.loss/float64(bits.OnesCount64(b.gpus)))
		})
	}
	slices.SortFunc(e.hosting, func(a, b *host) int { return cmp.Or(cmp.Compare(a.least, b.least), cmp.Compare(a.room, b.room)) })
	return e.hosting
}

// mayStop reports whether one job may be stopped for another's sake: a cost-sensitive one for a
// time-sensitive one, and a borrower's for someone within their limit.
func (e *engine) mayStop(w *wait, r *place.Running) bool {
	return hurried(w) && r.Spec.Objective == job.ObjectiveCost || e.lends(w) && e.borrowed(r)
}

// stoppable reports whether a job may be stopped for another's sake: it is
// cost-sensitive, or has borrowed what it holds, goes on from where it was, has run
// for a while, and is on one node.
func (e *engine) stoppable(r *place.Running) bool {
	return e.loose(r) && !r.Began.IsZero() && e.view.Now.Sub(r.Began) >= settled
}

// loose is the same whether or not it has run for a while.
func (e *engine) loose(r *place.Running) bool {
	return r.Spec != nil && (r.Spec.Objective == job.ObjectiveCost || e.borrowed(r)) && r.Outlook.Resumes && !r.Stopping && !e.stops[r.Job] &&
		len(r.Seats) == 1 && r.Seats[0].Share == 0
}

// victims tells the running jobs of a room whose stop costs least until a job fits
// there, and returns what that costs and how many they are. It is not ok if it never
// does. No job is stopped for one of lower priority.
func (e *engine) victims(w *wait, h *host, m *fleet.Matcher, tell func(*victim)) (loss float64, count int, ok bool) {
	o := &e.open[h.room]
	wanted := m.Wanted(&e.view.Rooms[h.room])
	need, gpus := units(&m.Need), o.gpus&wanted
	free := size{bits.OnesCount64(gpus), o.cpus, o.memory}
	for i := range h.runs {
		if free.holds(need) {
			break
		}
		v := &h.runs[i]
		if v.gpus&wanted == 0 || v.running.Priority > w.it.Priority || e.stops[v.running.Job] || !e.mayStop(w, v.running) {
			continue
		}
		gpus |= v.gpus & wanted
		its := &v.running.Shape.Need
		free = size{bits.OnesCount64(gpus), free.cpus + its.CPUs, free.memory + its.Memory}
		loss += v.loss
		count++
		if tell != nil {
			tell(v)
		}
	}
	return loss, count, count > 0 && free.holds(need)
}

// loss returns what stopping a job costs whoever takes its place: what it has done
// since it last saved itself, if it does not save itself when told to, and its start.
func (e *engine) loss(r *place.Running, st *stock) float64 {
	lost := time.Duration(0)
	if s := r.Outlook.Speed; s != nil {
		lost = time.Duration(s.Save) + time.Duration(s.Start)
	}
	if every := r.Outlook.Every; every > 0 {
		lost += e.view.Now.Sub(r.Began) % every
	}
	hours := lost.Hours()
	return hours*float64(r.GPUs)*(st.shown+st.energy) + hours*e.cfg.Value[job.ObjectiveCost] + float64(r.Outlook.Stops)*0.01
}

// stop takes a job off its nodes.
func (e *engine) stop(w *wait, at int32, v *victim, gain float64) {
	e.stops[v.running.Job] = true
	need := &v.running.Shape.Need
	o := &e.open[at]
	o.gpus |= v.gpus & e.view.Rooms[at].Sound
	o.cpus += need.CPUs
	o.memory += need.Memory
	delete(e.kept, at)
	e.changed(at)
	for _, s := range e.shapes {
		s.closed = 0
	}
	e.plan.Stops = append(e.plan.Stops, place.Stop{Running: v.running, Reason: e.whyStop(w, v, gain)})
}
