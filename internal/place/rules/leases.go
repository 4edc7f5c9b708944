package rules

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
)

// dedicateLeased keeps provisioned nodes for the jobs that they were provisioned for, as
// long as those are queued.
func (e *engine) dedicateLeased() {
	before := e.backlog.leased
	for _, j := range before {
		clear(j.leases)
		j.leases, j.hasNode = j.leases[:0], false
	}

	e.backlog.leased = nil
	dedicated := false

	for _, l := range e.view.Leases {
		if l.Job == "" || !l.Live() {
			continue
		}

		j := e.backlog.jobs[l.Job]
		if j != nil {
			if len(j.leases) == 0 {
				e.backlog.leased = append(e.backlog.leased, j)
				if e.backlog.parts > 0 {
					e.parts.Add(j.item, &l.Offer)
				}
			}

			j.leases = append(j.leases, l)
		}

		if l.Node == "" || j == nil && !dedicated {
			continue
		}

		at, found := e.timeline.Find(l.Node)
		switch {
		case !found:
		case j == nil: // the newest lease of a node counts
			e.timeline.Undedicate(at)
		case e.view.Rooms[at].Node.Lease != "" && len(e.view.Rooms[at].Holds) == 0:
			e.timeline.Dedicate(at, l.Job)
			j.hasNode, dedicated = true, true
		}
	}

	e.backlog.separateLeased(before, e.view.Now)
}

// separateLeased keeps the jobs for which nodes are being provisioned apart from others like them: they may start where
// others would have nodes provisioned. One whose node is ready has a lane of its own: it may start there although
// others cannot.
func (l *backlog) separateLeased(before []*queuedJob, now time.Time) {
	for _, list := range [2][]*queuedJob{before, l.leased} {
		for _, j := range list {
			if x := j.lane; x != nil && (x.leased != (len(j.leases) > 0) || (x.alone != nil) != j.hasNode) {
				l.move(j, now)
			}
		}
	}
}

// awaitsNodes reports whether nodes that are being provisioned for a job have not joined yet.
func (j *queuedJob) awaitsNodes() bool {
	return slices.ContainsFunc(j.leases, func(l *fleet.Lease) bool { return l.Node == "" })
}

// undedicate lets others have what is left of the nodes that were provisioned for a job, now
// that it starts. Jobs that could not use them before are considered in another round.
func (e *engine) undedicate(j *queuedJob) {
	if len(j.leases) == 0 {
		return
	}

	for _, at := range e.timeline.DedicatedTo(j.item.Job) {
		e.timeline.Undedicate(at)
		e.freed++
		e.wakeAt(e.view.Now.Add(time.Second))
	}
}

// fitNow completes an option with rooms of its pool on which a job can start now, if there are any: those that were
// provisioned for it first, then where it ran before, because its checkpoints are there.
func (e *engine) fitNow(j *queuedJob, s *shape, o *option) {
	q := e.request(j, s, o.pool, o.runs)
	if s.Match.Need.Nodes == 1 {
		for _, l := range j.leases {
			if at, ok := e.timeline.FitsOn(q, o.pool, l.Node); ok {
				o.rooms = []int32{at}
				return
			}
		}

		if at, ok := e.timeline.FitsOn(q, o.pool, j.item.Prefer); ok {
			o.rooms = []int32{at}
			return
		}

		if e.backlog.parts > 0 {
			e.fitBesideParts(q, o)
			return
		}
	}

	o.rooms = e.timeline.FitNow(q, o.pool)
}
