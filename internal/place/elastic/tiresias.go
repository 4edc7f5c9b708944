package elastic

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place/lineup"
)

// What the elastic Tiresias of the Voda scheduler goes by.
const (
	allotment    = 3600 // GPU-seconds after which a job falls into the second queue
	promoteAfter = 8    // times as long as it ran that a job may wait before it is in the first again
	compactAbove = 10   // waiting jobs from which on those of the second queue get their least
	worthHalf    = 0.5  // of the speed of a GPU that the last of the wanted ones must still bring
)

// tiresiasL is least attained service with two queues: each job gets the number
// it wants, or waits. Who has had an hour of a GPU falls into the second queue,
// and who has waited eight times as long as it ran is in the first again.
// Within a queue who has run before comes first, then who was submitted first.
// Voda keeps in mind when a job last ran and how long. Here it follows from what
// the job has had in all: an hour of a GPU in the first queue, and another one for
// each time that it has waited eight times as long as such an hour takes.
func tiresiasL(p *pool) {
	p.byQueue()

	for _, m := range p.jobs {
		if n := m.wanted(); n <= p.free {
			p.give(m, n)
		}
	}

	p.nextTurn()
}

// elasticTiresias is tiresiasL, but when many wait those of the second queue get
// their least, and what is left goes step by step to who gains most from it,
// waiting jobs among them.
func elasticTiresias(p *pool) {
	p.byQueue()
	all := p.free
	grant := func(compact bool) (waiting int) {
		p.free = all
		for _, m := range p.jobs {
			m.assigned = 0
			n := m.wanted()
			if compact && p.second(m) {
				n = m.minGPUs
			}

			if n <= p.free {
				p.give(m, n)
			} else {
				waiting++
			}
		}

		return waiting
	}

	if grant(false) > compactAbove {
		grant(true)
	}

	p.byGain()
	p.nextTurn()
}

// byGain hands out what is left to who gains most from the next step, for each GPU of it.
func (p *pool) byGain() {
	for p.free > 0 {
		var best *member
		most := 0.0
		for _, m := range p.jobs {
			if !p.canTake(m) {
				continue
			}

			n := m.nextStep()
			if gain := (m.speedup(m.assigned+n) - m.speedup(m.assigned)) / float64(n); gain > most+tolerance {
				best, most = m, gain
			}
		}

		if best == nil {
			return
		}

		p.give(best, best.nextStep())
	}
}

// byQueue orders the jobs by queue, then those that have run before, then by submission.
func (p *pool) byQueue() {
	slices.SortStableFunc(p.jobs, func(a, b *member) int {
		return cmp.Or(lineup.TrueFirst(p.second(b), p.second(a)), lineup.TrueFirst(a.hasRun(), b.hasRun()))
	})
}

// hasRun reports whether a job runs or has run.
func (m *member) hasRun() bool { return m.run != nil || m.it.Outlook.Ran > 0 }

// second reports whether a job is in the second queue.
func (p *pool) second(m *member) bool {
	used, earned := m.allotments(p.now)
	return used >= 1+math.Floor(earned)
}

// allotments are how many hours of a GPU a job has had, and how many it has
// earned by waiting.
func (m *member) allotments(now time.Time) (used, earned float64) {
	gpus := m.it.Outlook.Ran
	if m.run != nil {
		gpus = m.run.GPUs
	}

	had := lineup.Served(now, m.it, m.run)
	gpus = max(gpus, 1)
	waited := now.Sub(m.it.Outlook.Submitted).Seconds() - had/float64(gpus)

	return (had + tolerance) / allotment, (math.Max(waited, 0) + tolerance) * float64(gpus) / (promoteAfter * allotment)
}

// wanted is the number of GPUs that a job of a range would ask for if it had to
// name one: as many as still bring half of what the first do.
func (m *member) wanted() int {
	n := m.minGPUs
	if m.curve == nil {
		return n
	}

	floor := worthHalf * m.rate(m.minGPUs) / float64(m.minGPUs)
	for k := m.minGPUs + m.step; k <= m.maxGPUs; k += m.step {
		if m.rate(k)/float64(k) >= floor {
			n = k
		}
	}

	return n
}

// nextTurn asks to be asked when the first job changes its queue, if one waits for it.
func (p *pool) nextTurn() {
	if !p.hasUnplaced && !slices.ContainsFunc(p.jobs, func(m *member) bool { return m.assigned == 0 }) {
		return
	}

	for _, m := range p.jobs {
		used, earned := m.allotments(p.now)
		limit := 1 + math.Floor(earned)

		var in float64 // seconds
		switch {
		case m.assigned > 0 && used < limit:
			in = (limit - used) * allotment / float64(m.assigned)
		case m.assigned == 0 && used >= limit:
			in = (math.Floor(used) - earned) * promoteAfter * allotment / float64(max(m.it.Outlook.Ran, 1))
		}

		if in > 0 {
			p.wakeAt = sooner(p.wakeAt, p.now.Add(job.Seconds(in)+time.Millisecond))
		}
	}
}

// tolerance is by how much a sum of GPU-seconds may be off.
const tolerance = 1e-6
