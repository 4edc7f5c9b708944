package rules

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/tenant"
)

// engine makes one plan. What it takes from earlier rounds is in the floor and in the line.
type engine struct {
	policy     *Policy
	cfg        *Config
	view       *place.View
	soon       time.Time // in a second
	round      uint64
	timeline   *timeline.Timeline
	costs      *costModel
	line       *line
	thrift     float64          // what an hour of a cost-sensitive job is worth
	allow      tenant.Allowance // where there are no limits
	unlimited  bool             // Options: every room is worth a look for the one job
	hostVisits int              // hosts that were looked at for preemption
	plan       place.Plan
	req        timeline.Request // of the search at hand
	freed      int              // grows whenever the plan makes something free
	hosting    []*host          // rooms with jobs that could be stopped, once listed
	listed     bool
	suiting    map[*shape][]*host // those of them that could run a shape
	away       []away             // what it would cost the job at hand to run in rooms of others, by stock
}

func newEngine(p *Policy, v *place.View) *engine {
	p.rounds++
	e := &engine{
		policy: p, cfg: &p.cfg, view: v, soon: v.Now.Add(time.Second), round: p.rounds, timeline: &p.timeline, costs: &p.costs, line: &p.line,
		thrift: p.cfg.Value[job.ObjectiveCost], allow: tenant.Unlimited(), suiting: map[*shape][]*host{},
	}
	e.timeline.Update(timeline.Snapshot{Now: v.Now, Rooms: v.Rooms, Past: v.Past, Guess: p.cfg.Guess})
	e.costs.update(e.timeline, v)
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
	dedicated := false
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
		if l.Node == "" || w == nil && !dedicated {
			continue
		}
		at, found := e.timeline.Find(l.Node)
		switch {
		case !found:
		case w == nil: // the newest lease of a node counts
			e.timeline.Undedicate(at)
		case e.view.Rooms[at].Node.Lease != "" && len(e.view.Rooms[at].Holds) == 0:
			e.timeline.Dedicate(at, l.Job)
			w.owns, dedicated = true, true
		}
	}
}

// letGo lets others have what is left of the nodes that were hired for a job, now that
// it starts. Those who were passed over because of it are looked at again.
func (e *engine) letGo(w *wait) {
	if len(w.hired) == 0 {
		return
	}
	for _, at := range e.timeline.DedicatedTo(w.it.Job) {
		e.timeline.Undedicate(at)
		e.freed++
		e.ask(e.view.Now.Add(time.Second))
	}
}
