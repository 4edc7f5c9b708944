package sim

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/yardmaster"
)

// model is a run as it would go: when it begins, how fast it is, when it ends.
type model struct {
	run         id.Run
	uid         id.UID
	life        *jobRecord
	allocations []place.Allocation
	hosts       []*host
	ended       []bool // ranks whose end was reported
	live        int    // ranks that have not ended
	gpus        int
	ordered     time.Duration
	runs        bool           // its processes run
	startedAt   time.Duration  // since then
	works       time.Duration  // does its first unit then
	since       time.Duration  // did and ran are as of then
	rate        float64        // units per second
	until       float64        // of a program that decides: its rate holds up to so many units
	did         float64        // units done, over all runs of the job
	ran         time.Duration  // of a job that only lasts: on its reference, if it has one
	pace        float64        // with which ran grows
	gen         int            // of its schedule: an event that was entered for an older one is void
	broken      bool           // stopped without time to save a checkpoint
	halted      bool           // does no work any more
	lostWork    float64        // units done and lost
	share       []money.Amount // of what its hosts cost when it came, by rank
	watts       []float64
	loan        loan
	saves       int // requests to save a checkpoint that it has had
}

// truth is how fast a job really is at its present progress, nil if it only lasts.
func (l *jobRecord) truth(did float64) *job.Speed {
	s := l.job.Speed
	if s == nil {
		s = l.job.Spec.Speed
	}

	if l.job.Duration > 0 {
		return nil
	}

	for _, p := range l.job.Phases {
		if did >= p.From {
			s = p.Speed
		}
	}

	return s
}

// program makes the program of a job, nil if that does not decide anything.
func (j *Job) program() Program {
	if j.Program == nil {
		return nil
	}

	return j.Program()
}

// work is how much work a job really has: all of it, or what takes it to its target.
func (l *jobRecord) work() float64 {
	s := l.job.Speed
	if s == nil {
		s = l.job.Spec.Speed
	}

	if s == nil {
		return 0
	}

	return s.Work * l.share
}

// workShare returns the share of a job's work after which its error reaches the target; 1 without a target.
func workShare(j *Job) float64 {
	t := j.Spec.Target
	if t == nil || t.AtMost == nil {
		return 1
	}

	for i, p := range j.ErrorCurve {
		if p.Y > *t.AtMost {
			continue
		}
		if i == 0 || j.ErrorCurve[i-1].Y == p.Y {
			return math.Min(p.X, 1)
		}

		from := j.ErrorCurve[i-1]

		return math.Min(from.X+(p.X-from.X)*(from.Y-*t.AtMost)/(from.Y-p.Y), 1)
	}

	return 1
}

// order does what the yard orders a node to do for one rank.
func (s *simulation) order(o *yardmaster.Order) {
	h := s.hosts[o.Node]
	if h == nil {
		return // it is no modelled node
	}

	m, known := s.runs[o.Run]
	if !known {
		l, alive := s.jobs[o.Job]
		if !alive || o.Stop != job.StopNone {
			return
		}

		m = &model{
			run: o.Run, uid: o.Launch.UID, life: l, ordered: s.now, lostWork: s.restore(l, o.Node), saves: o.Save,
		}
		m.did, m.ran = l.saved, l.ran
		s.runs[o.Run] = m
	}

	if o.Stop != job.StopNone {
		if o.Rank < len(m.ended) && !m.ended[o.Rank] {
			s.stop(m, o.Stop)
		}

		return
	}

	if o.Rank != len(m.allocations) { // a repeated order, or one to suspend it or to save a checkpoint
		s.suspend(m, o.Suspend)
		s.requestSave(m, o.Save)

		return
	}

	m.allocations = append(
		m.allocations,
		place.Allocation{Node: o.Node, GPUs: fleet.Mask(o.Launch.GPUs), Share: o.Launch.Share},
	)

	m.hosts = append(m.hosts, h)
	m.ended = append(m.ended, false)
	m.live++
	m.gpus += len(o.Launch.GPUs)
	if len(m.allocations) == len(o.Launch.Nodes) {
		s.begin(m)
	}
}

// begin lets the nodes of a run start it: at once, or when they have booted.
func (s *simulation) begin(m *model) {
	wait := max(s.occupy(m), s.bring(m))
	if wait > 0 {
		gen := m.gen
		s.at(s.now+wait, func(s *simulation) {
			if m.gen == gen {
				s.start(m)
			}
		})

		return
	}

	s.start(m)
}

// start reports to the yard that all ranks run, and schedules the end.
func (s *simulation) start(m *model) {
	if slices.ContainsFunc(m.hosts, func(h *host) bool { return h.dead }) {
		return // the yard will learn of the node's death
	}

	m.runs, m.startedAt, m.since = true, s.now, s.now
	m.works = s.now
	if t := m.life.truth(m.did); t != nil {
		m.works += time.Duration(t.Start)
		s.setRate(m, t)
	}

	m.pace = s.paceOf(m)
	s.tally.started(m)

	for i := range m.allocations {
		s.reportRank(m, i, yardmaster.RankReport{State: job.RunRunning, Started: s.time()})
	}

	m.life.last = m
	s.schedule(m)
	s.forecastFrom(m)
	s.catalogue(m)
	s.watch(m)
}

// setRate sets how fast the run is from now on: as its program decides, or as it really is.
func (s *simulation) setRate(m *model, t *job.Speed) {
	if m.life.program == nil {
		m.rate = s.rateOf(m, t)
		return
	}

	on := GPUs{Count: m.gpus, Nodes: len(m.allocations)}
	if a := m.allocations[0]; a.GPUs != 0 {
		on.Model = m.hosts[0].node.Inventory.GPU(bits.TrailingZeros64(a.GPUs)).Model
	}

	m.rate, m.until = m.life.program.Step(on, m.did)
}

// rateOf returns how fast the run is where it is.
func (s *simulation) rateOf(m *model, t *job.Speed) float64 {
	return place.RateOn(t, m.allocations, s.nodeOf)
}

// paceOf returns how many seconds of its duration the run of a job that only lasts gets done in a second.
func (s *simulation) paceOf(m *model) float64 {
	if m.life.job.Reference == nil {
		return 1
	}

	it := queue.Item{
		Shape:   &queue.Shape{Need: fleet.NeedOf(m.life.job.Spec, job.Floor{}, nil)},
		Outlook: &job.Outlook{Reference: *m.life.job.Reference},
	}

	return place.Pace(&it, m.allocations, s.nodeOf)
}

func (s *simulation) nodeOf(n id.Node) *fleet.Node {
	if h, ok := s.hosts[n]; ok {
		return &h.node
	}

	return nil
}

// reportRank sends the report of one rank to the yard.
func (s *simulation) reportRank(m *model, rank int, r yardmaster.RankReport) {
	r.Run, r.Rank = m.run, rank
	s.report[0] = r
	s.step(m.hosts[rank].report(s.report[:]))
}

// schedule enters the next event of a run: its end, a failure, or another phase.
func (s *simulation) schedule(m *model) {
	m.gen++
	l := m.life
	if l.job.Duration > 0 {
		s.scheduleFixed(m)
		return
	}

	work := l.work()
	goal, turn := work, s.finish
	if l.fails < len(l.job.Failures) {
		if at := l.job.Failures[l.fails].Share * work; at < goal {
			goal, turn = max(at, m.did), s.fail
		}
	}

	for _, p := range l.job.Phases {
		if p.From > m.did && p.From < goal {
			goal, turn = p.From, s.turn
			break
		}
	}

	if l.program != nil && m.until > m.did && m.until < goal {
		goal, turn = m.until, s.turn
	}

	if m.rate <= 0 {
		return // it does nothing there, and holds its nodes until it is stopped
	}

	from := max(m.works, s.now)
	at := from + job.Seconds((goal-m.did)/m.rate)

	if l.program != nil {
		// It reports when it begins to work, and then at intervals.
		next := m.works
		if s.now >= m.works {
			next = s.now + reportEvery
		}

		if next < at {
			at, turn = next, s.turn
		}
	}

	s.scheduleAt(m, at, turn)
}

// reportEvery is how often a program that decides for itself reports its progress.
const reportEvery = 10 * time.Second

func (s *simulation) scheduleFixed(m *model) {
	goal, turn := m.life.job.Duration, s.finish
	if m.life.fails < len(m.life.job.Failures) {
		if at := job.Seconds(m.life.job.Failures[m.life.fails].Share * goal.Seconds()); at < goal {
			goal, turn = max(at, m.ran), s.fail
		}
	}

	s.scheduleAt(m, max(m.works, s.now)+m.wall(goal-m.ran), turn)
}

// wall returns how long it takes to get so much of a duration done, and progress how much is done in a time.
func (m *model) wall(of time.Duration) time.Duration {
	if m.pace == 1 {
		return of
	}

	return job.Seconds(of.Seconds() / m.pace)
}

func (m *model) progress(in time.Duration) time.Duration {
	if m.pace == 1 {
		return in
	}

	return job.Seconds(in.Seconds() * m.pace)
}

func (s *simulation) scheduleAt(m *model, at time.Duration, turn func(*model)) {
	gen := m.gen
	s.at(at, func(s *simulation) {
		if m.gen == gen && !m.halted {
			turn(m)
		}
	})
}

// advance credits the work done since the last time.
func (m *model) advance(s *simulation) { m.advanceTo(s.now) }

func (m *model) advanceTo(now time.Duration) {
	from := max(m.since, m.works)
	if !m.runs || m.halted || m.loan.still || now <= from {
		return
	}

	passed := now - from

	m.since = now
	if m.life.job.Duration > 0 {
		m.ran += m.progress(passed)
		return
	}

	m.did = min(m.did+m.rate*passed.Seconds(), m.life.work())
}

// turn enters another phase of the job.
func (s *simulation) turn(m *model) {
	m.advance(s)

	for _, p := range m.life.job.Phases { // past the rounding of the time it took
		if p.From > m.did && p.From-m.did < 1e-6*math.Max(1, p.From) {
			m.did = p.From
		}
	}

	if m.life.program != nil && m.until-m.did < 1e-6*math.Max(1, m.until) {
		m.did = math.Max(m.did, m.until)
	}

	t := m.life.truth(m.did)
	if m.life.program == nil || s.now > m.works { // it has measured nothing when it begins to work
		s.setRate(m, t)
	}

	switch {
	case m.life.program != nil:
		s.reportRank(m, 0, yardmaster.RankReport{State: job.RunRunning, Progress: &job.Progress{
			Done: m.did, Training: m.life.program.Report(),
		}})
	case m.life.job.ReportsProgress:
		s.reportRank(m, 0, yardmaster.RankReport{State: job.RunRunning, Progress: &job.Progress{Done: m.did, Rates: t.Rates}})
	}

	s.schedule(m)
}

// finish ends a run that has done all its work.
func (s *simulation) finish(m *model) {
	m.advance(s)

	if m.life.job.Duration == 0 {
		m.did = m.life.work()
	}

	s.endRanks(m, yardmaster.RankReport{State: job.RunEnded})
}

// fail ends a run before its time.
func (s *simulation) fail(m *model) {
	m.advance(s)
	f := m.life.job.Failures[m.life.fails]
	m.life.fails++
	m.lose()
	s.endRanks(m, yardmaster.RankReport{State: job.RunEnded, ExitCode: 1, Cause: f.Cause})
}

// lose takes off what a run has done since its last checkpoint.
func (m *model) lose() {
	l := m.life
	c := l.job.Spec.Checkpoint
	if c == nil {
		m.did, m.ran = 0, 0
		return
	}

	worked := m.since - m.works
	if worked <= 0 {
		return
	}

	lost := worked
	if every := time.Duration(c.Every); every > 0 {
		lost = worked % every
	}

	if l.job.MaxLoss > 0 {
		lost = min(lost, l.job.MaxLoss)
	}

	// What was done in earlier runs is safe.
	m.ran = max(m.ran-m.progress(lost), l.ran)
	before := m.did
	m.did = max(m.did-m.rate*lost.Seconds(), l.saved)
	m.lostWork += before - m.did
}

// stop ends a run on an order of the yard: after saving a checkpoint, or at once.
func (s *simulation) stop(m *model, mode job.StopMode) {
	// A run that lost a node without warning has halted already; its other ranks go too.
	if m.halted && !m.broken && mode != job.StopKill {
		return
	}

	m.advance(s)

	var save time.Duration
	switch {
	case m.broken:
	case mode == job.StopKill || m.loan.still: // a suspended program saves nothing
		m.lose()
	case m.life.job.Spec.Checkpoint == nil:
		m.did, m.ran = 0, 0
	case m.runs:
		save = s.saved(m)
	}

	m.halted = true
	m.gen++
	gen := m.gen
	end := func(s *simulation) {
		if m.gen == gen {
			s.endRanks(m, yardmaster.RankReport{State: job.RunEnded, Signalled: true, Cause: job.CausePreempted})
		}
	}

	s.at(s.now+save, end)
}

// endRanks reports the end of all ranks that have not ended, on nodes that can report.
func (s *simulation) endRanks(m *model, r yardmaster.RankReport) {
	m.halted = true
	m.gen++
	s.keep(m)
	s.show(m, Watched{Ended: true, Cause: r.Cause})

	if !m.broken || m.runs {
		r.Progress = &job.Progress{Done: m.did}
	}

	if m.life.job.Spec.Speed == nil && m.life.program == nil || r.Cause == job.CauseNone && !r.Signalled {
		r.Progress = nil
	}

	r.Ended = s.time()
	if m.runs {
		r.Started = s.epoch.Add(m.startedAt)
	}

	for i := range m.allocations {
		if m.ended[i] || m.hosts[i].dead {
			continue
		}

		s.rankGone(m, i)
		s.reportRank(m, i, r)
	}
}

// vacate lets a rank pay for its GPUs and use them no more.
func (s *simulation) vacate(m *model, rank int) {
	h := m.hosts[rank]
	cost, energy, fewer := h.meter.leave(s.now, m.allocations[rank], m.share[rank], m.watts[rank])
	m.life.Cost += cost
	m.life.Energy += energy
	s.tally.use(s.now, -fewer)
}

// rankGone ends a rank and frees its GPUs.
func (s *simulation) rankGone(m *model, rank int) {
	m.ended[rank] = true
	m.live--
	h := m.hosts[rank]
	h.runs = slices.DeleteFunc(h.runs, func(o *model) bool { return o == m })

	if m.loan.lent {
		s.tally.pass(s.now)
	} else {
		s.vacate(m, rank)
	}

	if m.live == 0 {
		s.tally.account(m)
		delete(s.runs, m.run)
	}
}
