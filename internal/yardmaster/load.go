package yardmaster

import (
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Load fills an empty yard with what the store kept. Nodes get the full time
// to report before they are suspected: the yard was not listening.
func (y *Yard) Load(now time.Time, s State) {
	y.setNow(now)
	y.lastTick = y.now
	y.lastJob = s.LastJob
	y.seed, y.incarnation = s.Seed, s.Incarnation
	y.feed.Load(s.LastEvent)
	y.data.Load(&s)
	y.checkpoints.Load(&s)
	y.secrets.Load(&s)
	y.channels.Load(&s)
	y.must(y.ledger.Load(s.Ledger))
	y.must(y.loadQuotas(&s))
	y.leases.Load(y.now, &s)
	y.watchQuotas()
	y.people.Load(&s)
	slices.SortFunc(s.Nodes, func(a, b fleet.Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, n := range s.Nodes {
		y.nodes.Load(y.now, n)
	}

	y.loadReservations(s.Reservations)
	y.countReserved()

	for _, a := range s.Agents {
		y.nodes.LoadAgent(a)
	}

	for i := range s.Orders { // of an earlier version
		if o := &s.Orders[i]; o.Launch.OwnerNumber == 0 {
			o.Launch.OwnerNumber = y.people.Number(o.Launch.Owner)
		}
	}

	y.orders.Load(s.Orders, s.Incarnation.Unsettled())
	y.pastForgotten = append(y.pastForgotten, y.past.Load(s.Past)...)

	y.loadShortages(s.Shortages)
	y.loadBeside(s.Beside)

	slices.SortFunc(s.Jobs, func(a, b job.Job) int {
		x, _ := a.ID.Number()
		z, _ := b.ID.Number()
		if x < z {
			return -1
		}

		return 1
	})

	pipelines := map[string][]id.Job{}
	for i := range s.Jobs {
		r := &jobRecord{Job: s.Jobs[i]}
		r.outlook = job.NewOutlook(&r.Job)
		y.jobs[r.ID] = r
		y.updateSaved(r)

		if r.Pipeline != "" {
			pipelines[r.Pipeline] = append(pipelines[r.Pipeline], r.ID)
		}
	}

	y.loadObserved(s.Observed)

	for _, run := range s.Runs {
		y.loadRun(run)
	}

	late := y.loadElements(s.Jobs)
	y.loading = true

	for _, last := range []bool{false, true} {
		for i := range s.Jobs {
			if j := s.Jobs[i].ID; late[j] == last {
				y.loadJob(y.jobs[j], s.Needs, pipelines)
			}
		}
	}

	y.loading = false

	y.loadQuestions(s.Questions)
	y.loadSchedules(s.Schedules)
	y.loadDemand(s.Leases)

	y.loadIdle(&s)

	y.projectBudgets()
	y.watchQuotas()

	if y.incarnation.Unsettled() {
		y.awaitSettled()
	}

	y.planDue = true
}

// loadIdle restores since when nothing runs on the nodes. Those that are kept for a while are looked at when the first
// plan has been made, which may use them.
func (y *Yard) loadIdle(s *State) {
	for i := range s.Nodes {
		n, ok := y.nodes.Get(s.Nodes[i].ID)
		if !ok || len(n.Runs) > 0 {
			continue
		}

		if since, known := s.IdleSince[n.ID]; known && since.Before(n.Idle) {
			n.Idle = since
		}

		if n.Lease != "" {
			y.recheckIdle(n, y.now.Add(idleGrace))
		}
	}
}

// idleGrace is how long after a start of the server nodes are not released that have been idle for long.
const idleGrace = time.Minute

// loadQuotas restores the quotas, what was used of them and what people were notified of.
func (y *Yard) loadQuotas(s *State) error {
	for _, q := range s.Quotas {
		if q.Removed {
			continue
		}

		if err := y.quotas.Put(q); err != nil {
			return err
		}
	}

	return y.quotas.Load(s.Usage, s.Notices)
}

func (y *Yard) loadRun(run job.Run) {
	r, ok := y.jobs[run.Job]
	if !ok || run.State == job.RunEnded {
		return
	}

	rec := &runRecord{Run: run}
	if o := y.orders.Get(run.ID, 0); o != nil {
		rec.port = o.Launch.MasterPort
		if o.Launch.Restore != nil {
			rec.restore = o.Launch.Restore.Checkpoint
		}

		if n, ok := y.nodes.Get(run.Ranks[0].Node); ok && rec.port > 0 {
			n.Listen(run.ID, rec.port)
		}
	}

	y.runs[run.ID] = rec
	r.run = rec
	y.updateSaved(r)
	need := y.describeItem(r)
	r.entry.Shape = &queue.Shape{Need: need}

	allocations := make([]place.Allocation, len(run.Ranks))
	for i := range run.Ranks {
		allocations[i] = place.Allocation{
			Node:  run.Ranks[i].Node,
			GPUs:  fleet.Mask(run.Ranks[i].GPUs),
			Share: run.Ranks[i].Share,
		}
	}

	r.running = y.running.add(r.entry, &rec.Run, allocations, y.nodes.Of)
	y.bookNodes(r, rec)
	y.people.Resume(r.Owner, r.Project, y.nodes.Weigh(&rec.Run))

	for i := range rec.Ranks {
		if k := rec.Ranks[i]; k.State != job.RunEnded && !k.Lends() {
			y.countUse(r, &k, 1)
		}
	}

	if d := time.Duration(r.Spec.MaxDuration); d > 0 && !run.Started.IsZero() && !run.Suspended() {
		y.setTimeout(run.ID, d)
	}

	if rec.Stop == job.StopTerm {
		y.killGang(rec)
	}

	y.loadMove(r)
	y.loadOrigins(r)
	y.loadSuspension(r, rec)
}

func (y *Yard) loadJob(r *jobRecord, needs map[id.Job]job.State, pipelines map[string][]id.Job) {
	if r.Key != "" {
		ids := pipelines[r.Pipeline]
		if r.Pipeline == "" {
			ids = []id.Job{r.ID}
		}

		y.keys[submitKey{r.Owner, r.Key}] = ids
	}

	if r.State.Final() {
		j := r.ID
		y.after(r.Ended.Add(y.cfg.KeepFinal), func() { y.forget(j) })
		return
	}

	y.countJob(r, 1)

	if r.entry != nil { // of a job that runs
		r.entry.Spec = r.Spec
	}

	for _, n := range r.Needs {
		state := needs[n]
		if d, ok := y.jobs[n]; ok {
			state = d.State
		}

		if !r.Spec.Released(state) {
			r.pendingNeeds = append(r.pendingNeeds, n)
			y.needed[n] = append(y.needed[n], r.ID)
		}
	}

	switch {
	case !r.State.Waiting():
	case len(r.pendingNeeds) == 0 && !r.NotBefore.After(y.now):
		y.enqueueSince(r, r.QueuedSince())
	default:
		y.wake(r)
	}
}
