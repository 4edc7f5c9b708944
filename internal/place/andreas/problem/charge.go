package problem

import (
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

// Charge returns what the ledger will post for a task in one of its candidates, if nobody else
// uses its nodes. It is what people are told; plans go by Candidate.Cost, which leaves out what
// nodes cost unused.
func (y *Yard) Charge(t *Task, at int) money.Amount {
	o := &t.Candidates[at]
	if y.View.Tariff == nil {
		return o.Cost
	}

	hourly := money.PerHour(0)
	if at == t.Assigned && len(t.Seats) == int(o.Nodes) {
		for _, s := range t.Seats {
			if room := y.Find(s.Node); room >= 0 {
				hourly += y.charge(t, y.Rooms[room].Node, bits.OnesCount64(s.GPUs), s.Share)
			}
		}

		return hourly.For(job.Seconds(o.Duration))
	}

	rooms := y.Kinds[o.Kind].Rooms
	if len(rooms) == 0 {
		return o.Cost
	}

	for i := range int(o.Nodes) {
		hourly += y.charge(t, y.Rooms[rooms[min(i, len(rooms)-1)]].Node, o.On(i), o.Share)
	}

	return hourly.For(job.Seconds(o.Duration))
}

// charge returns what the ledger posts for a task's part of a node.
func (y *Yard) charge(t *Task, n *fleet.Node, gpus int, share float64) money.PerHour {
	set := uint64(0)
	for i := range n.Inventory.GPUs {
		set |= 1 << n.Inventory.GPUs[i].Index
	}

	hold := fleet.Hold{GPUs: fleet.LowestGPUs(set, gpus), Share: share, CPUs: t.Item.Shape.Need.CPUs}

	var lease *fleet.Lease
	if at := slices.IndexFunc(y.View.Leases, func(l *fleet.Lease) bool { return l.ID == n.Lease }); at >= 0 && n.Lease != "" {
		lease = y.View.Leases[at]
	}

	return ledger.Hourly(n, y.View.Tariff, lease, ledger.HolderOf(&hold, ""))
}
