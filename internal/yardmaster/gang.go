package yardmaster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/timers"
)

const (
	// slowStart is how long ranks that are ready wait for the others before those are named.
	slowStart = 10 * time.Second
	// probeLimit is how long the agents of ranks that are ready look for ways to each other.
	probeLimit = 10 * time.Second
	// gangGrace is how long the ranks of a run have to end after one of them has failed. They cannot go on without it, and
	// often wait for it, where no signal reaches them.
	gangGrace = 5 * time.Second
)

// gang is the start of a run on several nodes: what its ranks have reported until all are ready. It is not stored:
// agents report it again to a server that was restarted.
type gang struct {
	ready  []bool
	probes []*job.Probe
	since  time.Time // all are ready since; zero if they are not
	slow   *timers.Timer
	limit  *timers.Timer
}

// network is how the ranks of a run reach each other, in rank order.
type network struct {
	nodes     []string
	addresses [][]string // nil for a run on one node
	slots     []int
}

// networkOf returns the addresses of a run's nodes, as far as they are known before the agents have probed them.
func (y *Yard) networkOf(run *runRecord) network {
	var net network

	for i := range run.Ranks {
		k := &run.Ranks[i]
		inv := &y.nodes.Of(k.Node).Inventory
		net.nodes = append(net.nodes, inv.Address)

		if len(run.Ranks) < 2 {
			continue
		}

		all := inv.Addresses
		if len(all) == 0 {
			all = []string{inv.Address}
		}

		net.addresses = append(net.addresses, all)
		net.slots = append(net.slots, len(k.GPUs))
	}

	return net
}

// gather takes from the report of a rank how far it is with its start.
func (y *Yard) gather(run *runRecord, rep *RankReport) {
	o := y.orders.Get(run.ID, rep.Rank)
	if o == nil || !o.Launch.Barrier || o.Start != nil || run.Stop != job.StopNone || rep.State != job.RunPreparing {
		return
	}

	if run.gang == nil {
		run.gang = &gang{ready: make([]bool, len(run.Ranks)), probes: make([]*job.Probe, len(run.Ranks))}
	}

	run.gang.ready[rep.Rank] = rep.Ready
	if rep.Probe != nil {
		run.gang.probes[rep.Rank] = rep.Probe
	}
}

// startGang orders the programs of a run to start once all its ranks are ready and know how to reach each other. A rank
// whose agent is of an earlier version has started already.
func (y *Yard) startGang(r *jobRecord, run *runRecord) {
	g := run.gang
	if run.Stop != job.StopNone {
		y.endGang(run)
		return
	}

	waiting := y.introduce(run)
	if len(waiting) == len(run.Ranks) {
		return
	}

	if len(waiting) > 0 {
		g.since = time.Time{}
		if g.slow == nil {
			g.slow = y.after(y.now.Add(slowStart), func() { y.nameSlow(r, run) })
		}

		return
	}

	if g.since.IsZero() {
		g.since = y.now
	}

	o := y.firstOrder(run)
	if o == nil {
		return
	}

	known := job.GangAddresses{Default: o.Launch.Nodes, Candidates: o.Launch.Addresses, Probes: g.probes}
	addresses, missing := known.Choose()

	if due := g.since.Add(probeLimit); len(missing) > 0 && y.now.Before(due) {
		if g.limit == nil {
			g.limit = y.after(due, func() { y.probesOver(r, run) })
		}

		return
	}

	start := &job.GangStart{Nodes: addresses, Remark: unreached(run, addresses, missing)}
	for i := range run.Ranks {
		if !run.Ranks[i].Past(job.RunPreparing) {
			y.orders.StartGang(run.ID, i, start)
		}
	}

	if start.Remark != "" {
		y.event(Event{
			Kind: "run.unreachable", Actor: theYard, Owner: r.Owner, Job: r.ID, Run: run.ID, Reason: start.Remark,
		})
	}

	y.endGang(run)
}

// firstOrder returns the order of the first rank that has one.
func (y *Yard) firstOrder(run *runRecord) *Order {
	for i := range run.Ranks {
		if o := y.orders.Get(run.ID, i); o != nil {
			return o
		}
	}

	return nil
}

// introduce tells the agents of all ranks where the others answer probes, once all have said so, and returns the ranks
// that are not ready yet.
func (y *Yard) introduce(run *runRecord) (waiting []int) {
	g := run.gang
	ports := make([]int, len(run.Ranks))
	known := true

	for i := range run.Ranks {
		ports[i] = -1

		switch {
		case run.Ranks[i].Past(job.RunPreparing): // it did not wait for the others
			g.probes[i] = nil
			continue
		case g.probes[i] == nil:
			known = false
		default:
			ports[i] = g.probes[i].Port
		}

		if !g.ready[i] {
			waiting = append(waiting, i)
		}
	}

	for i := 0; known && i < len(run.Ranks); i++ {
		y.orders.Introduce(run.ID, i, ports)
	}

	return waiting
}

// probesOver starts a gang although some ranks did not reach others: not every program needs that.
func (y *Yard) probesOver(r *jobRecord, run *runRecord) {
	if run.gang != nil && y.runs[run.ID] == run {
		run.gang.limit = nil
		y.startGang(r, run)
	}
}

// nameSlow says which ranks the others wait for.
func (y *Yard) nameSlow(r *jobRecord, run *runRecord) {
	g := run.gang
	if g == nil || y.runs[run.ID] != run {
		return
	}

	g.slow = nil

	var names []string
	for _, i := range y.introduce(run) {
		k := &run.Ranks[i]
		name := fmt.Sprintf("rank %d on %s", i, k.Node)
		if k.Reason != "" {
			name += " (" + k.Reason + ")"
		}

		names = append(names, name)
	}

	if len(names) == 0 || len(names) == len(run.Ranks) {
		return
	}

	ready := len(run.Ranks) - len(names)
	r.Reason = fmt.Sprintf("starting: %d of %s ready for %s, waiting for %s", ready,
		humanize.Count(len(run.Ranks), "rank"), humanize.Duration(slowStart), humanize.ListUpTo(maxSlow, names...))
	y.changedJob(r)
	y.event(Event{Kind: "run.slow_start", Actor: theYard, Owner: r.Owner, Job: r.ID, Run: run.ID, Reason: r.Reason})
}

// maxSlow is how many ranks are named at most.
const maxSlow = 4

// unreached says in a sentence which ranks did not reach which; "" if there are none.
func unreached(run *runRecord, addresses []string, missing []job.Unreached) string {
	if len(missing) == 0 {
		return ""
	}

	var words []string
	for _, m := range missing[:min(len(missing), maxSlow)] {
		words = append(words, fmt.Sprintf("rank %d on %s did not reach rank %d on %s at %s", m.From, run.Ranks[m.From].Node,
			m.To, run.Ranks[m.To].Node, addresses[m.To]))
	}

	if more := len(missing) - len(words); more > 0 {
		words = append(words, humanize.Count(more, "more pair"))
	}

	return "the network between the nodes may be closed: " + strings.Join(words, ", ")
}

// killGang kills what is left of a run some seconds after one of its ranks has failed and the others were asked to
// stop. After the loss of a node they keep their grace period: what they save is all that is left.
func (y *Yard) killGang(run *runRecord) {
	failed := slices.ContainsFunc(run.Ranks, func(k job.Rank) bool {
		return k.State == job.RunEnded && !k.Signalled && k.Cause != job.CauseNone && k.Cause == run.StopFor
	})
	if !failed || run.StopFor == job.CauseNodeLost || len(run.Ranks) < 2 {
		return
	}

	name := run.ID
	y.after(y.now.Add(gangGrace), func() {
		if run, ok := y.runs[name]; ok && run.Stop == job.StopTerm {
			y.stop(run, job.StopKill, run.StopFor)
		}
	})
}

// endGang forgets what was known of the start of a run.
func (y *Yard) endGang(run *runRecord) {
	if g := run.gang; g != nil {
		y.timers.Stop(g.slow)
		y.timers.Stop(g.limit)
		run.gang = nil
	}
}
