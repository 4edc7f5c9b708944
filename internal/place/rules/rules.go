// Package rules is the yard's own policy: three classes of nodes in one queue, placed
// by what the researcher wants and by what the data allows.
//
// There is one cost model (cost.go). Each option of a job (a node that is idle now, one
// that becomes free later, nodes that are provisioned for it) has a start, an end and a
// price, and the job takes the option that costs least, where an hour of its time is worth
// what its objective says: a lot if it is time-sensitive, little if it is cost-sensitive.
// So a time-sensitive job gets the fastest node there is and a cost-sensitive one the
// slowest that will do; a queued job has a node reserved from the time at which it will be
// free; and nodes are provisioned when waiting costs more than the rent.
//
// Jobs are considered by priority and then by what an hour of waiting costs the yard
// for each hour of work: short and wide jobs first, those of users who had more than
// their share later (order.go). A job that has waited for as long as provisioning for it
// is worth goes before all others of its priority (patience.go). A time-sensitive job may
// preempt cost-sensitive ones, and any job those on borrowed GPUs (preempt.go). Every
// decision comes with a reason (reasons.go). Like every policy this decides and carries
// nothing out; from round to round it remembers what jobs cost on average.
//
// When which node is free is the business of package timeline. A yard changes little from
// one round to the next, so the timeline and what is known of the jobs (backlog) are kept
// and only brought up to date. That makes rounds fast and changes no plan: a policy that
// has seen nothing before decides the same.
package rules

import (
	"math"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// Config is what an operator can set.
type Config struct {
	// Value is what an hour of a job's time is worth in money, by objective.
	Value map[job.Objective]money.PerHour
	// Patience is how long a cost-sensitive job waits for a node that is paid for
	// anyway before one is provisioned for it.
	Patience time.Duration
	// Ageing is how long a job waits before it goes first. It affects the order alone: whether a node is provisioned
	// depends on what waiting is worth. See Starvation in the tests.
	Ageing time.Duration
	// Preempt lets time-sensitive jobs preempt cost-sensitive ones that write checkpoints.
	Preempt bool
	// Width says how much wide jobs go first: their length counts divided by their GPUs to this power.
	Width float64
	// Guess is how long a job is assumed to last if nothing is known of it.
	Guess time.Duration
	// Setup is how long it takes to make a new node ready for a job, beyond its boot.
	Setup time.Duration
	// Visits bounds how many nodes a round looks at for jobs that cannot start now: for how many of them nodes are
	// reserved. Where nodes can be provisioned it is eight times as many.
	Visits int
	// BestFit fills nodes and shared GPUs of which the least is left, whatever that leaves for others. It is what
	// fragmentation is compared with.
	BestFit bool
}

// Defaults returns the configuration that is used where nothing is set.
func Defaults() Config {
	t := ondemand.Standard()

	return Config{
		Value: t.Value, Patience: t.Patience, Ageing: 48 * time.Hour, Preempt: true, Width: 1, Guess: t.Guess,
		Setup: t.Setup, Visits: 1 << 13,
	}
}

// Policy is the policy rules. What it keeps from round to round makes the next one faster;
// apart from the patiences it changes no plan.
type Policy struct {
	cfg       Config
	patiences ondemand.Patiences
	rounds    uint64
	catalogue *ondemand.Catalogue
	timeline  timeline.Timeline
	costs     costModel
	backlog   backlog
	gpuTexts  map[gpuCount]string

	// scratch is memory that the rounds reuse: a round considers thousands of jobs, and
	// would otherwise allocate these lists for each. Nothing in it outlives a round.
	scratch struct {
		options []option // of the current job
		others  []option // that it would have otherwise
		ranks   []rank   // of either
		members []member // of the current gang
		heads   []head   // of the lanes of a level
		shut    []*lane  // of them
		hosts   []host   // of this round
		victims []victim // on these hosts
	}
}

var (
	_ place.Searcher  = (*Policy)(nil)
	_ place.Adviser   = (*Policy)(nil)
	_ place.Rehearser = (*Policy)(nil)
)

// New returns the policy.
func New(cfg Config) *Policy {
	return &Policy{cfg: cfg}
}

// Rehearsal returns a policy that knows what this one knows of earlier jobs. Everything else
// it keeps from round to round only makes rounds faster.
func (p *Policy) Rehearsal() place.Policy {
	return &Policy{cfg: p.cfg, patiences: p.patiences.Clone()}
}

// Name is what the policy is called in the configuration.
func (*Policy) Name() string { return "rules" }

// Revises reports that running jobs are left alone while no job is queued.
func (*Policy) Revises() bool { return false }

// KeepsAlike reports that jobs with same_gpu run on nodes with one GPU model.
func (*Policy) KeepsAlike() bool { return true }

// Shares reports that jobs that ask for a part of a GPU share it with others.
func (*Policy) Shares() bool { return true }

// Plan starts queued jobs, reserves and provisions nodes for them, and preempts others.
func (p *Policy) Plan(v *place.View) place.Plan { return p.Search(v, nil) }

// Slow reports that its plans are made at once: it remembers what it saw of the yard.
func (*Policy) Slow() bool { return false }

// Search is Plan for as many jobs as there is time for. It wants to be asked again in a
// second for the rest.
func (p *Policy) Search(v *place.View, enough func() bool) place.Plan {
	e := newEngine(p, v)
	defer p.tidyUp()

	e.separate()

	queued := e.walk()
	for j := queued.next(); j != nil; j = queued.next() {
		if enough != nil && enough() {
			e.wakeAt(v.Now.Add(time.Second))
			break
		}

		e.consider(j)
	}

	return e.finish()
}

// Options tells where a job could run, best first: a queued one, or one that has not been
// submitted yet. Jobs that would be considered before it are placed first.
func (p *Policy) Options(v *place.View, it *queue.Item) []place.Option {
	e := newEngine(p, v)
	defer p.tidyUp()

	e.visits = math.MaxInt // a person asked about one job
	asked := e.find(it)

	queued := e.walk()
	for j := queued.next(); j != nil && compareJobs(j, asked) < 0; j = queued.next() {
		e.consider(j)
	}

	return e.advise(asked)
}

// tidyUp drops references to what was used in one round, so that jobs that have ended are
// not kept in memory.
func (p *Policy) tidyUp() {
	p.timeline.Forget()
	clear(p.scratch.options[:cap(p.scratch.options)])
	clear(p.scratch.others[:cap(p.scratch.others)])
	clear(p.scratch.members[:cap(p.scratch.members)])
	clear(p.scratch.heads[:cap(p.scratch.heads)])
	clear(p.scratch.shut[:cap(p.scratch.shut)])
	clear(p.scratch.hosts)
	clear(p.scratch.victims)
}
