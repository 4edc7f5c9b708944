package goodput

import (
	"cmp"
	"math"
	"slices"
)

// priceSteps is how often prices are tried. After two dozen they change by a percent.
const priceSteps = 24

// valueByCompletion finds the price of a GPU of each kind, and what a unit of each job's
// work is worth at these prices.
//
// A job's cheapest way to its end is the option with the least (w + p·n) / rate: it
// keeps w jobs waiting and n GPUs at price p busy until then. What a unit of work
// is worth is that, at the price that will hold when the job ends. Prices fall as
// jobs end: with the k-th of m jobs from the end they are k-½ of m-½ of the present
// price, as in the optimum for jobs with equal speed-up (heSRPT). Given what work
// is worth, each job wants the option with the most worth per second above its
// price. Where more is wanted than there is, the price rises.
func (m *market) valueByCompletion() {
	m.price = make([]float64, len(m.kinds))
	for k := range m.price {
		m.price[k] = float64(len(m.tasks)) / math.Max(m.total(), 1)
	}

	cost := make([]float64, len(m.tasks))
	for i := range m.tasks {
		cost[i] = m.tasks[i].cost(m.price)
	}

	m.prune(cost)

	for step := range priceSteps {
		if step%4 == 0 {
			m.rank()
		}

		for i := range m.tasks {
			m.tasks[i].value = m.tasks[i].cheapest(m.price, m.tasks[i].share)
		}

		m.adjustPrices(step)
	}

	for i := range m.tasks {
		m.tasks[i].value = m.tasks[i].cheapest(m.price, m.tasks[i].share)
	}
}

// adjustPrices raises the price of the kinds of which the jobs want more than there is, and lowers that
// of the others: in great steps first, then in smaller ones, so that it settles.
func (m *market) adjustPrices(step int) {
	wanted := make([]float64, len(m.kinds))
	for i := range m.tasks {
		t := &m.tasks[i]
		if at := t.preferred(m.price); at >= 0 {
			wanted[t.options[at].kind] += float64(t.options[at].gpus)
		}
	}

	power := 1 / (1 + float64(step)/4)
	for k := range m.price {
		ratio := math.Min(math.Max(wanted[k]/math.Max(m.capacity[k], 1), 0.25), 4)
		m.price[k] = math.Max(m.price[k]*math.Pow(ratio, power), tiny)
	}
}

// total is how many GPUs there are.
func (m *market) total() float64 {
	sum := 0.0
	for _, r := range m.capacity {
		sum += r
	}

	return sum
}

// cheapest is what a unit of the job's work costs on the way that costs least, at
// a share of the prices.
func (t *task) cheapest(price []float64, share float64) float64 {
	best := math.Inf(1)
	for i := range t.options {
		o := &t.options[i]
		if cost := (t.weight + share*price[o.kind]*float64(o.gpus)) / t.pace(o.rate); cost < best {
			best = cost
		}
	}

	return best
}

// cost is what a job costs until its end, for each job that it counts as.
func (t *task) cost(price []float64) float64 { return t.remaining * t.cheapest(price, 1) / t.weight }

// preferred returns the option that is worth most above its price, -1 if none is worth it.
func (t *task) preferred(price []float64) int {
	at, best := -1, 0.0
	for i := range t.options {
		o := &t.options[i]
		if gain := t.value*t.pace(o.rate) - price[o.kind]*float64(o.gpus); gain > best {
			at, best = i, gain
		}
	}

	return at
}

// similarCost is up to which ratio of what they cost jobs are taken to end together: who
// is a little shorter should not be the reason to stop who runs.
const similarCost = 1.1

// rank orders the jobs by what they cost until their end, and sets the share of
// the price that will hold when each of them ends.
func (m *market) rank() {
	cost := make([]float64, len(m.tasks))
	for i := range m.tasks {
		cost[i] = m.tasks[i].cost(m.price)
	}

	order := ascending(cost)

	all := float64(len(m.tasks) + m.prunedJobs)
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && cost[order[to]] <= cost[order[from]]*similarCost {
			to++
		}

		// The middle one of those that end together stands for all of them.
		share := (all - float64(from+to)/2) / (all - 0.5)
		for ; from < to; from++ {
			m.tasks[order[from]].share = share
		}
	}
}

// ascending returns the indices of keys, the least first.
func ascending(keys []float64) []int {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}

	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })

	return order
}

// A plan looks at all jobs that run, and at so many waiting ones that could fill
// the GPUs so many times.
const (
	minTasks    = 64
	queueFactor = 3
)

// prune leaves out waiting jobs that come so late that they cannot run now: they
// count only as jobs that wait. The least key comes first.
func (m *market) prune(keys []float64) {
	most := queueFactor * m.total()
	if float64(len(m.tasks)) <= minTasks+most {
		return
	}

	keep := make([]bool, len(m.tasks))

	kept, gpus := 0, 0.0
	for _, i := range ascending(keys) {
		t := &m.tasks[i]
		keep[i] = t.run != nil || kept < minTasks || gpus < most
		if keep[i] {
			kept++
			gpus += float64(t.options[0].gpus)
		}
	}

	at := 0
	for i := range m.tasks {
		if keep[i] {
			m.tasks[at] = m.tasks[i]
			at++
		}
	}

	m.prunedJobs = len(m.tasks) - at
	m.tasks = m.tasks[:at]
}
