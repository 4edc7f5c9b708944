package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster/timers"
)

// A plan that stops a job and starts it again moves it. That is a transaction over two sets of nodes:
//
//  1. If the program saves on request, it is asked to, and continues. The GPUs to which the job moves are booked. Until
//     a checkpoint of the run is in the catalogue, the move can be abandoned and has cost nothing.
//  2. The run is stopped. It saves once more, which uploads only what has changed, and ends when that is safe.
//  3. The next run is ordered and restores the checkpoint. On-demand nodes that the job has left are kept until it
//     runs.
//
// After the second step the job starts from its last checkpoint whatever happens, there or elsewhere.

// move is a move in its first step.
type move struct {
	stop     place.Stop
	newest   int           // number of the newest checkpoint before the job was asked to save
	deadline *timers.Timer // when it is abandoned
}

// savesOnRequest reports whether the program of a job is known to save a checkpoint when it is asked to: it saves them
// with the SDK.
func (y *Yard) savesOnRequest(r *jobRecord) bool {
	newest := y.checkpoints.Newest(r.ID)

	return newest != nil && newest.Found == checkpoint.ByMarker
}

// checkpointStored is called for each checkpoint of a job's newest run when all of it is in the catalogue.
func (y *Yard) checkpointStored(r *jobRecord, c *checkpoint.Checkpoint) {
	if r.run == nil || r.run.ID != c.Run {
		return
	}

	if r.running.Stays {
		r.running.Stays = false
		y.planDue = true
	}

	if m := r.run.move; m != nil && c.Number > m.newest {
		y.stopForMove(r)
	}

	if m := r.run.reclaim; m != nil && c.Number > m.newest {
		y.evict(r.run, m.node.ID, theYard, m.reason)
	}
}

// prepareMove asks a job that a plan moves to save a checkpoint before it is stopped.
func (y *Yard) prepareMove(r *jobRecord, s *place.Stop, next *place.Start) {
	run := r.run
	wait := y.cfg.SaveWait
	m := &move{stop: *s, newest: y.checkpoints.Newest(r.ID).Number}
	m.deadline = y.after(y.now.Add(wait), func() {
		if run.move == m {
			y.abandonMove(r, fmt.Sprintf("no checkpoint was stored within %s", job.Duration(wait)))
			y.letStay(r, wait)
		}
	})

	run.move = m
	r.running.Stopping = true
	to := startNodes(next.Allocations)
	y.orders.SetMove(run.ID, to)
	y.requestSave(r, theYard, fmt.Sprintf("asked to save a checkpoint before it moves to %s: %s", to, s.Reason))
}

// stopForMove stops a job whose checkpoint is stored, so that it moves.
func (y *Yard) stopForMove(r *jobRecord) {
	m, next := r.run.move, &r.promise.start
	y.endPreparation(r.run)
	y.decideStop(r, &m.stop, next)
	y.stopPlanned(r, &m.stop)

	if next.Counterfactual != nil {
		y.decide(r, next.Counterfactual, decided{awaited: true})
		next.Counterfactual = nil
	}
}

// abandonMove lets a job stay where it runs. Nothing was done to it but that it was asked to save.
func (y *Yard) abandonMove(r *jobRecord, why string) {
	to := startNodes(r.promise.start.Allocations)
	y.endPreparation(r.run)
	y.unpromise(r)
	r.running.Stopping = r.run.reclaim != nil
	y.planDue = true
	y.promisesDue = len(y.promises) > 0 // some may have waited for its GPUs
	y.moveAbandoned(r, to, why)
}

// moveAbandoned explains an abandoned move.
func (y *Yard) moveAbandoned(r *jobRecord, to, why string) {
	y.event(Event{
		Kind:   "run.move_abandoned",
		Actor:  theYard,
		Owner:  r.Owner,
		Job:    r.ID,
		Run:    r.run.ID,
		Node:   r.run.Ranks[0].Node,
		Reason: fmt.Sprintf("move to %s abandoned: %s; it continues on %s", to, why, nodesOf(r.run)),
	})
}

// letStay lets no plan stop a job for a while, or until a checkpoint of it is stored.
func (y *Yard) letStay(r *jobRecord, d time.Duration) {
	rn := r.running
	rn.Stays = true
	y.after(y.now.Add(d), func() {
		y.planDue = y.planDue || rn.Stays
		rn.Stays = false
	})
}

// endPreparation ends the first step of a move, if a run is in it.
func (y *Yard) endPreparation(run *runRecord) {
	if run.move == nil {
		return
	}

	y.timers.Stop(run.move.deadline)
	run.move = nil
	y.orders.SetMove(run.ID, "")
}

// loadMove explains what became of a move that was in its first step when the server ended. Promises are not stored, so
// it is abandoned.
func (y *Yard) loadMove(r *jobRecord) {
	o := y.orders.Get(r.run.ID, 0)
	if o == nil || o.Move == "" || r.run.Stop != job.StopNone {
		return
	}

	run, to := r.run, o.Move
	y.after(y.now, func() {
		if r.run == run && run.move == nil && run.Stop == job.StopNone {
			y.orders.SetMove(run.ID, "")
			y.moveAbandoned(r, to, "the server was restarted")
		}
	})
}

// unavailable says why a promised start cannot take place.
func (y *Yard) unavailable(p *promise) string {
	for _, a := range p.start.Allocations {
		n, ok := y.nodes.Get(a.Node)
		if !ok {
			return fmt.Sprintf("node %s is gone", a.Node)
		}

		if room, open := y.nodes.Rooms.Get(a.Node); !open || !room.Open {
			state := string(n.State)
			if n.Cordoned {
				state = "cordoned"
			}

			return fmt.Sprintf("node %s is %s", a.Node, state)
		}
	}

	return "its GPUs there are no longer available"
}

// keepOrigin keeps an on-demand node that a job leaves when it moves.
func (y *Yard) keepOrigin(n id.Node, r *jobRecord) {
	if y.origins == nil {
		y.origins = map[id.Node]id.Job{}
	}

	y.origins[n] = r.ID
}

// isOrigin reports whether a node is kept for a job that has left it and does not run elsewhere yet.
func (y *Yard) isOrigin(n id.Node) bool {
	r, ok := y.jobs[y.origins[n]]

	return ok && (r.promise != nil || r.run != nil && r.run.Started.IsZero())
}

// releaseOrigins considers the release of nodes that are no longer kept.
func (y *Yard) releaseOrigins() {
	for _, n := range sortedKeys(y.origins) {
		if y.isOrigin(n) {
			continue
		}

		r := y.jobs[y.origins[n]]
		delete(y.origins, n)

		if node, ok := y.nodes.Get(n); ok && r != nil && r.State.Waiting() { // its move has failed, and it may return
			node.Idle = y.now
			y.recheckIdle(node, later(y.now, r.NotBefore).Add(y.cfg.BackoffBase))

			continue
		}

		y.checkIdle(n)
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}

	return a
}

// originsOf lists the nodes that are kept until a job runs.
func (y *Yard) originsOf(j id.Job) []id.Node {
	var list []id.Node
	for _, n := range sortedKeys(y.origins) {
		if y.origins[n] == j {
			list = append(list, n)
		}
	}

	return list
}

// loadOrigins restores which nodes are kept for a run that does not run yet.
func (y *Yard) loadOrigins(r *jobRecord) {
	o := y.orders.Get(r.run.ID, 0)
	if o == nil || !r.run.Started.IsZero() {
		return
	}

	for _, n := range o.Keeps {
		y.keepOrigin(n, r)
	}
}
