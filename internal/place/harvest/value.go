package harvest

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/queue"
)

// risk is how likely nodes of a kind are to be taken away. A node that has been open for some time
// is likely to stay open for about as long again, so nodes that opened recently are the likeliest
// to be lost. Nodes that opened together are likely to be taken together.
type risk struct {
	each  float64 // mean rate for a node, per second
	group float64 // mean number of nodes that opened together
}

// stableAge is the age from which on a node counts as permanent.
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

// rate returns how many times per second a job on a number of nodes is expected to lose one of
// them.
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

// patience adds a penalty for leaving a job without nodes although it was submitted longer than
// Patience ago. The earlier its place in the order, the higher the penalty.
func (r *round) patience(total float64) {
	for j := range r.jobs {
		b := &r.jobs[j]
		if r.view.Now.Sub(b.item.Outlook.Submitted) >= r.policy.Patience {
			b.sizes.None = -total * (1 + 1/float64(j+1))
		}
	}
}

// costs describes what a change of size costs a job. Times are in seconds.
type costs struct {
	horizon     float64 // length of the look-ahead
	start       float64 // from a start to the first unit of work
	save        float64 // to save a checkpoint before the stop
	firstWork   float64 // to the first unit of work if nothing is changed
	lostWork    float64 // work lost when a node is taken
	remaining   float64 // units of work, infinite if unknown
	gain        float64 // weight of its objective, which corrects for the length of its horizon
	hasFollower bool    // another job waits that would follow on its nodes
}

// defaultStart is the assumed start-up time of a job of which nothing is known.
const defaultStart = 30 * time.Second

// horizonFactor is the least length of the look-ahead as a multiple of the cost of a change, so
// that a job with a long start-up can still start.
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

// seconds returns for how much of the horizon a job works at a rate: what remains after its
// start-up, less the expected losses with nodes that are taken, and no more than its remaining work
// needs. If another job waits, that one is assumed to follow on the nodes and to do as much there.
// Otherwise the last minutes of a job would be worth so little that its nodes would go to others,
// which would have to restart for them.
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

// tieBonus is the fraction of its value by which a job prefers its present size if all else is
// equal.
const tieBonus = 1e-6

// choices lists the values of a job's sizes on a kind.
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

// room is how much of a kind a job could have.
type room struct{ nodes, gpus int }

// usable returns how much of a kind jobs with this need could have. Nodes of one kind may still
// differ in class, processors and memory.
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

// sizesOf lists the sizes that a need allows on a kind: each number of nodes within its bounds,
// with each number of GPUs within its bounds.
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
		nodes := max(n.Nodes, (gpus+high-1)/high) // the minimum number of nodes for so many GPUs
		if nodes*low <= gpus && nodes <= has.nodes {
			list = append(list, size{gpus, gpus, nodes})
		}
	}

	return list
}

// worth evaluates the objective for a size. An undefined value counts as 0 and is recorded, so that
// the reason can mention it.
func (r *round) worth(b *bidder, values []float64, s size, rate, base float64, c *costs) float64 {
	values[atN], values[atNodes] = float64(s.gpus), float64(s.nodes)
	values[atThroughput], values[atSpeedup] = rate, rate/base
	values[atRemainingH], values[atSlackH] = 0, 1e6

	ends := 0.0
	if !math.IsInf(c.remaining, 1) {
		ends = c.remaining / rate / time.Hour.Seconds()
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

// facts returns the values of the names that do not depend on the size, in the order of Names.
func (r *round) facts(it *queue.Item, run *place.Running, price money.PerGPUHour) []float64 {
	values := make([]float64, names)
	values[atPriority], values[atWeight] = float64(it.Priority), 1+float64(it.Priority)/10
	values[atPrice], values[atJob] = float64(price), float64(it.Number)
	o := it.Outlook
	values[atWaitedH] = r.view.Now.Sub(o.Submitted).Hours()
	values[atServedGPUH] = o.Served / time.Hour.Seconds()
	values[atRemaining], _ = o.RemainingWork()

	if run != nil {
		values[atNowN] = float64(run.GPUs)
		values[atServedGPUH] = run.Served(r.view.Now) / time.Hour.Seconds()
		values[atRemaining], _ = run.RemainingWork(r.view.Now)
	}

	return values
}

// sizeless returns the values of the names that a condition across jobs may use, in their order.
func (r *round) sizeless(it *queue.Item, run *place.Running, price money.PerGPUHour) []float64 {
	all, known := r.facts(it, run, price), namesOf()
	var values []float64
	for _, name := range sizeless() {
		values = append(values, all[slices.Index(known, name)])
	}

	return values
}
