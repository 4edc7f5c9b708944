package sim

import (
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// Result is what a simulation came to.
type Result struct {
	Policy                              string
	Jobs, Succeeded, Failed, Cancelled  int
	Unfinished                          int // had not ended
	Completion, Waiting                 Summary
	Slowdown                            float64 // mean bounded slowdown: completion over run time, of at least ten seconds
	Makespan                            time.Duration
	Utilisation                         float64 // GPU-time in use of the GPU-time there was until the last end or use
	Energy, IdleEnergy                  float64 // kWh of nodes in use, and of unused ones
	Money, IdleMoney, LateMoney         float64
	TransferMoney                       float64 // part of Money: for what went between own machines and the cloud
	LateJobs                            int     // jobs that missed their deadline
	Lateness                            time.Duration
	Fairness                            float64 // Jain's index of the jobs' slowdown
	Starved                             int     // jobs that waited for more than an hour and ten times their run time
	Runs, Stops, Moves, Rescales        int
	Suspensions                         int     // part of Stops: in place, to lend a GPU
	Provisioned                         int     // machines requested from providers
	Refused                             int     // jobs that could never have run
	Work, LostWork                      float64 // units done by all jobs, and units done and lost
	StartTime                           float64 // GPU-seconds spent on starts and restores
	GPUSeconds                          float64 // GPU-seconds in use
	Events, Messages, Rounds, Decisions int
	// entries of the yard's feed: all turns of jobs, runs and nodes
	Turns        int
	ByClass      map[fleet.Class]float64 // money
	Use          []Point                 // share of GPUs in use over time, in seconds
	Distribution []Point                 // share of jobs done within so many seconds
	Spans        []Span
}

// Span is a stretch of a node's time that a run had.
type Span struct {
	Job, Node string
	From, To  float64 // seconds
	GPUs      int
}

// of returns the count of jobs that ended in a state, nil if it is no end.
func (r *Result) of(s job.State) *int {
	for _, end := range [...]struct {
		state job.State
		count *int
	}{{job.Succeeded, &r.Succeeded}, {job.Failed, &r.Failed}, {job.Cancelled, &r.Cancelled}} {
		if end.state == s {
			return end.count
		}
	}

	return nil
}

// Total is what everything cost: nodes in use and being late.
func (r *Result) Total() float64 { return r.Money + r.LateMoney }

// tally accumulates the figures of a Result.
type tally struct {
	cfg            *Config
	out            Result
	completion     sketch
	waiting        sketch
	slowdown       sketch
	fair           sketch
	ended          int
	events         int
	messages       int
	rounds         int
	first          time.Duration // submission
	last           time.Duration // end
	available      int           // GPUs that are open
	used           int
	since          time.Duration
	availableTime  float64 // GPU-seconds until the last end
	usedTime       float64
	availableAtEnd float64 // at the last end
	usedAtEnd      float64
	availableInUse float64 // when a GPU was last in use
	series         series
}

func newTally(cfg *Config) *tally {
	t := &tally{cfg: cfg, first: -1, series: series{capacity: cfg.Keep, width: time.Minute}}
	t.out.ByClass = map[fleet.Class]float64{}
	return t
}

// pass adds up use until now.
func (t *tally) pass(now time.Duration) {
	d := (now - t.since).Seconds()
	if d <= 0 {
		return
	}

	t.availableTime += d * float64(t.available)
	t.usedTime += d * float64(t.used)
	if t.used > 0 {
		t.availableInUse = t.availableTime
	}

	t.series.add(t.since, now, t.used, t.available)
	t.since = now
}

// size changes how many GPUs there are.
func (t *tally) size(now time.Duration, gpus int) {
	t.pass(now)
	t.available += gpus
}

// use changes how many are in use.
func (t *tally) use(now time.Duration, gpus int) {
	t.pass(now)
	t.used += gpus
}

func (t *tally) submitted(now time.Duration) {
	if t.first < 0 {
		t.first = now
	}

	t.out.Jobs++
}

// started counts what a start is: the first, another size, or another place.
func (t *tally) started(m *model) {
	t.out.Runs++
	if s := m.life.truth(m.did); s != nil {
		t.out.StartTime += time.Duration(s.Start).Seconds() * float64(m.gpus)
	}

	last := m.life.last
	switch {
	case last == nil:
	case last.gpus != m.gpus:
		t.out.Rescales++
	case !slices.Equal(last.allocations, m.allocations):
		t.out.Moves++
	}
}

// decided counts what the yard decided.
func (t *tally) decided(events []yardmaster.Event) {
	t.out.Turns += len(events)
	for i := range events {
		switch events[i].Kind {
		case "job.starting", "run.stopping":
			t.out.Decisions++
		}
	}
}

// account adds up a run that has ended, or that the simulation ends with.
func (t *tally) account(m *model) {
	t.out.LostWork += m.lostWork
	m.lostWork = 0
	if m.runs {
		served := (m.stopped(t.since) - m.startedAt - m.lentFor(t.since)).Seconds() * m.whole()
		m.life.GPUSeconds += served
		t.out.GPUSeconds += served
	}

	if t.cfg.Keep > 0 && len(t.out.Spans) < t.cfg.Keep {
		for i, seat := range m.allocations {
			t.out.Spans = append(t.out.Spans, Span{
				Job:  label(m.life),
				Node: string(m.hosts[i].node.ID),
				From: m.ordered.Seconds(),
				To:   t.since.Seconds(),
				GPUs: bitsOf(seat),
			})
		}
	}

	if m.live > 0 { // has not ended: what it did is counted here, not with its job
		t.out.Work += m.did
		m.life.saved = 0
	}
}

// whole returns the GPUs that the run holds, a share counted as such.
func (m *model) whole() float64 {
	if share := m.allocations[0].Share; share > 0 {
		return share
	}

	return float64(m.gpus)
}

// stopped returns when a run ended, now if it has not.
func (m *model) stopped(now time.Duration) time.Duration { return max(now, m.startedAt) }

func label(l *jobRecord) string {
	if l.job.Name != "" {
		return l.job.Name
	}

	return string(l.id)
}

// boundedRun is the shortest run time that slowdown is measured by.
const boundedRun = 10 * time.Second

// done adds up a job that has ended.
func (t *tally) done(l *jobRecord) {
	t.ended++
	t.last = max(t.last, l.Ended)
	t.availableAtEnd, t.usedAtEnd = t.availableTime, t.usedTime
	if count := t.out.of(l.State); count != nil {
		*count++
	}

	completion, wait := l.Completion(), l.Wait()
	t.completion.add(completion.Seconds())
	t.waiting.add(wait.Seconds())
	run := l.idealTime()
	slow := math.Max(1, completion.Seconds()/math.Max(run.Seconds(), boundedRun.Seconds()))
	t.slowdown.add(slow)
	t.fair.add(slow)

	if wait > time.Hour && wait > 10*run {
		t.out.Starved++
	}

	t.out.Stops += l.Stops
	t.out.Work += l.saved

	if l.Lateness > 0 {
		t.out.LateJobs++
		t.out.Lateness += l.Lateness
		t.out.LateMoney += float64(l.LateCost)
	}
}

// idealTime is how long the job would have taken alone on the fastest GPUs it allows.
func (l *jobRecord) idealTime() time.Duration {
	if l.job.Duration > 0 {
		return l.job.Duration
	}

	best, s := 0.0, l.truth(0)
	for _, kind := range s.Kinds() {
		best = math.Max(best, s.On(kind, 0).MaxRate())
	}

	if best <= 0 {
		return l.Ended - max(l.Started, l.job.At)
	}

	return time.Duration(s.Start) + job.Seconds(l.work()/best)
}

// host adds up what a node cost.
func (t *tally) host(h *host) {
	t.out.Money += float64(h.meter.usedMoney)
	t.out.Energy += h.meter.usedEnergy
	t.out.IdleMoney += float64(h.meter.idleMoney)
	t.out.IdleEnergy += h.meter.idleEnergy
	t.out.ByClass[h.node.Class] += float64(h.meter.usedMoney + h.meter.idleMoney)
}

func (t *tally) result(policy string, now time.Duration, left int) *Result {
	t.pass(now)
	r := &t.out
	r.Policy, r.Unfinished = policy, left
	r.Completion, r.Waiting, r.Slowdown, r.Fairness = t.completion.summary(), t.waiting.summary(), t.slowdown.mean(),
		t.fair.jain()
	r.Makespan = max(t.last-max(t.first, 0), 0)

	there, used := t.availableAtEnd, t.usedAtEnd
	if left > 0 { // some may have run after the last end; that others wait for ever, as paused ones do, is not idle time
		there, used = t.availableInUse, t.usedTime
	}

	if there > 0 {
		r.Utilisation = used / there
	}

	r.Events = t.events
	r.Messages = t.messages
	r.Rounds = t.rounds
	r.Use = t.series.points()
	if t.cfg.Keep > 0 {
		r.Distribution = t.completion.bins(200)
	}

	slices.SortStableFunc(r.Spans, func(a, b Span) int { return strings.Compare(a.Node, b.Node) })

	return r
}

// series is a curve over time in fixed space: when there are too many points, two
// become one.
type series struct {
	capacity int
	width    time.Duration
	cells    []cell
}

type cell struct{ used, there float64 }

func (s *series) add(from, to time.Duration, used, there int) {
	if s.capacity == 0 {
		return
	}

	for from < to {
		at := int(from / s.width)
		for at >= s.capacity {
			s.halve()
			at = int(from / s.width)
		}

		for len(s.cells) <= at {
			s.cells = append(s.cells, cell{})
		}

		until := min(to, time.Duration(at+1)*s.width)
		d := (until - from).Seconds()
		s.cells[at].used += d * float64(used)
		s.cells[at].there += d * float64(there)
		from = until
	}
}

func (s *series) halve() {
	s.width *= 2
	for i := range (len(s.cells) + 1) / 2 {
		c := s.cells[2*i]
		if 2*i+1 < len(s.cells) {
			c.used += s.cells[2*i+1].used
			c.there += s.cells[2*i+1].there
		}

		s.cells[i] = c
	}

	s.cells = s.cells[:(len(s.cells)+1)/2]
}

func (s *series) points() []Point {
	points := make([]Point, 0, len(s.cells))
	for i, c := range s.cells {
		if c.there > 0 {
			points = append(points, Point{X: (time.Duration(i) * s.width).Seconds(), Y: c.used / c.there})
		}
	}

	return points
}
