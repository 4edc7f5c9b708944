// Package rules is the yard's own policy: three classes of nodes in one queue, placed
// by what the researcher wants and by what the data allows.
//
// There is one cost model. Each way to run a job (on a node that is idle now, on one
// that it waits for, on nodes that are hired for it) has a start, an end and a price,
// and the job takes the way that costs least, where an hour of its time is worth what
// its objective says: a lot if it is time-sensitive, little if it is cost-sensitive.
// So a time-sensitive job gets the fastest node there is and a cost-sensitive one the
// weakest that will do; who waits has its node kept for it from the time at which it
// will be free; and nodes are hired when waiting costs more than the rent.
//
// Jobs are considered by priority and then by what an hour of waiting costs the yard
// for each hour of work: short and wide jobs first, those of people who had more than
// their share later. A job that has waited for as long as hiring for it is worth goes
// before all others of its priority; see patience. Like every policy this decides and
// does nothing; from round to round it remembers what jobs cost on average.
//
// A yard changes little from one round to the next, so what is known of its rooms
// (floor) and of its jobs (line) is kept and only brought up to date. That makes rounds
// fast and changes no plan: a policy that has seen nothing before decides the same.
package rules

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// Config is what an operator can set.
type Config struct {
	// Value is what an hour of a job's time is worth in money, by objective.
	Value map[job.Objective]float64
	// Patience is how long a cost-sensitive job waits for a node that is paid for
	// anyway before one is hired for it.
	Patience time.Duration
	// Ageing is how long a job waits before it goes first. See Starvation in the tests.
	Ageing time.Duration
	// Preempt lets a time-sensitive job have the nodes of cost-sensitive ones that save themselves.
	Preempt bool
	// Width says how much wide jobs go first: their length counts divided by their GPUs to this power.
	Width float64
	// Guess is how long a job is taken to last of which nothing is known.
	Guess time.Duration
	// Setup is how long it takes to make a new node ready for a job, beyond its boot.
	Setup time.Duration
	// Visits bounds how many rooms are looked at in a round for jobs that wait.
	Visits int
}

// Defaults returns the configuration that is used where nothing is set.
func Defaults() Config {
	return Config{
		Value:    map[job.Objective]float64{job.ObjectiveTime: 50, job.ObjectiveBalanced: 2, job.ObjectiveCost: 0.05},
		Patience: 24 * time.Hour, Ageing: 48 * time.Hour, Preempt: true, Width: 1, Guess: time.Hour, Setup: 0, Visits: 1 << 16,
	}
}

// Policy is the policy rules. Of the last round it keeps what is mostly the same in the
// next; a plan is the same without.
type Policy struct {
	cfg      Config
	seen     memory
	rounds   uint64
	offers   *catalogue
	timeline timeline.Timeline
	costs    costModel
	line     line

	// used again
	ways      []option
	best      []option
	rank      []int
	hosts     []host
	stoppable []victim
}

var (
	_ place.Policy  = (*Policy)(nil)
	_ place.Adviser = (*Policy)(nil)
)

// New returns the policy.
func New(cfg Config) *Policy { return &Policy{cfg: cfg, seen: memory{of: map[uint64]patience{}}} }

// Name is what the policy is called in the configuration.
func (*Policy) Name() string { return "rules" }

// Revises reports that it leaves alone what runs as long as nobody waits.
func (*Policy) Revises() bool { return false }

// Plan starts, keeps nodes for, hires for, and makes room for the jobs in line.
func (p *Policy) Plan(v *place.View) place.Plan {
	e := newEngine(p, v)
	defer p.tidyUp()
	for _, w := range e.inOrder(nil) {
		if v.Enough != nil && v.Enough() {
			e.ask(v.Now.Add(time.Second))
			break
		}
		e.consider(w)
	}
	return e.plan
}

// Options tells where a job could run, best first: one that waits, or one that has
// not been submitted yet. Jobs that would be considered before it are placed first.
func (p *Policy) Options(v *place.View, it *queue.Item) []place.Option {
	e := newEngine(p, v)
	defer p.tidyUp()
	e.unlimited = true
	for _, w := range e.inOrder(it) {
		if w.it.Job == it.Job {
			return e.advise(w)
		}
		e.consider(w)
	}
	return nil
}

// tidyUp lets go of what was used in one round, so that nothing is kept that may end.
func (p *Policy) tidyUp() {
	p.timeline.Forget()
	clear(p.ways[:cap(p.ways)])
	clear(p.best[:cap(p.best)])
	clear(p.hosts)
	clear(p.stoppable)
}

// wait is a job that is to be considered.
type wait struct {
	// what the order is made of stands together: every round reads it of every job
	shape    *shape
	user     *queue.Portion[id.User]
	project  *queue.Portion[id.Project]
	base     float64 // by which jobs of equals are ordered
	over     float64 // shares that its owner and its project had beyond their own
	excess   float64 // by how much it has to stand back for that
	key      float64 // less goes first
	priority int
	number   uint64
	due      time.Time // goes first from then on
	lasts    time.Duration
	aged     bool
	gone     bool // it waits no more
	plain    bool // it is as fast as its GPUs: nobody told how fast it is where
	patient  bool // it waits for what is paid for anyway before one thinks of hiring
	owns     bool // a room was hired for it and is there
	hired    []*fleet.Lease

	it    *queue.Item
	value float64       // of an hour of its time
	basis basis         // how it is known how long it lasts
	of    int           // from so many earlier jobs
	low   time.Duration // of those four out of five ran for between low and high; 0 if that is not what is gone by
	high  time.Duration
	since time.Time
	wait  patience
	hire  *option // how it could be hired for; nil if not worked out

	// of this round
	ready time.Duration // until a node that could be hired for it is; 0 if none can be
	quick bool          // it may start now; what it could wait for is not looked at
	cut   bool          // not everything was tried for it: the round had looked at enough
}

// consider decides what becomes of a job.
func (e *engine) consider(w *wait) {
	s := e.shapeOf(w)
	if len(e.view.Offers) == 0 && s.closed > 0 && s.stops == len(e.plan.Stops) && w.lasts >= s.closed && s.of.Need.Nodes == 1 && !w.aged {
		return // a job just like it, and no longer, found nothing, and there is less now
	}
	cut := e.spent() && len(s.Able) > 0
	if cut && !e.timeline.MayFit(&s.Shape) {
		e.ask(w.due)
		return
	}
	w.cut, w.quick = cut, cut || len(w.hired) > 0 // its nodes are on their way
	if w.quick && e.futile(w, s) {
		return
	}
	options := e.options(w, s)
	if len(options) == 0 {
		return
	}
	best := e.best(w, options)
	switch {
	case best == nil:
	case best.hire:
		e.hire(w, best)
	case best.wait == 0:
		e.start(w, best, options)
	default:
		if victim := e.preempt(w, best); victim != nil {
			e.start(w, victim, options)
			return
		}
		e.keep(w, best)
	}
}

// futile reports whether nothing comes of a job that may only start now: nothing is free
// for it, and its nodes are on their way, or there will be another look before it is due.
func (e *engine) futile(w *wait, s *shape) bool {
	if !e.barren(w, s) || len(w.hired) == 0 && e.sooner(w.due) {
		return false
	}
	for _, st := range s.Able {
		e.timeline.Prune(st, s.Match.Need.GPUs)
	}
	return true
}

// barren reports whether it is known that nothing is free for a job: a job just like it,
// and no longer, found no room, and nothing was made free since.
func (e *engine) barren(w *wait, s *shape) bool {
	return s.shut > 0 && s.freed == e.freed && w.lasts >= s.shut && w.plain && !w.owns
}
