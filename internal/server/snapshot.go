package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// snapshot is the yard after the last batch that was stored. What people ask about jobs is answered from it, beside
// the loop: it neither waits for the loop nor keeps it from its work, and it is answered while a commit hangs.
//
// The loop replaces it before it answers those who sent the messages of the batch, so whoever has got an answer sees
// what they changed.
type snapshot struct {
	*yardmaster.Snapshot
	explained atomic.Pointer[explanations]
}

// publish lets questions see what is stored now. It is called by the loop alone.
func (l *Loop) publish() {
	now := l.clock.Now()
	next := &snapshot{Snapshot: l.yard.Snapshot(now)}

	if last := l.newest.Load(); last != nil && last.Round() == next.Round() {
		next.explained.Store(last.explained.Load())
	} else {
		next.explained.Store(newExplanations(next.Snapshot, now))
	}

	l.newest.Store(next)
}

// snapshot returns the newest snapshot. It fails if it is not certain that this server leads, and after the loop has
// ended: another server may know better.
func (l *Loop) snapshot() (*snapshot, error) {
	if err := l.held(); err != nil {
		return nil, err
	}

	select {
	case <-l.over:
		return nil, ended()
	default:
		return l.newest.Load(), nil
	}
}

// explainFor is how long an explanation counts while nothing changes but the time.
const explainFor = time.Second

// explainer returns the explanations of the snapshot as of now.
func (s *snapshot) explainer(now time.Time) *explanations {
	e := s.explained.Load()
	if now.Sub(e.at).Abs() < explainFor {
		return e
	}

	renewed := newExplanations(s.Snapshot, now)
	if s.explained.CompareAndSwap(e, renewed) {
		return renewed
	}

	return s.explained.Load()
}

// explanations are why the jobs of a round wait, made when they are first asked for: one for all jobs that are alike.
type explanations struct {
	of   *yardmaster.Snapshot
	at   time.Time
	view func() *place.View

	mu   sync.Mutex
	made map[yardmaster.Question]func() place.Why
}

func newExplanations(of *yardmaster.Snapshot, at time.Time) *explanations {
	return &explanations{
		of: of, at: at, made: map[yardmaster.Question]func() place.Why{},
		view: sync.OnceValue(func() *place.View { return of.View(at) }),
	}
}

// View is part of yardmaster.Explainer.
func (e *explanations) View() *place.View { return e.view() }

// Explain is part of yardmaster.Explainer. Those who ask the same at the same time wait for one of them.
func (e *explanations) Explain(q yardmaster.Question) place.Why {
	e.mu.Lock()
	answer, known := e.made[q]
	if !known {
		answer = e.answer(q)
		e.made[q] = answer
	}
	e.mu.Unlock()

	return answer()
}

// answer returns what makes the answer to a question when it is first called.
func (e *explanations) answer(q yardmaster.Question) func() place.Why {
	return sync.OnceValue(func() place.Why { return e.of.Answer(e.view(), q) })
}

// briefs returns what lists show of jobs that were read from the store.
func (s *Server) briefs(ctx context.Context, jobs []job.Job) ([]yardmaster.Brief, error) {
	snap, err := s.Loop.snapshot()
	if err != nil {
		return nil, err
	}

	now := s.Clock.Now()
	explainer := snap.explainer(now)
	list := make([]yardmaster.Brief, len(jobs))
	held := map[id.Job]int{}

	for i := range jobs {
		list[i] = snap.Brief(now, &jobs[i], explainer)
		if snap.Held(jobs[i].ID) && list[i].Blocker != place.BlockBackoff {
			held[jobs[i].ID] = i
		}
	}

	for j, why := range s.whyHeld(ctx, held) {
		list[held[j]].WaitReason, list[held[j]].Blocker = why.Sentence, why.Blocker
	}

	return list, nil
}

// why says why a job waits that was read from the store. It reports false if it does not.
func (s *Server) why(ctx context.Context, j *job.Job) (yardmaster.WhyReport, bool, error) {
	snap, err := s.Loop.snapshot()
	if err != nil {
		return yardmaster.WhyReport{}, false, err
	}

	now := s.Clock.Now()
	why, waits := snap.Why(now, j, snap.explainer(now))
	if !waits {
		return yardmaster.WhyReport{}, false, nil
	}

	if snap.Held(j.ID) && why.Blocker != place.BlockBackoff {
		if held, ok := s.whyHeld(ctx, map[id.Job]int{j.ID: 0})[j.ID]; ok {
			why = held
		}
	}

	return yardmaster.NewWhyReport(why, snap.Position(now, j)), true, nil
}

// statuses returns what forecasts need to know of jobs that were read from the store.
func (s *Server) statuses(jobs []*job.Job) ([]yardmaster.JobStatus, error) {
	snap, err := s.Loop.snapshot()
	if err != nil {
		return nil, err
	}

	now := s.Clock.Now()
	explainer := snap.explainer(now)
	list := make([]yardmaster.JobStatus, len(jobs))

	for i, j := range jobs {
		list[i] = snap.Status(now, j, explainer)
	}

	return list, nil
}

// whyHeld asks the loop what keeps jobs out of the queue now, which only it knows. It answers nothing if the loop does
// not: why they were held is of use then too.
func (s *Server) whyHeld(ctx context.Context, jobs map[id.Job]int) map[id.Job]place.Why {
	if len(jobs) == 0 {
		return nil
	}

	var answers map[id.Job]place.Why // written by the loop, perhaps after we gave up on it

	ids := slices.Collect(maps.Keys(jobs))
	if err := s.query(ctx, func(y *yardmaster.Yard) { answers = y.WhyHeld(s.Clock.Now(), ids) }); err != nil {
		return nil
	}

	return answers
}
