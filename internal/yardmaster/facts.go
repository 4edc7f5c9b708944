package yardmaster

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// facts is what is known of a job that has not ended, beside what is stored of it. It never changes: a job of which
// something else is known has other facts. Queued jobs of one shape that have never run share theirs, so that a long
// queue takes no memory.
type facts struct {
	state    job.State
	queued   bool
	need     fleet.Need     // what it asks of its nodes
	rule     string         // of its datasets
	needs    []id.Job       // jobs it needs that have not succeeded yet
	hold     hold           // what keeps it out of the queue
	promise  *promised      // start that waits for its GPUs, nil if none
	remedies []place.Remedy // of a paused job
	outlook  *job.Outlook   // how far it has come; nil if its spec says all there is
	live     *liveFacts     // nil if it has no run
}

// promised is a start that waits for its GPUs.
type promised struct {
	run         id.Run
	allocations []place.Allocation
}

// liveFacts is what is known of a live run and of its nodes.
type liveFacts struct {
	cost   money.Amount // of the job, as far as it is posted
	ran    time.Duration
	run    job.Run
	rate   float64
	began  time.Time
	runs   bool // it has nodes: what it has done grows
	fake   bool
	silent []silence
	idle   time.Time       // when it is stopped unless somebody uses it; zero if it is not idle
	meters []*ledger.State // of the nodes of its ranks
}

// silence is a node that does not report.
type silence struct {
	node id.Node
	seen time.Time
}

// factsOf returns what is known of a job now, nil if it has ended.
func (y *Yard) factsOf(r *jobRecord) *facts {
	if r.State.Final() {
		return nil
	}

	rule := y.data.Rule(&r.Job)
	if r.item != nil && r.run == nil && r.promise == nil && r.State == job.Pending && rule == "" && r.unworked() {
		return y.plainFacts(r.item.Shape)
	}

	f := &facts{
		state: r.State, queued: r.item != nil, need: y.need(r), rule: rule, needs: slices.Clone(r.pendingNeeds),
		hold: r.hold,
	}

	if p := r.promise; p != nil {
		f.promise = &promised{run: p.run, allocations: p.start.Allocations}
	}

	if r.State == job.Paused {
		f.remedies = pausedRemedies(r)
	}

	if !r.unworked() {
		f.outlook = &job.Outlook{Done: r.outlook.Done, At: r.outlook.At, Speed: r.outlook.Speed}
	}

	if r.run != nil {
		f.live = y.liveFactsOf(r)
	}

	return f
}

// plainFacts returns what is known of all queued jobs of a shape that have never run and whose data may be used
// everywhere.
func (y *Yard) plainFacts(s *queue.Shape) *facts {
	f, ok := y.snapshots.plain[s]
	if !ok {
		f = &facts{state: job.Pending, queued: true, need: s.Need}
		y.snapshots.plain[s] = f
	}

	return f
}

// unworked reports whether all that is known of the work of a job is in what is stored of it.
func (r *jobRecord) unworked() bool {
	return r.outlook.Done == r.Done && r.outlook.At.IsZero() && r.outlook.Speed == r.Spec.Speed
}

// liveFactsOf returns what is known of the live run of a job.
func (y *Yard) liveFactsOf(r *jobRecord) *liveFacts {
	f := &liveFacts{cost: r.Cost, ran: r.Ran, run: r.run.Run, idle: r.run.idle.stop}
	f.run.Ranks = slices.Clone(r.run.Ranks)

	if rn := r.running; rn != nil {
		f.runs, f.rate, f.began = true, rn.Rate, rn.Began
	}

	for i := range f.run.Ranks {
		k := &f.run.Ranks[i]
		f.fake = f.fake || y.nodes.Fake(k)
		if m := y.ledger.Reading(k.Node); m != nil {
			f.meters = append(f.meters, m)
		}

		if n, known := y.nodes.Get(k.Node); known && n.State == fleet.Suspect && k.State != job.RunEnded {
			f.silent = append(f.silent, silence{n.ID, n.Seen})
		}
	}

	return f
}

// costAt returns what a job has cost by a time, including what is not posted yet.
func (f *liveFacts) costAt(at time.Time, j id.Job) money.Amount {
	cost := f.cost
	for _, m := range f.meters {
		for _, p := range m.Peek(at) {
			if p.Job == j {
				cost += p.Cost().Amount()
			}
		}
	}

	return cost
}

// ranBy returns how long the runs of a job have run by a time.
func (f *liveFacts) ranBy(at time.Time) time.Duration {
	if f.run.Started.IsZero() {
		return f.ran
	}

	return f.ran + f.run.Worked(at)
}

// progress returns how far a job has come by a time.
func (f *facts) progress(at time.Time, j *job.Job) *job.Progress {
	o := f.outlook
	if o == nil {
		o = &job.Outlook{Done: j.Done, Speed: j.Spec.Speed}
	}

	if f.live == nil || !f.live.runs {
		return progressOf(at, o, nil)
	}

	return progressOf(at, o, &place.Running{
		Item: &queue.Item{Outlook: o}, Rate: f.live.rate, Began: f.live.began,
	})
}

// speed returns how fast a job is, as declared or observed; nil if unknown.
func (f *facts) speed(j *job.Job) *job.Speed {
	if f.outlook == nil {
		return j.Spec.Speed
	}

	return f.outlook.Speed
}
