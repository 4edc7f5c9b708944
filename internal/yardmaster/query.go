package yardmaster

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/nodes"
)

// WhyReport is why a job is queued, with its position in the queue.
type WhyReport struct {
	place.Why
	Position int // from 1; 0 if it is not in the queue or further back than maxPosition
}

// maxPosition bounds how far the queue is walked to find a job's position.
const maxPosition = 10_000

// Why says why a job does not run. It returns false for a job that is not queued.
func (y *Yard) Why(now time.Time, j id.Job) (WhyReport, bool) {
	y.setNow(now)
	r, ok := y.jobs[j]
	if !ok {
		return WhyReport{}, false
	}

	switch {
	case r.State == job.Paused:
		return WhyReport{
			Why: place.Why{Blocker: place.BlockPaused, Sentence: r.Reason, Remedies: []string{"trainyard resume " + string(j)}},
		}, true
	case !r.State.Waiting():
		return WhyReport{}, false
	case len(r.pendingNeeds) > 0:
		w := place.Why{Blocker: place.BlockNeeds, Sentence: needsReason(r.pendingNeeds)}
		for _, n := range r.pendingNeeds[:min(len(r.pendingNeeds), 5)] {
			if d, ok := y.jobs[n]; ok && d.State == job.Paused {
				w.Remedies = append(w.Remedies, "trainyard resume "+string(n))
			}
		}

		return WhyReport{Why: w}, true
	case r.NotBefore.After(y.now):
		return WhyReport{Why: place.Why{Blocker: place.BlockBackoff, Sentence: r.Reason, Start: r.NotBefore}}, true
	}

	if r.holdReason != "" {
		return WhyReport{Why: place.Why{Blocker: place.BlockLimit, Sentence: r.holdReason}}, true
	}
	if s := y.leases.Arriving(j); s != "" {
		return WhyReport{Why: place.Why{Blocker: place.BlockProvisioning, Sentence: s}}, true
	}

	need := y.need(r)
	queued := place.QueuedJob{Job: j, Need: need, Lasts: r.Spec.DeclaredDuration(), Rule: y.data.Rule(&r.Job)}
	w := WhyReport{Why: place.Explain(y.basicView(now), queued, y.reservation), Position: y.position(j)}
	if adviser, ok := y.cfg.Policy.(place.Adviser); ok && r.item != nil && len(y.cfg.Offers) > 0 {
		for _, o := range adviser.Options(y.view(now), r.item) {
			if o.Offer != "" && o.Excluded != "" {
				w.Sentence += fmt.Sprintf("; offer %s is not provisioned: %s", o.Offer, o.Excluded)
				break
			}
		}
	}

	if w.Position > 1 {
		w.Sentence += fmt.Sprintf("; %s ahead of it in the queue", humanize.Count(w.Position-1, "job"))
	}

	return w, true
}

// Brief is what a list shows of a job beside what is stored.
type Brief struct {
	WaitReason string // why it is queued, if it is
	Nodes      []id.Node
	FakeGPUs   bool // it has GPUs that are declared, not real
	// Progress is nil if the job has ended. Its At is zero if the progress is unknown.
	Progress *job.Progress
	Cost     money.Amount // so far, including what is not posted yet
}

// Briefs returns a brief of each job; that of one that is not in memory is empty.
func (y *Yard) Briefs(now time.Time, jobs []id.Job) []Brief {
	v := y.basicView(now)
	list := make([]Brief, len(jobs))

	for i, j := range jobs {
		r, ok := y.jobs[j]
		if !ok {
			continue
		}

		b := &list[i]
		b.Cost = y.costOf(r)

		if r.item != nil {
			queued := place.QueuedJob{Job: j, Need: r.item.Shape.Need, Lasts: r.item.Lasts, Rule: y.data.Rule(&r.Job)}
			b.WaitReason = place.Explain(v, queued, y.reservation).Sentence
			if s := y.leases.Arriving(j); s != "" {
				b.WaitReason = s
			}
		}

		if !r.State.Final() {
			b.Progress = progressOf(y.now, r.outlook, r.running)
		}

		if r.run == nil {
			continue
		}

		for k := range r.run.Ranks {
			rank := &r.run.Ranks[k]
			b.Nodes = append(b.Nodes, rank.Node)
			b.FakeGPUs = b.FakeGPUs || y.nodes.Fake(rank)
		}
	}

	return list
}

// costOf returns what a job has cost so far, including what is not posted yet.
func (y *Yard) costOf(r *jobRecord) money.Amount { return y.costAt(r, y.now) }

// costAt returns what a job will have cost at a time if nothing changes until then.
func (y *Yard) costAt(r *jobRecord, at time.Time) money.Amount {
	cost := r.Cost
	if r.run == nil {
		return cost
	}

	for k := range r.run.Ranks {
		for _, p := range y.ledger.PeekNode(at, r.run.Ranks[k].Node) {
			if p.Job == r.ID {
				cost += p.Cost().Amount()
			}
		}
	}

	return cost
}

// position returns a job's position in the queue, from 1, or 0 if it is too far back.
func (y *Yard) position(j id.Job) int {
	walk := y.queue.Walk(y.usage)
	all := func(*queue.Shape) bool { return true }
	for n := 1; n <= maxPosition; n++ {
		it := walk.Next(all)
		if it == nil {
			return 0
		}
		if it.Job == j {
			return n
		}
	}

	return 0
}

// Preview is what would happen to a job if it were submitted now.
type Preview struct {
	Why     place.Why
	Fits    []id.Node      // that could ever run it
	Options []place.Option // best first; none if the policy is no Adviser
}

// Preview says what would happen to a job of this owner if it were submitted now, or
// why it would be refused. f is its forecast, nil if there is none.
func (y *Yard) Preview(now time.Time, owner id.User, s *job.Spec, f *job.Forecast) (Preview, error) {
	y.setNow(now)
	r := &jobRecord{
		Job: job.Job{
			ID:        id.NewJob(y.lastJob + 1),
			Owner:     owner,
			Project:   id.Project(s.Project),
			Spec:      s,
			State:     job.Pending,
			Submitted: y.now,
			Since:     y.now,
		},
	}

	r.outlook = job.NewOutlook(&r.Job)
	r.outlook.Forecast = f

	if _, err := y.data.PlaceOf(s.Place, s.Data); err != nil {
		return Preview{}, err
	}
	if err := y.checkPossible(r); err != nil {
		return Preview{}, err
	}

	need := y.describeItem(r)
	r.entry.Shape = &queue.Shape{Need: need, Count: 1}

	v := y.view(now)
	if v.Limits == nil && s.Budget > 0 {
		v.Limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{}}
	}

	if v.Limits != nil {
		v.Limits.Jobs[r.ID] = y.allowance(r)
	}

	p := Preview{Why: place.Explain(v, place.QueuedJob{Need: need, Lasts: s.DeclaredDuration()}, y.reservation)}
	if why := y.quotaReached(r, need.GPUs*need.Nodes); why != "" {
		p.Why = place.Why{Blocker: place.BlockLimit, Sentence: why}
	}

	m := fleet.NewMatcher(need)
	for i := range v.Rooms {
		if m.Eligible(&v.Rooms[i]) {
			p.Fits = append(p.Fits, v.Rooms[i].Node.ID)
		}
	}

	if adviser, ok := y.cfg.Policy.(place.Adviser); ok {
		p.Options = adviser.Options(v, r.entry)
	}

	return p, nil
}

// NodeInfo is a node with its runs, its lease and its price.
type NodeInfo struct {
	fleet.Node
	Seen        time.Time
	Room        fleet.Room
	Foreign     []int
	Jobs        []id.Job
	Runs        []job.Run   // of those jobs, in the same order
	Idle        time.Time   // since when nothing runs there, if nothing does
	Provisioned fleet.Lease // its lease; zero if it has none that is live
	Price       *ledger.Price
}

// Nodes lists the nodes after a name, at most limit.
func (y *Yard) Nodes(after id.Node, limit int) []NodeInfo {
	var list []NodeInfo
	for _, n := range y.nodes.All() {
		if n.ID <= after || n.State == fleet.Removed {
			continue
		}
		if len(list) == limit {
			break
		}

		list = append(list, y.nodeInfo(n))
	}

	return list
}

// NodeByName returns one node.
func (y *Yard) NodeByName(name id.Node) (NodeInfo, error) {
	n, err := y.nodes.Find(name)
	if err != nil {
		return NodeInfo{}, err
	}

	return y.nodeInfo(n), nil
}

func (y *Yard) nodeInfo(n *nodes.Node) NodeInfo {
	info := NodeInfo{Node: n.Node, Seen: n.Seen, Foreign: fleet.Indices(n.Foreign), Idle: n.Idle}
	l := y.Lease(n.Lease)
	if l != nil {
		info.Provisioned = *l
	}

	info.Price = y.ledger.Price(&n.Node, l)
	if room, ok := y.nodes.Rooms.Get(n.ID); ok {
		info.Room = *room
	}

	for _, run := range sortedKeys(n.Runs) {
		info.Jobs = append(info.Jobs, y.runs[run].Job)
		info.Runs = append(info.Runs, y.runs[run].Run)
	}

	return info
}

// Orders returns all open orders, with which engines resume at start.
func (y *Yard) Orders() []Order { return y.orders.All() }

// Counts are figures for the operator's metrics.
type Counts struct {
	Waiting int
	Jobs    map[job.State]int // in memory
	Runs    int
	Nodes   map[fleet.State]int
	Orders  int
}

// Counts returns the figures.
func (y *Yard) Counts() Counts {
	c := Counts{
		Waiting: y.queue.Len(),
		Jobs:    map[job.State]int{},
		Runs:    len(y.runs),
		Nodes:   y.nodes.Counts(),
		Orders:  y.orders.Len(),
	}

	for _, r := range y.jobs {
		c.Jobs[r.State]++
	}

	return c
}

// User returns a user.
func (y *Yard) User(u id.User) (tenant.User, bool) { return y.people.User(u) }

// Usage returns a user's decayed usage in GPU-seconds.
func (y *Yard) Usage(now time.Time, u id.User) float64 {
	y.setNow(now)
	return y.usage(u)
}

// Offers returns the open offers, cheapest first, and those that are closed for now with the
// reasons.
func (y *Yard) Offers(now time.Time) ([]fleet.Offer, []provision.Backoff) {
	return slices.Clone(y.leases.Market.Available(now)), y.leases.Market.Backoffs(now)
}

// Failing returns the providers with an outage, and the error of each.
func (y *Yard) Failing() map[string]string { return y.leases.Failing() }

// Quotas returns all quotas, the status of everyone to whom one applies, and the status of
// one user with or without a quota.
func (y *Yard) Quotas(now time.Time, u id.User) (all []tenant.Quota, statuses []quota.Status, own quota.Status) {
	return y.quotas.Quotas(), y.quotas.Statuses(now), y.quotas.Status(now, tenant.Subject{User: u})
}

// Datasets returns all datasets by name.
func (y *Yard) Datasets() []dataset.Dataset { return y.data.All() }

// Unposted returns what would be posted if everything ended now, and the number of the last
// posting in the ledger.
func (y *Yard) Unposted(now time.Time) ([]ledger.Posting, uint64) {
	return y.ledger.Peek(now), y.ledger.Posted()
}
