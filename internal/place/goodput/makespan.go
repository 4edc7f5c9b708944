package goodput

import "math"

const (
	balanceSteps  = 60 // of prices
	criticalPower = 8  // power to which the share of the time that a job needs is raised
)

// valueByMakespan values work by how much it shortens the makespan.
//
// The prices are those at which the work of all jobs, each in its cheapest way,
// keeps all kinds of GPUs busy for the same time: no plan can end sooner than
// that. A unit of work is worth what it costs in its cheapest way. A job on the critical
// path (it needs all of the remaining time) is worth more, so it runs without a break; of
// the others the shorter go first, which does not delay the end.
func (m *market) valueByMakespan() {
	m.balance()
	end := 0.0
	for i := range m.tasks {
		t := &m.tasks[i]
		o := &t.options[t.cheapestInTime(m.price, math.Inf(1))]
		end += m.price[o.kind] * float64(o.gpus) * t.remaining / t.pace(o.rate)
	}

	for i := range m.tasks {
		t := &m.tasks[i]
		end = math.Max(end, t.remaining/t.pace(t.options[t.cheapestInTime(m.price, end)].rate))
	}

	keys := make([]float64, len(m.tasks))

	for i := range m.tasks {
		t := &m.tasks[i]
		o := &t.options[t.cheapestInTime(m.price, end)]
		pace := t.pace(o.rate)
		alone := t.remaining / pace / end
		t.value = t.weight * (m.price[o.kind]*float64(o.gpus)*(2-alone) + math.Pow(alone, criticalPower)) / pace
		keys[i] = -t.value * pace / float64(o.gpus)
	}

	m.prune(keys)
}

// balance finds the prices at which all kinds are busy for the same time. They
// are the middle of those that were tried: one job more or less makes the last of
// them swing. All GPUs together cost one.
func (m *market) balance() {
	m.price = make([]float64, len(m.kinds))
	mean := make([]float64, len(m.kinds))
	load := make([]float64, len(m.kinds)) // seconds for which a kind is busy

	for k := range m.price {
		m.price[k] = 1 / math.Max(m.capacity[k], 1)
	}

	for try := range balanceSteps {
		clear(load)
		for i := range m.tasks {
			t := &m.tasks[i]
			o := &t.options[t.cheapestInTime(m.price, math.Inf(1))]
			load[o.kind] += t.remaining / t.pace(o.rate) * float64(o.gpus) / math.Max(m.capacity[o.kind], 1)
		}

		busy := tiny
		for _, l := range load {
			busy += l / float64(len(load))
		}

		sum := 0.0
		for k := range m.price {
			m.price[k] *= math.Exp((load[k]/busy - 1) / (2 + float64(try)/4))
			sum += m.price[k] * m.capacity[k]
		}

		for k := range m.price {
			m.price[k] /= math.Max(sum, tiny)
			mean[k] += m.price[k] / balanceSteps
		}
	}

	m.price = mean
}

// cheapestInTime is the option that costs a job least, of those with which it ends in
// time, or the fastest if there are none.
func (t *task) cheapestInTime(price []float64, end float64) int {
	best, least, fastest := -1, math.Inf(1), 0
	for at := range t.options {
		o := &t.options[at]
		if o.rate > t.options[fastest].rate {
			fastest = at
		}

		if t.remaining/t.pace(o.rate) > end {
			continue
		}

		if cost := price[o.kind] * float64(o.gpus) / t.pace(o.rate); cost < least {
			best, least = at, cost
		}
	}

	if best < 0 {
		return fastest
	}

	return best
}
