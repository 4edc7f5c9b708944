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
	"trainyard/internal/tenant"
)

// engine makes one plan. What it takes from earlier rounds is in the floor and in the line.
type engine struct {
	policy  *Policy
	cfg     *Config
	view    *place.View
	now     time.Duration // as the floor counts
	soon    time.Time     // in a second
	round   uint64
	floor   *floor
	line    *line
	thrift  float64          // what an hour of a cost-sensitive job is worth
	allow   tenant.Allowance // where there are no limits
	mine    map[int32]id.Job // hired rooms, by the job they were hired for, while it waits
	visits  int
	plan    place.Plan
	stops   map[id.Job]bool
	freed   int     // grows whenever the plan makes something free
	shifts  int     // grows whenever a room is entered elsewhere
	hosting []*host // rooms with jobs that could be stopped, once listed
	listed  bool
	suiting map[*shape][]*host // those of them that could run a shape
	away    []away             // what it would cost the job at hand to run in rooms of others, by stock
}

// free is what a room has left in this plan.
type free struct {
	gpus   uint64
	cpus   job.CPUs
	memory job.Bytes
}

func newEngine(p *Policy, v *place.View) *engine {
	p.rounds++
	e := &engine{
		policy: p, cfg: &p.cfg, view: v, now: clockOf(v.Now), soon: v.Now.Add(time.Second), round: p.rounds, floor: &p.floor, line: &p.line,
		thrift: p.cfg.Value[job.ObjectiveCost], allow: tenant.Unlimited(), mine: map[int32]id.Job{}, stops: map[id.Job]bool{}, suiting: map[*shape][]*host{},
	}
	e.floor.update(e)
	e.takeOffers()
	e.line.update(e)
	e.reserveHired()
	return e
}

// reserveHired keeps hired nodes for the jobs that they were hired for.
func (e *engine) reserveHired() {
	for _, w := range e.line.hired {
		clear(w.hired)
		w.hired, w.owns = w.hired[:0], false
	}
	clear(e.line.hired)
	e.line.hired = e.line.hired[:0]
	for _, l := range e.view.Leases {
		if l.Job == "" || !l.Live() {
			continue
		}
		w := e.line.jobs[l.Job]
		if w != nil {
			if len(w.hired) == 0 {
				e.line.hired = append(e.line.hired, w)
			}
			w.hired = append(w.hired, l)
		}
		if l.Node == "" || w == nil && len(e.mine) == 0 {
			continue
		}
		at, found := e.find(l.Node)
		switch {
		case !found:
		case w == nil: // the newest lease of a node counts
			delete(e.mine, at)
		case e.view.Rooms[at].Node.Lease != "" && len(e.view.Rooms[at].Holds) == 0:
			e.mine[at], w.owns = l.Job, true
		}
	}
}

// letGo lets others have what is left of the nodes that were hired for a job, now that
// it starts. Those who were passed over because of it are looked at again.
func (e *engine) letGo(w *wait) {
	if len(w.hired) == 0 {
		return
	}
	for at, j := range e.mine {
		if j == w.it.Job {
			delete(e.mine, at)
			e.freed++
			e.ask(e.view.Now.Add(time.Second))
		}
	}
}

// find returns the room of a node.
func (e *engine) find(n id.Node) (int32, bool) {
	at, found := slices.BinarySearchFunc(e.view.Rooms, n, func(r fleet.Room, n id.Node) int { return cmp.Compare(r.Node.ID, n) })
	return int32(at), found
}

// stockOf returns the stock of a room.
func (e *engine) stockOf(at int32) *stock { return e.floor.stocks[e.floor.spots[at].stock] }

// sheet returns what is planned in a room, to be written on.
func (e *engine) sheet(at int32) *sheet {
	s := e.floor.sheets[at]
	if s == nil {
		n := &e.view.Rooms[at].Node.Inventory
		s = &sheet{room: at, most: size{bits.OnesCount64(e.floor.spots[at].sound), n.CPUs, n.Memory}}
		e.floor.sheets[at] = s
		e.floor.used = append(e.floor.used, at)
	}
	return s
}

// planned reports whether this plan changes something in a room.
func (e *engine) planned(at int32) bool { s := e.floor.sheets[at]; return s != nil && s.planned }

// booked reports whether a room is kept for someone from some time on.
func (e *engine) booked(at int32) bool { s := e.floor.sheets[at]; return s != nil && s.booked }

// taken reports whether a room was hired for another job.
func (e *engine) taken(w *wait, at int32) bool {
	if len(e.mine) == 0 {
		return false
	}
	j, hired := e.mine[at]
	return hired && j != w.it.Job
}
