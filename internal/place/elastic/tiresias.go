package elastic

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place/lineup"
)

// Parameters of the elastic Tiresias policy of the Voda scheduler.
const (
	// allotment is the GPU-seconds after which a job moves to the second queue.
	allotment = float64(time.Hour / time.Second)
	// promoteAfter is how many times as long as it ran a job waits before it returns to the first queue.
	promoteAfter = 8
	// compactAbove is the number of waiting jobs above which jobs of the second queue get their minimum.
	compactAbove = 10
	// worthHalf is the fraction of one GPU's speed that the last of the wanted GPUs must still add.
	worthHalf = 0.5
)

// tiresiasL is least attained service with two queues: each job gets the number of GPUs that it
// wants, or waits. A job that has used one GPU-hour moves to the second queue, and a job that has
// waited eight times as long as it ran returns to the first. Within a queue, jobs that have run
// before come first, then the order of submission decides.
//
// Voda stores when each job last ran and for how long. Here the queue follows from the total GPU
// time of the job: it may use one GPU-hour in the first queue, and another one for each time that
// it has waited eight times as long as such an hour takes.
func tiresiasL(p *pool) {
	p.byQueue()

	for _, m := range p.jobs {
		if n := m.wanted(); n <= p.free {
			p.give(m, n)
		}
	}

	p.nextTurn()
}

// elasticTiresias is tiresiasL with two changes: when many jobs wait, those of the second queue get
// only their minimum, and the remaining GPUs go step by step to the job, running or waiting, that
// gains most from them.
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

// byGain gives the remaining GPUs, step by step, to the job with the largest gain per GPU of its
// next step.
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

// byQueue sorts the jobs by queue, then those that have run before first, then by submission.
func (p *pool) byQueue() {
	slices.SortStableFunc(p.jobs, func(a, b *member) int {
		return cmp.Or(lineup.TrueFirst(p.second(b), p.second(a)), lineup.TrueFirst(a.hasRun(), b.hasRun()))
	})
}

// hasRun reports whether a job runs now or has run before.
func (m *member) hasRun() bool { return m.run != nil || m.it.Outlook.Ran > 0 }

// second reports whether a job is in the second queue.
func (p *pool) second(m *member) bool {
	used, earned := m.allotments(p.now)
	return used >= 1+math.Floor(earned)
}

// allotments returns how many GPU-hours a job has used, and how many it has earned by waiting.
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

// wanted returns the number of GPUs that an elastic job would request if it had to name one number:
// as many as still add worthHalf of the speed of the first ones.
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

// nextTurn sets the wake-up time to when the next job changes its queue, if a job waits for that.
func (p *pool) nextTurn() {
	if !p.hasUnplaced && !slices.ContainsFunc(p.jobs, func(m *member) bool { return m.assigned == 0 }) {
		return
	}

	for _, m := range p.jobs {
		used, earned := m.allotments(p.now)
		limit := 1 + math.Floor(earned)

		var in float64 // seconds from now
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

// tolerance is the rounding error allowed in a sum of GPU-seconds.
const tolerance = 1e-6
