package goodput

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/place"
)

const (
	// fairPower is the power to which it counts how little a job has had. With one the product of
	// the jobs' throughputs is greatest; the greater the power, the more only the job counts that
	// has least.
	fairPower = 8
	// leastShare and mostShare bound what a job counts as having had, in equal shares.
	leastShare, mostShare = 0.02, 50
	// turn is for how long a job prefers one kind of GPU if nobody knows which is faster, and turnGain
	// what the kind counts for in that time. Jobs whose restart takes more than turnCost of it stay.
	turn     = time.Hour
	turnGain = 1.5
	turnCost = 0.05
	// settling is the time, in seconds, for which a new job counts as having had its equal share.
	settling = 600
)

// valueByFairness values work by how little its job has had (max-min fairness).
//
// The throughput of a job since its submission is measured by what an equal share of the GPUs, with
// as much of each kind as the yard has, would have given it: so jobs with many GPUs and few, on fast
// kinds and slow, are comparable. A unit of work is worth the more the less that is. Repeated plans
// that give the GPUs where they are worth most let jobs take turns, on the kinds where each is
// comparatively fast, and so raise the throughput of the job that has least. How much work remains
// does not matter.
func (m *market) valueByFairness() {
	keys := make([]float64, len(m.tasks))

	for i := range m.tasks {
		t := &m.tasks[i]
		perGPU := m.averageRate(t)
		had := math.Min(math.Max(m.shareSoFar(t, perGPU)/t.weight, leastShare), mostShare)
		t.value = t.weight * math.Pow(had, -fairPower) / perGPU
		keys[i] = -t.value * t.options[0].rate / float64(t.options[0].gpus)
	}

	m.price = make([]float64, len(m.kinds))
	for k := range m.price {
		m.price[k] = 1
	}

	m.prune(keys)

	for step := range priceSteps {
		m.adjustPrices(step)
	}
}

// averageRate is what an average GPU of the yard adds to the rate of a job that uses it well. A kind on which
// the job cannot run adds nothing.
func (m *market) averageRate(t *task) float64 {
	best := make([]float64, len(m.kinds))
	for i := range t.options {
		o := &t.options[i]
		best[o.kind] = math.Max(best[o.kind], o.rate/float64(o.gpus))
	}

	sum := 0.0
	for k, rate := range best {
		sum += rate * m.capacity[k] / math.Max(m.total(), 1)
	}

	return math.Max(sum, tiny)
}

// shareSoFar is the throughput of a job since its submission, in equal shares of the yard.
func (m *market) shareSoFar(t *task, perGPU float64) float64 {
	equal := m.total() / math.Max(float64(len(m.tasks)), 1)
	there := math.Max(m.view.Now.Sub(t.item.Outlook.Submitted).Seconds(), 0)

	return (m.workDone(t)/(perGPU*equal) + settling) / (there + settling)
}

// workDone is how much work a job has done, in the units of its rates.
func (m *market) workDone(t *task) float64 {
	o := t.item.Outlook

	switch {
	case o.HasRates() && t.run != nil:
		return t.run.Done(m.view.Now)
	case o.HasRates():
		return o.Done
	case t.run != nil:
		return t.run.ServedAsked(m.view.Now) / float64(t.options[0].gpus)
	}

	return o.Served / float64(t.options[0].gpus)
}

// setTurn lets a job prefer one kind of GPU after the other if nobody knows on which it is faster: neither
// its speed nor the specifications of the GPUs are known. Otherwise it would have to stay on the kind that
// it happened to get. A job whose restart takes long stays there all the same.
func (m *market) setTurn(t *task) {
	if t.item.Outlook.HasRates() || t.restart > turnCost*turn.Seconds() {
		return
	}

	var kinds []int

	for i := range t.options {
		kind := t.options[i].kind
		if tflops, _ := m.kinds[kind].GPU.TFLOPS(); tflops > 0 {
			return
		}

		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}

	if len(kinds) < 2 {
		return
	}

	t.takesTurns = true
	round := m.view.Now.Truncate(turn).Sub(time.Unix(0, 0)) / turn
	preferred := kinds[(uint64(round)+t.item.Number)%uint64(len(kinds))]

	t.options = slices.Clone(t.options)
	for i := range t.options {
		if t.options[i].kind == preferred {
			t.options[i].rate *= turnGain
		}
	}
}

// rateInTurn is how fast a job that takes turns counts as being on seats.
func (m *market) rateInTurn(t *task, list []place.Allocation) float64 {
	at, found := m.room(list[0].Node)
	if !found {
		return 1
	}

	kind := m.kind(m.view.Rooms[at].Kind)

	i := slices.IndexFunc(t.options, func(o option) bool { return o.kind == kind })
	if i < 0 {
		return 1
	}

	return t.options[i].rate
}

// takeTurns reports whether there are jobs that take turns.
func (m *market) takeTurns() bool {
	return slices.ContainsFunc(m.tasks, func(t task) bool { return t.takesTurns })
}
