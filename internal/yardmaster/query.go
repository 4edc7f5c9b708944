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
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/nodes"
)

// Brief is what a list shows of a job beside what is stored.
type Brief struct {
	WaitReason string // why it is queued, if it is
	Blocker    place.Blocker
	Remarks    []string // what its owner should know now, beside its state
	Doing      string   // what its run does beside its work, such as storing a checkpoint; "" if nothing
	Nodes      []id.Node
	FakeGPUs   bool // it has GPUs that are declared, not real
	// Progress is nil if the job has ended. Its At is zero if the progress is unknown.
	Progress *job.Progress
	Cost     money.Amount  // so far, including what is not posted yet
	Ran      time.Duration // so far, all runs together
}

// Brief returns what a list shows of a job that was read from the store.
func (s *Snapshot) Brief(now time.Time, j *job.Job, explainer Explainer) Brief {
	now = s.clamp(now)
	b := Brief{Cost: j.Cost, Ran: j.Ran}
	f := s.factsFor(j.ID)
	if f == nil || j.State.Final() {
		return b
	}

	if why, waits := s.explain(now, j, f, explainer); waits {
		b.WaitReason, b.Blocker = why.Sentence, why.Blocker
	}

	b.Remarks = s.remarks(now, j, f)
	b.Progress = f.progress(now, j)
	if f.live == nil {
		return b
	}

	b.Cost, b.Ran, b.FakeGPUs = f.live.costAt(now, j.ID), f.live.ranBy(now), f.live.fake
	for i := range f.live.run.Ranks {
		rank := &f.live.run.Ranks[i]
		b.Nodes = append(b.Nodes, rank.Node)

		if b.Doing == "" && rank.State != job.RunEnded {
			b.Doing = rank.Reason
		}
	}

	return b
}

// remarks says what the owner of a job should know beside its state: nodes of its run that do not report, that it will
// be stopped because it is idle, and memory that was raised after it ran out of it. The sentences stay the same as long
// as that holds.
func (s *Snapshot) remarks(now time.Time, j *job.Job, f *facts) []string {
	var list []string

	if f.live != nil {
		for _, n := range f.live.silent {
			list = append(list, fmt.Sprintf("node %s has not reported since %s", n.node, humanize.Time(n.seen, now.UTC())))
		}

		if !f.live.idle.IsZero() && j.State == job.Running {
			list = append(list, idleWords(f.live.idle, now))
		}
	}

	if j.FloorOf != "" {
		if !j.State.Waiting() { // otherwise why it waits says so
			list = append(list, memoryNote(now, j, s.shortages))
		}

		return list
	}

	asked := j.Spec.Resources.Memory
	switch {
	case asked > 0 && j.Floor.Memory > asked:
		list = append(list, fmt.Sprintf("memory raised from %s to %s after it ran out of memory",
			humanize.Size(asked), humanize.Size(j.Floor.Memory)))
	case j.Floor.Memory > 0:
		list = append(list, fmt.Sprintf("gets at least %s of memory after it ran out of memory",
			humanize.Size(j.Floor.Memory)))
	}

	if j.Floor.GPUMemory > 0 {
		list = append(list, fmt.Sprintf("gets GPUs with more than %s after it ran out of GPU memory",
			humanize.Size(j.Floor.GPUMemory)))
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

// NodeInfo is a node with its runs, its lease and its price.
type NodeInfo struct {
	fleet.Node
	Agent       fleet.Agent     // that speaks for it; zero if none has said who it is
	Warnings    []fleet.Problem // what is wrong with it although it takes jobs
	Seen        time.Time
	Room        fleet.Room
	Foreign     []int
	Jobs        []id.Job
	Runs        []job.Run   // of those jobs, in the same order
	Titles      []Title     // of those jobs, in the same order
	Idle        time.Time   // since when nothing runs there, if nothing does
	Provisioned fleet.Lease // its lease; zero if it has none that is live
	Price       *ledger.Price
}

// Title is what a job is called, which those may know who may read jobs of its project.
type Title struct {
	Name    string // "" if it has none
	Project id.Project
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

// KnownMachine says what the operator of a machine should know that has joined as a node although it is, or was,
// another one; "" for nothing.
func (y *Yard) KnownMachine(name id.Node, agent *fleet.Agent) string {
	n, ok := y.nodes.Get(name)
	if !ok {
		return ""
	}

	return y.nodes.Known(n, agent)
}

func (y *Yard) nodeInfo(n *nodes.Node) NodeInfo {
	info := NodeInfo{
		Node: n.Node, Agent: n.Agent, Warnings: y.nodes.Warnings(n), Seen: n.Seen, Foreign: fleet.Indices(n.Foreign),
		Idle: n.Idle,
	}
	l := y.Lease(n.Lease)
	if l != nil {
		info.Provisioned = *l
	}

	info.Price = y.ledger.Price(&n.Node, l)
	if room, ok := y.nodes.Rooms.Get(n.ID); ok {
		info.Room = *room
	}

	for _, run := range sortedKeys(n.Runs) {
		j := y.jobs[y.runs[run].Job]
		info.Jobs = append(info.Jobs, j.ID)
		info.Runs = append(info.Runs, y.runs[run].Run)
		info.Titles = append(info.Titles, Title{Name: j.Spec.Name, Project: j.Project})
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

// DatasetOwner returns whom the name of a dataset belongs to, also after the dataset was removed; "" if it is free.
func (y *Yard) DatasetOwner(name id.Dataset) id.User { return y.data.Owner(name) }

// ReadsDataset reports whether a user may use a dataset.
func (y *Yard) ReadsDataset(u id.User, d *dataset.Dataset) bool { return y.data.ReadBy(d, u) }

// DatasetPlace returns where a dataset may be used, also by the rules of others with the same data.
func (y *Yard) DatasetPlace(d *dataset.Dataset) job.Place { return y.data.RuleOf(d) }

// Unposted returns what would be posted if everything ended now, and the number of the last
// posting in the ledger.
func (y *Yard) Unposted(now time.Time) ([]ledger.Posting, uint64) {
	return y.ledger.Peek(now), y.ledger.Posted()
}
