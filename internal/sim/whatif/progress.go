package whatif

import (
	"sync"
	"time"

	"trainyard/internal/clock"
)

// progress counts what all simulations have done.
type progress struct {
	notify  func(Progress)
	clock   clock.Clock
	started time.Time
	jobs    int // in all, 0 if unknown
	total   int

	mu    sync.Mutex
	done  int
	cells int
	last  time.Time
}

const (
	lookEvery = 256                    // steps of a simulation between two looks at the clock
	tellEvery = 100 * time.Millisecond // between two reports
)

func newProgress(m *Matrix, tasks []task) *progress {
	p := &progress{notify: m.Progress, clock: m.Clock, total: len(tasks)}
	if p.notify == nil || p.clock == nil {
		p.notify = nil
		return p
	}

	for i := range tasks {
		if tasks[i].source.Jobs == 0 {
			p.jobs = 0
			break
		}

		p.jobs += tasks[i].source.Jobs
	}

	p.started = p.clock.Now()

	return p
}

// counter returns what one simulation tells after each step, nil if nobody
// listens, and what is called at its end.
func (p *progress) counter() (step func(now time.Duration, ended int), end func()) {
	if p.notify == nil {
		return nil, func() {}
	}

	steps, told, last := 0, 0, 0
	step = func(_ time.Duration, ended int) {
		last = ended
		steps++
		if steps%lookEvery == 0 {
			p.add(ended-told, 0)
			told = ended
		}
	}

	return step, func() { p.add(last-told, 1) }
}

// add counts jobs and simulations that have ended, and reports the progress now and then.
func (p *progress) add(jobs, cells int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.done += jobs
	p.cells += cells
	if now := p.clock.Now(); now.Sub(p.last) >= tellEvery {
		p.last = now
		p.notify(p.report(now))
	}
}

// report says how far it is now.
func (p *progress) report(now time.Time) Progress {
	out := Progress{Done: p.done, Jobs: p.jobs, Cells: p.cells, Total: p.total, Elapsed: now.Sub(p.started)}
	if s := out.Elapsed.Seconds(); s > 0 {
		out.Rate = float64(p.done) / s
	}

	if out.Rate > 0 && p.jobs > p.done {
		out.Remaining = time.Duration(float64(p.jobs-p.done) / out.Rate * float64(time.Second)).Round(time.Second)
	}

	return out
}

// end reports the progress a last time.
func (p *progress) end() {
	if p.notify == nil {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.notify(p.report(p.clock.Now()))
}
