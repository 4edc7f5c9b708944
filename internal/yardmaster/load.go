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
	y.ticked = y.now
	y.lastJob, y.lastEvent = s.LastJob, s.LastEvent
	for _, d := range s.Datasets {
		y.data.Put(d)
	}
	y.must(y.books.Load(s.Books))
	y.loadLeases(s)
	y.keepBooks()
	for _, u := range s.Users {
		y.users[u.ID] = &userRecord{User: u}
	}
	y.shares.Load(s.Shares)
	for _, t := range s.Tokens {
		y.tokens[t.ID] = &tokenRecord{Token: t}
	}
	slices.SortFunc(s.Nodes, func(a, b fleet.Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, n := range s.Nodes {
		y.loadNode(n)
	}
	for i := range s.Orders {
		o := &orderRecord{Order: s.Orders[i]}
		y.orders[o.Key()] = o
	}
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
		r.outlook = newOutlook(&r.Job)
		y.jobs[r.ID] = r
		if r.Pipeline != "" {
			pipelines[r.Pipeline] = append(pipelines[r.Pipeline], r.ID)
		}
	}
	for _, run := range s.Runs {
		y.loadRun(run)
	}
	for i := range s.Jobs {
		y.loadJob(y.jobs[s.Jobs[i].ID], s.Needs, pipelines)
	}
	for _, n := range s.Nodes {
		y.idle(n.ID)
	}
	y.round = true
}

// loadLeases takes up the leases, and what was hired for jobs that still wait.
func (y *Yard) loadLeases(s State) {
	y.leases.Load(y.now, s.Leases, s.LastLease)
	y.market.Replay(s.Leases)
	for _, l := range y.leases.Live() {
		y.books.Limits.Nodes(y.now, payer(l), 1)
		if l.Job != "" && (l.State == fleet.LeaseAsked || l.State == fleet.LeaseBooting) {
			y.hired[l.Job] = append(y.hired[l.Job], l.ID)
		}
	}
	if len(y.leases.Live()) > 0 {
		y.sweepLeases()
	}
}

func (y *Yard) loadNode(n fleet.Node) {
	y.nodes[n.ID] = &nodeRecord{Node: n, seen: y.now, idle: y.now, runs: map[id.Run]int{}, ports: map[int]id.Run{}}
	if n.State == fleet.Removed {
		return
	}
	y.table.Put(&n, 0)
	y.watchSilence(n.ID, y.now.Add(y.cfg.SuspectAfter))
}

func (y *Yard) loadRun(run job.Run) {
	r, ok := y.jobs[run.Job]
	if !ok || run.State == job.RunEnded {
		return
	}
	rec := &runRecord{Run: run}
	if o, ok := y.orders[orderKey(run.ID, 0)]; ok {
		rec.port = o.Launch.MasterPort
		if n, ok := y.nodes[run.Ranks[0].Node]; ok && rec.port > 0 {
			n.ports[rec.port] = run.ID
		}
	}
	y.runs[run.ID] = rec
	r.run = rec
	need := y.describeItem(r)
	r.entry.Shape = &queue.Shape{Need: need}
	seats := make([]place.Seat, len(run.Ranks))
	for i := range run.Ranks {
		seats[i] = place.Seat{Node: run.Ranks[i].Node, GPUs: fleet.Mask(run.Ranks[i].GPUs), Share: run.Ranks[i].Share}
	}
	y.nowRunning(r, rec, seats)
	y.hold(r, rec)
	weight := y.weigh(&rec.Run)
	y.user(r.Owner).rate += weight
	y.shares.Resume(r.Project, weight)
	for i := range rec.Ranks {
		if k := rec.Ranks[i]; k.State != job.RunEnded {
			y.use(r, &k, 1)
		}
	}
	if d := time.Duration(r.Spec.MaxDuration); d > 0 && !run.Started.IsZero() {
		y.limit(run.ID, d)
	}
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
		y.after(r.Ended.Add(y.cfg.KeepFinal), func(y *Yard) { y.forget(j) })
		return
	}
	y.user(r.Owner).alive++
	if r.Spec.Budget > 0 {
		y.budgets++
	}
	for _, n := range r.Needs {
		state := needs[n]
		if d, ok := y.jobs[n]; ok {
			state = d.State
		}
		if state != job.Succeeded {
			r.waits = append(r.waits, n)
			y.needed[n] = append(y.needed[n], r.ID)
		}
	}
	if r.State.Waiting() {
		y.wake(r)
	}
}
