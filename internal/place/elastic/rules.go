package elastic

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// grant gives each job its minimum, in order, and skips jobs whose minimum is no longer free.
func (p *pool) grant(jobs []*member) {
	for _, m := range jobs {
		if m.assigned == 0 && m.minGPUs <= p.free && m.minGPUs <= m.maxGPUs {
			p.give(m, m.minGPUs)
		}
	}
}

// give assigns free GPUs to a job.
func (p *pool) give(m *member, gpus int) {
	m.assigned += gpus
	p.free -= gpus
}

// grows reports whether a job that has its minimum can have another step.
func (p *pool) grows(m *member) bool {
	return m.assigned > 0 && m.assigned+m.step <= m.maxGPUs && m.step <= p.free
}

// admitted lists the jobs that can all have their minimum together, in order. It considers at most
// maxKept jobs, which bounds the work for a long queue.
func (p *pool) admitted() []*member {
	var kept []*member
	sum := 0
	for _, m := range p.jobs {
		if sum+m.minGPUs <= p.free && m.minGPUs <= m.maxGPUs && len(kept) < maxAdmitted {
			sum += m.minGPUs
			kept = append(kept, m)
		}
	}

	return kept
}

const maxAdmitted = 256

// elasticFIFO gives each job its minimum in the order of submission, skipping those that do not
// fit, and then the remaining GPUs one at a time in turns. In the public code a job that cannot
// have its minimum is given single GPUs, which breaks the allocator; here only jobs that have their
// minimum grow.
func elasticFIFO(p *pool) {
	p.grant(p.jobs)
	p.roundRobin(p.jobs)
}

// roundRobin gives out the remaining GPUs, one step to each job in turn.
func (p *pool) roundRobin(jobs []*member) {
	for more := true; more && p.free > 0; {
		more = false
		for _, m := range jobs {
			if p.grows(m) {
				p.give(m, m.step)
				more = true
			}
		}
	}
}

// elasticSRJF is elasticFIFO in the order of the remaining time. The public code knows the
// remaining time only of jobs that have run on one GPU, and treats the others as finished; here it
// follows from the declared duration, and jobs without one come last.
func elasticSRJF(p *pool) {
	slices.SortStableFunc(p.jobs, func(a, b *member) int {
		return cmp.Compare(a.remainingTime(p.now, a.minGPUs),
			b.remainingTime(p.now, b.minGPUs))
	})

	elasticFIFO(p)
}

// equalShare gives every job the same number of GPUs, within its minimum and maximum, and the
// remainder to the first jobs in order. Jobs whose minimum is no longer available wait. In the
// published baseline nobody gets anything when the share equals the minimum; here that is a share
// like any other.
func equalShare(p *pool) {
	kept := p.admitted()
	if len(kept) == 0 {
		return
	}

	share := p.free / len(kept)
	p.grant(kept)

	for _, m := range kept { // jobs whose minimum exceeds the share leave less for the others
		if n := (min(share, m.maxGPUs) - m.assigned) / m.step * m.step; n > 0 {
			p.give(m, min(n, p.free/m.step*m.step))
		}
	}

	for _, m := range kept {
		if n := min(m.maxGPUs-m.assigned, p.free) / m.step * m.step; n > 0 {
			p.give(m, n)
		}
	}
}

// ffdl maximises the sum of the speed-ups over the first jobs in the queue that can all have their
// minimum, by dynamic programming. The public code ignores the minimum of a job and fails if there
// is no solution; here each admitted job gets at least its minimum, and the others wait.
func ffdl(p *pool) {
	kept := p.admitted()
	spare := p.free
	for _, m := range kept {
		spare -= m.minGPUs
	}

	const no = math.MaxFloat64 * -1
	best := make([]float64, spare+1) // largest sum for each number of GPUs above the minimums
	next := make([]float64, spare+1)

	picks := make([][]int32, len(kept)) // how many of them each job gets, for each number
	for i, m := range kept {
		picks[i] = make([]int32, spare+1)
		gains := make([]float64, 0, (m.maxGPUs-m.minGPUs)/m.step+1)
		for n := m.minGPUs; n <= m.maxGPUs; n += m.step {
			gains = append(gains, m.speedup(n))
		}

		for g := range next {
			next[g] = no
			for k := 0; k < len(gains) && k*m.step <= g; k++ {
				if v := best[g-k*m.step] + gains[k]; v > next[g] {
					next[g], picks[i][g] = v, int32(k*m.step)
				}
			}
		}

		best, next = next, best
	}

	for i, g := len(kept)-1, spare; i >= 0; i-- {
		n := int(picks[i][g])
		g -= n
		p.give(kept[i], kept[i].minGPUs+n)
	}
}

// afsL gives one step after the other to the job that comes first in a comparison of pairs. Of two
// jobs without GPUs that is the shorter one. Otherwise it is the one with the greater relative
// gain, where the gain of the longer job is relative to its speed after the step and that of the
// shorter one to its speed before.
//
// In the public code a job gets single GPUs below its minimum, and its length is looked up with the
// GPU count of the other job; here the first step is the minimum, and each length uses the job's
// own count.
func afsL(p *pool) {
	for p.free > 0 {
		var top *member
		for _, m := range p.jobs {
			if p.canTake(m) && (top == nil || afsBefore(p, m, top)) {
				top = m
			}
		}

		if top == nil {
			return
		}

		p.give(top, top.nextStep())
	}
}

// nextStep returns how many GPUs a job needs to make progress: its minimum at first, then one step.
func (m *member) nextStep() int {
	if m.assigned == 0 {
		return m.minGPUs
	}

	return m.step
}

func (p *pool) canTake(m *member) bool {
	n := m.nextStep()
	return n <= p.free && m.assigned+n <= m.maxGPUs
}

// afsBefore reports whether job a comes before job b.
func afsBefore(p *pool, a, b *member) bool {
	if a.assigned == 0 && b.assigned == 0 {
		return a.remainingTime(p.now, a.minGPUs) < b.remainingTime(p.now, b.minGPUs)
	}

	la, lb := a.remainingTime(p.now, max(a.assigned, a.minGPUs)), b.remainingTime(p.now, max(b.assigned, b.minGPUs))
	if la <= lb {
		return !longerFirst(b, a)
	}

	return longerFirst(a, b)
}

// longerFirst reports whether the longer of two jobs gains more from its next
// step than the shorter.
func longerFirst(longer, shorter *member) bool {
	lk, sk := longer.speedup(longer.assigned), shorter.speedup(shorter.assigned)
	ln, sn := longer.speedup(longer.assigned+longer.nextStep()), shorter.speedup(shorter.assigned+shorter.nextStep())
	if sk == 0 || ln == 0 { // the shorter has no GPUs yet, or the longer would have none
		return false
	}

	return (ln-lk)/ln > (sn-sk)/sk
}

// edlAsPublished moves all jobs towards the same fulfilment, which is the position of a job between
// its minimum (0) and its maximum (1). For a waiting job, the most fulfilled jobs give up GPUs
// until it has its minimum; free GPUs go to the least fulfilled jobs.
func edlAsPublished(p *pool) {
	p.serve(func(want int) {
		for p.free < want {
			m := p.fulfilled(func(m *member) bool { return m.assigned-m.step >= m.minGPUs }, 1)
			p.give(m, -m.step)
		}
	})

	p.fill(0)
}

// edl is edlAsPublished with two defects corrected. The published autoscaler runs only every half
// minute, and it gives all GPUs to the jobs that are present: a new job waits for the next run and
// then for others to shrink. Here the rule is applied at once. A starting job leaves half of the
// free GPUs alone, and while jobs keep arriving, room is kept for as many as arrived in the last
// minute. A job restarts when its number of GPUs changes, so a few jobs change by much instead of
// all by a little, and jobs grow only when none has arrived and none was changed for a while.
func edl(p *pool) {
	p.serve(p.shrink)
	keep := p.expected()
	p.shrink(keep)

	for _, m := range p.jobs {
		if n := min(m.maxGPUs-m.assigned, (p.free-keep)/2) / m.step * m.step; m.run == nil && m.assigned > 0 && n > 0 {
			p.give(m, n)
		}
	}

	if last := p.lastArrival(); p.now.Sub(last) < cooldown {
		p.wakeAt = sooner(p.wakeAt, last.Add(cooldown))
	} else if !p.coolingDown {
		p.grow(keep)
	}
}

// shrink takes GPUs from the most fulfilled jobs until want GPUs are free, from each as many as
// needed.
func (p *pool) shrink(want int) {
	for p.free < want {
		m := p.fulfilled(func(m *member) bool { return m.assigned-m.step >= m.minGPUs }, 1)
		if m == nil {
			return
		}

		n := (want - p.free + m.step - 1) / m.step * m.step
		p.give(m, -min(n, (m.assigned-m.minGPUs)/m.step*m.step))
	}
}

// worthGrowing is the factor by which a running job must grow to be worth a restart.
const worthGrowing = 1.25

// grow gives the free GPUs, except keep of them, to running jobs, the least fulfilled first, to
// each as many as it can use.
func (p *pool) grow(keep int) {
	done := map[*member]bool{}
	for p.free > keep {
		m := p.fulfilled(func(m *member) bool { return p.grows(m) && !done[m] }, -1)
		if m == nil {
			return
		}

		done[m] = true

		n := min(m.maxGPUs-m.assigned, p.free-keep) / m.step * m.step
		if float64(m.assigned+n) >= worthGrowing*float64(m.has) || m.assigned+n+m.step > m.maxGPUs {
			p.give(m, n)
		}
	}
}

// lastArrival returns when the newest job arrived, zero if that was not within the arrival window.
func (p *pool) lastArrival() time.Time {
	var last time.Time
	for _, a := range p.arrivals {
		if a.at.After(last) {
			last = a.at
		}
	}

	return last
}

// serve leaves every running job what it has and gives queued jobs their minimum. It calls shrink
// to free GPUs for them if running jobs have enough above their minimum.
func (p *pool) serve(shrink func(want int)) {
	spare := 0 // GPUs that jobs have above their minimum
	for _, m := range p.jobs {
		m.assigned = min(m.has, max(m.maxGPUs, m.minGPUs))
		p.free -= m.assigned
		spare += max(m.assigned-m.minGPUs, 0) / m.step * m.step
	}

	for _, m := range p.jobs {
		if m.assigned > 0 || m.minGPUs > m.maxGPUs || m.minGPUs > p.free+spare {
			continue
		}

		before := p.free
		shrink(m.minGPUs)
		spare -= p.free - before
		p.give(m, m.minGPUs)
	}
}

// fill gives the free GPUs, except keep of them, to the least fulfilled jobs.
func (p *pool) fill(keep int) {
	for p.free > keep {
		m := p.fulfilled(func(m *member) bool { return p.grows(m) && p.free-m.step >= keep }, -1)
		if m == nil {
			return
		}

		p.give(m, m.step)
	}
}

// expected returns how many GPUs the jobs that may arrive soon need at least: as many as arrived in
// the last minute one after the other. Jobs that arrived together with the first of them are not
// counted, because they say nothing about the rate. It sets the wake-up time to when the number
// falls.
func (p *pool) expected() int {
	slices.SortFunc(p.arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	sum := 0
	for _, a := range p.arrivals {
		if a.at.After(p.arrivals[0].at) {
			sum += a.minGPUs
		}
	}

	if sum > 0 {
		p.wakeAt = sooner(p.wakeAt, p.arrivals[0].at.Add(arrivalWindow))
	}

	return sum
}

// fulfilled returns the most (sign 1) or least (sign -1) fulfilled of the qualifying jobs. Of
// equals it returns the first in order when giving and the last when taking.
func (p *pool) fulfilled(qualifies func(*member) bool, sign float64) *member {
	var best *member
	most := 0.0
	for _, m := range p.jobs {
		if !qualifies(m) {
			continue
		}

		f := sign
		if m.maxGPUs > m.minGPUs {
			f = sign * float64(m.assigned-m.minGPUs) / float64(m.maxGPUs-m.minGPUs)
		}

		if best == nil || f > most || f == most && sign > 0 {
			best, most = m, f
		}
	}

	return best
}
