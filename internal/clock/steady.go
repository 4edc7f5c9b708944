package clock

import (
	"sync"
	"time"
)

// Source is what a Steady reads: the two clocks of a machine.
type Source struct {
	// Wall may be wrong, and may be set forward or back at any moment.
	Wall func() time.Time
	// Running only ever goes forward, at a steady pace and also while the machine is suspended. Where
	// it starts does not matter. It is called by one goroutine at a time.
	Running func() time.Duration
}

// Steady is a clock that shows the time of day and that nobody can set. It starts with the time on
// the wall and goes on by the machine's running time, so a step of the wall clock changes no
// duration and no order. It approaches the wall clock, but slowly: see Slew.
//
// Its times have no monotonic reading: they are steady as they are, also those that were stored
// and read again. For this reason a deadline of the Go runtime (a context, a connection) is made
// with Deadline and not with them.
type Steady struct {
	source Source

	mu    sync.Mutex
	base  time.Time     // the time when the source ran for start
	start time.Duration // by the source
	gap   time.Duration // by how much the wall clock was ahead then
}

// Slew is how much faster or slower than the machine's running time a Steady goes while it differs
// from the wall clock: one part in so many. It is what NTP allows itself, so whoever reckons with the
// drift of a machine's clock reckons with it already. An hour is made good in 83 days; until then,
// or until the next start, times are off by the rest and durations by no more than this part.
const Slew = 2000

// slewEvery is how often a Steady looks at the wall clock.
const slewEvery = time.Second

// NewSteady returns a steady clock that begins with the time on this machine's wall clock.
func NewSteady() *Steady {
	return SteadyOf(Source{Wall: Wall{}.Now, Running: runningTime()})
}

// SteadyOf returns a steady clock that reads these clocks. It is for tests that step them.
func SteadyOf(source Source) *Steady {
	return &Steady{source: source, base: source.Wall().Round(0), start: source.Running()}
}

// Now returns the current time in UTC. It never goes back.
func (s *Steady) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Steady) now() time.Time {
	passed := max(s.source.Running()-s.start, 0)
	most := passed / Slew
	now := s.base.Add(passed + min(max(s.gap, -most), most))

	if passed >= slewEvery {
		s.base, s.start = now, s.start+passed
		s.gap = s.source.Wall().Sub(now)
	}

	return now.UTC()
}

// Advance sets the clock forward to a time that is known to have passed already, such as the newest in a
// store that was written before a restart or by another machine. It returns by how much that was
// ahead, 0 if it was not.
func (s *Steady) Advance(to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	ahead := to.Sub(s.now())
	if ahead <= 0 {
		return 0
	}

	s.base, s.start = to.Round(0), s.source.Running()
	s.gap = s.source.Wall().Sub(s.base)

	return ahead
}

// Behind returns by how much the clock is behind the wall clock; it is negative if the clock is ahead.
func (s *Steady) Behind() time.Duration {
	return s.source.Wall().Sub(s.Now())
}

// Deadline returns the time that is d from now for the Go runtime: contexts, connections and pipes.
// It carries a monotonic reading, so no step of the wall clock moves it.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }
