package elastic

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// grant gives each job its least, in order, if that is left. One that does not
// fit is passed over.
func (p *pool) grant(jobs []*member) {
	for _, m := range jobs {
		if m.assigned == 0 && m.minGPUs <= p.free && m.minGPUs <= m.maxGPUs {
			p.give(m, m.minGPUs)
		}
	}
}

// give takes GPUs for a job out of what is free.
func (p *pool) give(m *member, gpus int) {
	m.assigned += gpus
	p.free -= gpus
}

// grows reports whether a job that has its least can have another step.
func (p *pool) grows(m *member) bool {
	return m.assigned > 0 && m.assigned+m.step <= m.maxGPUs && m.step <= p.free
}

// admitted lists the jobs that can all have their least together, the first in order
// first. At most maxKept are looked at, so that a long line costs no more.
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

// elasticFIFO gives each job its least by submission, later ones passing those
// that do not fit, then what is left one GPU at a time in turns. In the public
// code a job that could not get its least is handed single GPUs and breaks the
// allocator; here only those grow that have their least.
func elasticFIFO(p *pool) {
	p.grant(p.jobs)
	p.roundRobin(p.jobs)
}

// roundRobin hands out what is left, a step for each job in turn.
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

// elasticSRJF is elasticFIFO in the order of the time that is left. The public
// code knows it only of jobs that have run on one GPU, and takes the others for
// finished; here it follows from what was declared, and who declared nothing
// comes last.
func elasticSRJF(p *pool) {
	slices.SortStableFunc(p.jobs, func(a, b *member) int {
		return cmp.Compare(a.remainingTime(p.now, a.minGPUs),
			b.remainingTime(p.now, b.minGPUs))
	})

	elasticFIFO(p)
}

// equalShare gives every job the same, at least its least and at most its most,
// and what is over to the first in order. Jobs for which not even the least is
// left wait. In the published baseline everyone gets nothing when the share is
// just the least; here that is a share like any other.
func equalShare(p *pool) {
	kept := p.admitted()
	if len(kept) == 0 {
		return
	}

	share := p.free / len(kept)
	p.grant(kept)

	for _, m := range kept { // those whose least is more than the share leave less for the others
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

// ffdl maximises the sum of the speed-ups over the first jobs in the queue that can
// all have their least, by dynamic programming. The public code forgets the
// least of a job and fails where there is no answer; here each that is kept has
// it, and the rest waits.
func ffdl(p *pool) {
	kept := p.admitted()
	spare := p.free
	for _, m := range kept {
		spare -= m.minGPUs
	}

	const no = math.MaxFloat64 * -1
	best := make([]float64, spare+1) // greatest sum with so many GPUs above the leasts
	next := make([]float64, spare+1)

	picks := make([][]int32, len(kept)) // what the job gets of them for each sum
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

// afsL gives one GPU after the other to the job that comes first of any pair: of
// two that have none the shorter, else the one whose gain is greater, the longer
// job's in parts of what it then has and the shorter's in parts of what it has. In
// the public code a job gets single GPUs below its least, and its length is looked
// up with the other's number; here the first step is the least, and lengths are
// those with a job's own number.
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

// nextStep is what a job needs to go on: its least, or a step.
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

// afsBefore reports whether a comes before b.
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
	if sk == 0 || ln == 0 { // the shorter has nothing yet, or the longer would have nothing
		return false
	}

	return (ln-lk)/ln > (sn-sk)/sk
}

// edlAsPublished brings jobs towards the same fulfilment, the share of the way
// from their least to their most: for a job that waits the most fulfilled give
// GPUs until it has its least, and what is free goes to the least fulfilled.
func edlAsPublished(p *pool) {
	p.serve(func(want int) {
		for p.free < want {
			m := p.fulfilled(func(m *member) bool { return m.assigned-m.step >= m.minGPUs }, 1)
			p.give(m, -m.step)
		}
	})

	p.fill(0)
}

// edl is the same rule with its two defects corrected. The published autoscaler
// looks only every half minute, and it fills the yard with whoever is there: who
// comes then waits for its next look and for others to shrink. Here the rule is
// followed at once. Who starts leaves half of what is free, and while jobs keep
// coming, room is kept for as many as came in the last minute. Jobs here start
// again when their number changes: so a few of them change by much instead of all
// by a little, and they grow only when nobody came and nothing was changed for a
// while.
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

// shrink takes from the most fulfilled until so many GPUs are free, as much as
// needed from each.
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

// worthGrowing is by how much a running job must grow to be started again for it.
const worthGrowing = 1.25

// grow gives what is free, but for so much, to running jobs, the least fulfilled
// first, as much as each can use.
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

// lastArrival is when the last job came, as far as that was lately.
func (p *pool) lastArrival() time.Time {
	var last time.Time
	for _, a := range p.arrivals {
		if a.at.After(last) {
			last = a.at
		}
	}

	return last
}

// serve lets everyone keep what it has, and those that are queued have their least,
// which shrink makes free if it can be had at all.
func (p *pool) serve(shrink func(want int)) {
	spare := 0 // that jobs have above their least
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

// fill gives what is free, but for so much, to the least fulfilled.
func (p *pool) fill(keep int) {
	for p.free > keep {
		m := p.fulfilled(func(m *member) bool { return p.grows(m) && p.free-m.step >= keep }, -1)
		if m == nil {
			return
		}

		p.give(m, m.step)
	}
}

// expected is how many GPUs those need at least who may come soon: as many as
// came in the last minute, one after the other. Who came together with the first of
// them says nothing. It asks to be asked again when that will be less.
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

// fulfilled returns the most (1) or least (-1) fulfilled job of those that
// qualify, of equals the first in order when giving and the last when taking.
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
