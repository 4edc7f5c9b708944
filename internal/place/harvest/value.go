package harvest

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/queue"
)

// risk is how likely nodes of a kind are to be taken away. A node that has been
// open for a while is likely to stay open for about as long again, so those that
// opened lately are the ones to lose; and those that opened together leave together.
type risk struct {
	each  float64 // mean rate for a node, per second
	group float64 // mean number of nodes that opened together
}

// stableAge is from when on a node counts as there to stay.
const stableAge = 24 * time.Hour

// minStay is the least time that a node is expected to stay.
const minStay = 10 * time.Minute

func (r *round) riskOf(k *kind) risk {
	var sum float64
	opened := map[time.Time]bool{}
	for _, at := range k.rooms {
		since := r.rooms[at].Node.Since
		opened[since] = true

		if age := r.view.Now.Sub(since); age < stableAge {
			sum += 1 / max(age, minStay).Seconds()
		}
	}

	n := float64(len(k.rooms))
	if n == 0 {
		return risk{}
	}

	return risk{each: sum / n, group: n / float64(len(opened))}
}

// rate is how often a job on so many nodes is expected to lose one of them, per second.
func (k *risk) rate(nodes int) float64 { return k.each * math.Max(1, float64(nodes)/k.group) }

// value computes the value of each size of each job.
func (r *round) value() {
	r.typicalRate = r.typicalBase()
	total := 0.0

	for j := range r.jobs {
		b := &r.jobs[j]
		b.sizes.Kinds = make([][]knapsack.Choice, len(r.kinds))
		c := r.newCosts(b)

		best := 0.0
		for k := range r.kinds {
			b.sizes.Kinds[k] = r.choices(b, k, &c)
			for _, ch := range b.sizes.Kinds[k] {
				best = math.Max(best, ch.Value)
			}
		}

		total += best
	}

	r.patience(total)
}

// patience adds a penalty for leaving a job without nodes that was submitted long ago; the
// earlier its turn, the higher the penalty.
func (r *round) patience(total float64) {
	for j := range r.jobs {
		b := &r.jobs[j]
		if r.view.Now.Sub(b.item.Outlook.Submitted) >= r.policy.Patience {
			b.sizes.None = -total * (1 + 1/float64(j+1))
		}
	}
}

// costs is what changing a job's size costs it.
type costs struct {
	horizon     float64 // seconds that are looked at
	start       float64 // until the first unit of work
	save        float64 // to save itself first
	firstWork   float64 // until the first unit if nothing is changed
	lostWork    float64 // seconds of work that go with a node that is taken
	remaining   float64 // units of work left, infinite if that is not known
	gain        float64 // by which its objective counts, for the length of its horizon
	hasFollower bool    // another job waits to follow it on its nodes
}

// defaultStart is how long a job takes to start of which nothing is known.
const defaultStart = 30 * time.Second

// horizonFactor is how many times what a change costs is looked ahead at least: a job that
// takes long to start must still be able to.
const horizonFactor = 5

func (r *round) newCosts(b *bidder) costs {
	o := b.item.Outlook
	c := costs{
		start:       defaultStart.Seconds(),
		remaining:   math.Inf(1),
		lostWork:    o.Every.Seconds() / 2,
		hasFollower: r.queued,
	}

	if s := o.Speed; s != nil {
		c.start, c.save = time.Duration(s.Start).Seconds(), time.Duration(s.Save).Seconds()
	}

	if left, known := o.RemainingWork(); known {
		c.remaining = left
	}

	if b.running == nil {
		c.save = 0
	} else {
		if left, known := b.running.RemainingWork(r.view.Now); known {
			c.remaining = left
		}

		c.firstWork = starts(b.running, r.view.Now).Seconds()
	}

	ahead := r.policy.LookAhead.Seconds()
	c.horizon = math.Max(ahead, horizonFactor*(c.start+c.save))
	c.gain = ahead / c.horizon

	return c
}

// seconds returns how long of the horizon a job works at a rate: what is left of
// it after a start, less what it is expected to lose with nodes that are taken, and
// no longer than it has work. If another job waits, that one follows on its nodes
// and does as much there; else the last minutes of a job would be worth so little
// that its nodes were given to others, who start again for them.
func (c *costs) seconds(rate, loses float64, stays bool) float64 {
	idle := c.start + c.save
	if stays {
		idle = c.firstWork
	}

	works := math.Max(0, c.horizon-idle)
	works *= math.Max(0, 1-loses*(c.start+c.lostWork))
	if c.hasFollower {
		return works
	}

	return math.Min(works, c.remaining/rate)
}

// tieBonus is by what share a job is better left as it is where all else is equal.
const tieBonus = 1e-6

// choices lists what a job's sizes on a kind are worth.
func (r *round) choices(b *bidder, k int, c *costs) []knapsack.Choice {
	kd := &r.kinds[k]
	n := &b.item.Shape.Need
	curve := r.curveOf(b, kd)
	values := r.facts(b.item, b.running, kd.price)
	var list []knapsack.Choice

	for _, s := range sizesOf(n, kd, r.usable(*n, k)) {
		rate := curve.rate(s.gpus, s.nodes)
		if rate <= 0 {
			continue
		}

		stays := b.kind == k && b.count == s.units
		worth := r.worth(b, values, s, rate, curve.base, c)
		secs := c.seconds(rate, kd.risk.rate(s.nodes), stays)
		v := worth * secs * c.gain
		if stays {
			v += math.Abs(v) * (r.policy.Hysteresis + tieBonus)
		}

		list = append(list, knapsack.Choice{Count: s.units, Value: v})
	}

	return list
}

// room is what a job could have of a kind.
type room struct{ nodes, gpus int }

// usable returns what of a kind jobs with this need could have. Nodes of one kind
// may still differ in class, processors and memory.
func (r *round) usable(n fleet.Need, k int) room {
	list, known := r.usableRooms[n]
	if !known {
		list = make([]room, len(r.kinds))
		m := r.matcher(n)
		for i := range r.kinds {
			for _, at := range r.kinds[i].rooms {
				if gpus, ok := m.Fits(&r.rooms[at]); ok {
					list[i].nodes++
					list[i].gpus += bits.OnesCount64(gpus)
				}
			}
		}

		r.usableRooms[n] = list
	}

	return list[k]
}

// size is one size of a job.
type size struct{ units, gpus, nodes int }

// sizesOf lists the sizes that a need allows on a kind: some number of seats within
// its bounds, each with some number of GPUs within its bounds.
func sizesOf(n *fleet.Need, k *kind, has room) []size {
	var list []size
	if k.byNode {
		for nodes := n.Nodes; nodes <= min(n.MaxNodes, has.nodes); nodes++ {
			list = append(list, size{nodes, nodes * k.unit, nodes})
		}

		return list
	}

	low, high := max(n.GPUs, 1), min(n.MaxGPUs, k.largest)
	if low > high {
		return nil
	}

	for gpus := n.Nodes * low; gpus <= min(n.MaxNodes*high, has.gpus, job.MaxCount); gpus++ {
		nodes := max(n.Nodes, (gpus+high-1)/high) // as few as will do
		if nodes*low <= gpus && nodes <= has.nodes {
			list = append(list, size{gpus, gpus, nodes})
		}
	}

	return list
}

// worth evaluates the objective for a size. An undefined value counts as 0, and is counted
// so that the reason can mention it.
func (r *round) worth(b *bidder, values []float64, s size, rate, base float64, c *costs) float64 {
	values[atN], values[atNodes] = float64(s.gpus), float64(s.nodes)
	values[atThroughput], values[atSpeedup] = rate, rate/base
	values[atRemainingH], values[atSlackH] = 0, 1e6

	ends := 0.0
	if !math.IsInf(c.remaining, 1) {
		ends = c.remaining / rate / 3600
		values[atRemainingH] = ends
	}

	if o := b.item.Outlook; !o.Deadline.IsZero() {
		values[atSlackH] = o.Deadline.Sub(r.view.Now).Hours() - ends
	}

	v, ok := r.policy.worth.Value(values)
	if !ok {
		b.undefinedSizes++
	}

	return v
}

// facts returns what is known of a job whatever its size, in the order of Names.
func (r *round) facts(it *queue.Item, run *place.Running, price float64) []float64 {
	values := make([]float64, names)
	values[atPriority], values[atWeight] = float64(it.Priority), 1+float64(it.Priority)/10
	values[atPrice], values[atJob] = price, float64(it.Number)
	o := it.Outlook
	values[atWaitedH] = r.view.Now.Sub(o.Submitted).Hours()
	values[atServedGPUH] = o.Served / 3600
	values[atRemaining], _ = o.RemainingWork()

	if run != nil {
		values[atNowN] = float64(run.GPUs)
		values[atServedGPUH] = run.Served(r.view.Now) / 3600
		values[atRemaining], _ = run.RemainingWork(r.view.Now)
	}

	return values
}

// sizeless returns what is known of a job for the names that a condition across
// jobs can look at, in their order.
func (r *round) sizeless(it *queue.Item, run *place.Running, price float64) []float64 {
	all, known := r.facts(it, run, price), namesOf()
	var values []float64
	for _, name := range sizeless() {
		values = append(values, all[slices.Index(known, name)])
	}

	return values
}
