package yardmaster_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// lease is how long an agent lets its runs go on without an answer from the
// yard. It is shorter than the yard's LostAfter.
const lease = 4 * time.Minute

// agent is the model of a node's agent and of the processes it runs. Its times
// are true times, which clock steps do not touch.
type agent struct {
	node    id.Node
	inv     fleet.Inventory
	foreign []int
	up      bool // can reach the yard
	gone    bool // was told that it is no longer a node
	contact time.Time
	procs   map[string]*proc
	well    map[string]bool // what ended well, by order and UID

	// Its fence, and what it has seen of the yard's history.
	ended  map[string]bool
	newest map[id.Job]int
	seen   yardmaster.Seen
}

// proc is one rank of a run on its node.
type proc struct {
	order   yardmaster.Order
	state   job.RunState
	ready   time.Time // prepared by then
	over    time.Time // ends by itself then
	ends    job.Cause // of this
	corrupt bool      // what it restores
	started time.Time
	ended   time.Time
	stopped bool
	saved   int // the last request to save that it has obeyed
	pause   job.Suspension
	paused  time.Time // since when it is suspended
	rep     yardmaster.RankReport
}

func (p *proc) alive() bool { return p.state == job.RunPreparing || p.state == job.RunRunning }

// end ends a process and fixes what will be reported of it.
func (p *proc) end(at time.Time, cause job.Cause, code int, signalled bool) {
	p.state, p.ended = job.RunEnded, at
	p.rep = yardmaster.RankReport{ExitCode: code, Cause: cause, Signalled: signalled}

	if cause == job.CauseRestoreFailed {
		p.rep.Restore = &job.RestoreFailure{Checkpoint: p.order.Launch.Restore.Checkpoint, Corrupt: p.corrupt}
	}
}

func newAgent(node id.Node, inv fleet.Inventory, now time.Time) *agent {
	return &agent{node: node, inv: inv, up: true, contact: now, procs: map[string]*proc{}, well: map[string]bool{},
		ended: map[string]bool{}, newest: map[id.Job]int{}}
}

// sync takes over what the node shall run: new runs begin, runs that are no
// longer wanted are gone, runs that shall stop begin to. A run that got the id of
// one that is wanted in another history is gone too.
func (a *agent) sync(
	rng *rand.Rand,
	wanted map[string]yardmaster.Order,
	under yardmaster.Incarnation,
	now time.Time,
	calm bool,
) {
	maps.DeleteFunc(a.procs, func(key string, p *proc) bool {
		o, ok := wanted[key]
		gone := !ok || o.Launch.UID != p.order.Launch.UID
		a.ended[key] = a.ended[key] || gone

		return gone
	})

	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		o := wanted[key]
		p, ok := a.procs[key]
		if !ok {
			p = a.refuse(key, o, now)
			if p == nil {
				p = a.begin(rng, o, now, calm)
				a.newest[o.Job] = max(a.newest[o.Job], o.Epoch)
				n, _ := o.Job.Number()
				a.seen = yardmaster.Seen{Number: under.Number, Mark: under.Mark, Job: max(a.seen.Job, n)}
			}

			a.procs[key] = p
		}

		p.order.Stop, p.order.Save, p.order.Suspend = o.Stop, o.Save, o.Suspend
		if o.Stop == job.StopNone || !p.alive() {
			continue
		}

		if o.Stop == job.StopKill || p.started.IsZero() {
			p.end(now, job.CauseCancelled, 137, true)
		} else if !p.stopped { // SIGTERM, and some grace
			p.stopped = true
			p.over = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
	}
}

// refuse is what becomes of an order that the node may not start, nil if it may.
func (a *agent) refuse(key string, o yardmaster.Order, now time.Time) *proc {
	if !a.ended[key] && o.Epoch >= a.newest[o.Job] && !o.Adopt {
		return nil
	}

	p := &proc{order: o}
	p.end(now, job.CauseLaunchFailed, 0, false)
	p.rep.NewestEpoch = max(a.newest[o.Job], o.Epoch)

	return p
}

// begin starts a process whose fate is drawn here.
func (a *agent) begin(rng *rand.Rand, o yardmaster.Order, now time.Time, calm bool) *proc {
	p := &proc{order: o, state: job.RunPreparing, ready: now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)}
	p.over = p.ready.Add(time.Duration(rng.IntN(40_000)) * time.Millisecond)
	if rng.IntN(50) == 0 {
		p.over = p.over.Add(time.Duration(rng.IntN(600)) * time.Second)
	}

	if calm && rng.IntN(3) > 0 {
		return p
	}

	switch n := rng.IntN(100); {
	case n < 40 && o.Launch.Restore != nil:
		p.ends, p.corrupt = job.CauseRestoreFailed, n < 30
	case n < 12:
		p.ends = job.CauseUserCode
	case n < 17:
		p.ends = job.CauseHostOOM
	case n < 22:
		p.ends = job.CauseGPUOOM
	case n < 24:
		p.ends = job.CauseSetupFailed
	case n < 27:
		p.ends = job.CauseLaunchFailed
	case n < 29:
		p.ends = job.CauseImageFailed
	}

	early := []job.Cause{job.CauseRestoreFailed, job.CauseSetupFailed, job.CauseLaunchFailed, job.CauseImageFailed}
	if slices.Contains(early, p.ends) {
		p.over = p.ready // before it runs
	}

	return p
}

// progress lets the processes go on until now.
func (a *agent) progress(now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(a.procs)) {
		p := a.procs[key]
		if p.alive() && now.Sub(a.contact) > lease {
			p.end(now, job.CauseNodeLost, 143, true)
			continue
		}

		if p.state == job.RunPreparing && !p.ready.After(now) && p.over.After(p.ready) {
			p.state, p.started = job.RunRunning, p.ready
		}

		p.adjust(now)

		if !p.alive() || p.over.After(now) || p.pause.On && !p.stopped {
			continue
		}

		if p.state == job.RunPreparing && p.ends == job.CauseNone {
			p.started = p.ready // it ran and ended since we last looked
		}

		switch {
		case p.stopped:
			p.end(now, job.CauseCancelled, 143, true)
		case p.ends == job.CauseNone:
			p.end(p.over, job.CauseNone, 0, false)
			a.well[key+string(p.order.Launch.UID)] = true
		default:
			p.end(p.over, p.ends, 1, false)
		}
	}
}

// adjust suspends a process or lets it continue, as it is ordered. Some cannot be suspended.
func (p *proc) adjust(now time.Time) {
	o := p.order.Suspend
	if p.state != job.RunRunning || p.stopped || o.Number <= p.pause.Number {
		return
	}

	switch {
	case o.On() && o.Number%8 == 5:
		p.pause = job.Suspension{Number: o.Number, Error: "the test does not let it"}
	case o.On():
		p.pause, p.paused = job.Suspension{Number: o.Number, On: true, Memory: min(o.Room, 1<<30)}, now
	default:
		if p.pause.On {
			p.over = p.over.Add(now.Sub(p.paused))
		}

		p.pause = job.Suspension{Number: o.Number}
	}
}

// crash ends all processes at once, as when the machine reboots. What ran is remembered.
func (a *agent) crash(now time.Time) {
	for _, p := range a.procs {
		if p.alive() {
			p.end(now, job.CauseNodeLost, 0, false)
		}
	}
}

// report tells the yard of everything the agent has.
func (a *agent) report() yardmaster.NodeReport {
	m := yardmaster.NodeReport{Node: a.node, Foreign: a.foreign, Inventory: &a.inv, Marks: true, Seen: a.seen,
		Restores: a.inv.Restores, Suspends: a.inv.Suspends}

	for _, key := range slices.Sorted(maps.Keys(a.procs)) {
		p := a.procs[key]
		rep := p.rep
		rep.Run = p.order.Run
		rep.UID = p.order.Launch.UID
		rep.Rank = p.order.Rank
		rep.State = p.state
		rep.Started = p.started
		rep.Ended = p.ended
		rep.Suspension = p.pause
		if p.state == job.RunRunning && p.stopped {
			rep.State = job.RunStopping
		}

		m.Ranks = append(m.Ranks, rep)
	}

	return m
}

// checkOverlap reports two runs of one job that are alive at the same time.
func checkOverlap(agents []*agent) error {
	running := map[id.UID]yardmaster.Order{}
	for _, a := range agents {
		for _, p := range a.procs {
			if !p.alive() {
				continue
			}
			o, ok := running[p.order.Launch.JobUID]
			if ok && (o.Run != p.order.Run || o.Launch.UID != p.order.Launch.UID) {
				return fmt.Errorf("%s on %s and %s on %s are alive at the same time", o.Run, o.Node, p.order.Run, p.order.Node)
			}

			running[p.order.Launch.JobUID] = p.order
		}

		if err := checkGPUs(a); err != nil {
			return err
		}
	}

	return nil
}

// checkGPUs reports two runs that use one GPU at the same time, though neither shares it nor is suspended.
func checkGPUs(a *agent) error {
	users := map[int]yardmaster.Order{}

	for _, key := range slices.Sorted(maps.Keys(a.procs)) {
		p := a.procs[key]
		if p.state != job.RunRunning || p.pause.On || p.order.Launch.Share > 0 {
			continue
		}

		for _, gpu := range p.order.Launch.GPUs {
			if o, used := users[gpu]; used {
				return fmt.Errorf("%s and %s use GPU %d of %s at the same time", o.Run, p.order.Run, gpu, a.node)
			}

			users[gpu] = p.order
		}
	}

	return nil
}
