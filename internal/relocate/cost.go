package relocate

import (
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
)

// left is how long a run still takes where it is: the estimate and its prediction interval.
type left struct{ low, mid, high time.Duration }

// leftOf returns how much of a run is left: by its forecast, else by the remaining work at its
// rate, else by how long such a run takes. It reports whether that is known.
func leftOf(now time.Time, r *place.Running) (left, bool) {
	if f := r.Outlook.Forecast; f != nil && f.Informed() && f.At.After(r.Began) {
		passed := now.Sub(f.At)
		since := func(seconds float64) time.Duration { return max(job.Seconds(seconds)-passed, 0) }

		return left{since(f.Remaining.Low), since(f.Remaining.Mid), since(f.Remaining.High)}, true
	}

	if end, known := r.ExpectedEnd(now); known {
		d := end.Sub(now)
		return left{d, d, d}, true
	}

	if r.Takes == 0 {
		return left{}, false
	}

	d := max(r.Began.Add(r.Takes).Sub(now), 0)

	return left{d, d, d}, true
}

// diskRate is how many bytes a second a program writes and reads of its checkpoint.
const diskRate = job.Bytes(1 << 30)

// pause is how long a job stands still when it moves, and what the transfer costs.
type pause struct {
	// leaves is how long its old nodes are still needed: it saves a checkpoint, which is uploaded.
	leaves time.Duration
	// returns is how long its new nodes are needed before it works: data and checkpoint are
	// brought there, and it starts.
	returns time.Duration
	cost    money.Amount
}

func (p *pause) total() time.Duration { return p.leaves + p.returns }

// pauseOf returns what it takes to move a running job to a node.
func pauseOf(v *place.View, r *place.Running, from, to *fleet.Node) pause {
	size := r.Outlook.Saved.Size
	save, start := r.Outlook.RestartCost()
	disk := seconds(size, diskRate)
	carried := size
	if name := r.Outlook.Saved.Shared; name != "" && to.Inventory.Sees(name) {
		carried = 0 // it stays where it is
	}

	up, upCost := carry(&v.Network, from.Class, carried)
	down, downCost := carry(&v.Network, to.Class, carried)
	stage, stageCost := v.Stage(r.Item, to)

	return pause{
		leaves:  max(save, disk) + up,
		returns: max(stage, down) + max(start, disk),
		cost:    upCost + downCost + stageCost,
	}
}

// carry returns how long it takes to carry a checkpoint between a node and the yard's store, and
// what that costs. The store is where the local nodes are.
func carry(n *dataset.Network, class fleet.Class, size job.Bytes) (time.Duration, money.Amount) {
	if class == fleet.Local {
		return seconds(size, n.In), 0
	}

	return seconds(size, n.Across), n.PerGB.Moving(int64(size))
}

// seconds returns how long so many bytes take at a rate.
func seconds(size, rate job.Bytes) time.Duration {
	if rate <= 0 {
		return 0
	}

	return job.Seconds(float64(size) / float64(rate))
}

// billed returns how long a provisioned node is paid for that is left at a time.
func billed(l *fleet.Lease, until time.Time) time.Duration {
	d := max(l.PaidTime(until), time.Duration(l.Offer.MinBilling))
	if unit := time.Duration(l.Offer.BillingIncrement); unit > 0 {
		d = (d + unit - 1) / unit * unit
	}

	return d
}
