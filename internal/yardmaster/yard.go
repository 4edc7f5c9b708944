// Package yardmaster is the deterministic core: messages and the time go in,
// changes to store and orders to carry out come out.
//
// It is single-threaded, does no I/O, reads no clock, rolls no dice and holds
// no lock. The server feeds it from HTTP and agents, commits what comes out in
// one transaction, and only then answers and acts; the simulator feeds it from
// an event heap. One file for each step of a job's path: submit.go, queue.go,
// place.go, launch.go, watch.go, finish.go, retry.go. Quotas are checked in quota.go
// and usage is metered in ledger.go.
//
// What the yard knows beside jobs and their runs is kept by packages below this one and by
// the ledger and quota packages: nodes, people, leases (and providers) and datasets. They
// know nothing of jobs but what they are told; nodes.go, users.go, quota.go, leases.go and
// data.go say what their news mean for jobs. All of them put what they changed into one
// batch.
package yardmaster

import (
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	lifecycle "trainyard/internal/provision/leases"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/datasets"
	"trainyard/internal/yardmaster/leases"
	"trainyard/internal/yardmaster/nodes"
	"trainyard/internal/yardmaster/people"
	"trainyard/internal/yardmaster/timers"
)

// Config is what an operator can set.
type Config struct {
	Policy       place.Policy
	SuspectAfter time.Duration // silence after which nothing new goes to a node; 0 if silence means nothing
	LostAfter    time.Duration // silence after which a node's runs are given up
	BackoffBase  time.Duration // wait before the first retry; doubles
	BackoffMost  time.Duration
	KeepFinal    time.Duration // how long ended jobs stay in memory; 0 until they are taken to be stored
	MaxJobs      int           // jobs of one user that have not ended
	LogLimit     int64         // bytes of output kept of each rank
	Tariff       *fleet.Tariff // what nodes cost; nil if nobody told
	Offers       []fleet.Offer // what can be provisioned
	Provision    lifecycle.Config
	Keep         provision.IdlePolicy
	Roads        dataset.Roads // by which data travels
	Refuse       bool          // jobs that no node and no offer could ever run are refused
	Unmetered    bool          // the use of nodes is not metered
	// Limit starts the time of a round and returns what tells a policy that it is
	// over. Nil means that policies are not limited by time.
	Limit func() func() bool
}

// Defaults returns the configuration that is used where nothing is set.
func Defaults(p place.Policy) Config {
	return Config{
		Policy:       p,
		SuspectAfter: 30 * time.Second,
		LostAfter:    5 * time.Minute,
		BackoffBase:  5 * time.Second,
		BackoffMost:  5 * time.Minute,
		KeepFinal:    10 * time.Minute,
		MaxJobs:      200_000,
		LogLimit:     1 << 30,
		Provision:    lifecycle.Defaults(),
		Keep:         provision.IdlePolicy{MaxIdle: 5 * time.Minute, ReleaseMargin: time.Minute},
		Roads:        dataset.DefaultRoads(),
	}
}

// Yard is the state of the yard. What it knows of nodes, people, money, provisioned machines
// and data is kept by a part for each; jobs and their runs are its own.
type Yard struct {
	cfg    Config
	now    time.Time // of the message being handled; never goes back
	jobs   map[id.Job]*jobRecord
	runs   map[id.Run]*runRecord // not ended
	keys   map[submitKey][]id.Job
	needed map[id.Job][]id.Job // waiting jobs by a job they need

	nodes  *nodes.Nodes
	people *people.People
	ledger *ledger.Ledger
	quotas *quota.Tracker
	leases *leases.Leases
	data   *datasets.Datasets
	orders *batch.Orders

	line     *queue.Queue
	past     queue.Past         // how long earlier jobs ran
	running  runningJobs        // jobs that hold nodes, by number
	promises []*promise         // starts that wait for stops, by age
	freed    bool               // something changed that a promise may wait for
	asked    *timers.Timer      // when the policy wants to be asked again
	expired  []id.Job           // ended jobs to forget when they have been taken
	held     *place.Reservation // of the last round
	timers   timers.Timers
	lastTick time.Time // last tick
	round    bool      // something changed that may let a job start
	planning bool      // a plan is being made beside the yard
	dropped  int       // parts of plans that were not carried out

	purses map[queue.Payer]int   // owners and projects of jobs that have not ended, with how many they are
	apart  map[id.Job]*jobRecord // jobs in line with an allowance of their own

	changedMeters map[id.Node]bool // nodes whose meters have to be updated
	budgets       int              // jobs with a budget of their own that have not ended
	overQuota     queue.Aside      // jobs that a quota keeps out of the queue
	quotaCheck    *timers.Timer    // of watchQuotas
	changedQuotas []tenant.Quota

	lastJob     uint64
	feed        batch.Feed
	changedJobs batch.Set[*jobRecord]
	changedRuns batch.Set[*runRecord]
}

type submitKey struct {
	owner id.User
	key   string
}

type jobRecord struct {
	job.Job
	batch.Mark
	item         *queue.Item // in line, nil if not
	entry        *queue.Item // the one with which it was last in line
	pendingNeeds []id.Job    // of the jobs it needs, those that have not succeeded yet
	run          *runRecord  // live run, nil if none
	running      *place.Running
	promise      *promise // seats that are kept for it, nil if none
	overQuota    string   // why a quota keeps it out of the queue, "" if none does
	outlook      *job.Outlook
	// committed says that money or GPU-hours were committed to it, when it ran or when
	// nodes were provisioned for it.
	committed bool
}

type runRecord struct {
	job.Run
	batch.Mark
	timeout       *timers.Timer // of its max_duration, nil if it has none
	port          int           // on which rank 0 listens for the others
	stopOrdered   time.Time     // when it was told to stop
	stoppedByPlan bool          // a plan stopped it
	stopReason    string        // and says why
}

// New returns an empty yard.
func New(cfg Config) *Yard {
	y := &Yard{
		cfg:    cfg,
		jobs:   map[id.Job]*jobRecord{},
		runs:   map[id.Run]*runRecord{},
		keys:   map[submitKey][]id.Job{},
		needed: map[id.Job][]id.Job{},
		purses: map[queue.Payer]int{},
		apart:  map[id.Job]*jobRecord{},
		orders: batch.NewOrders(),
		line:   queue.New(),
		quotas: quota.New(),

		changedMeters: map[id.Node]bool{},
	}

	y.people = people.New(&y.feed)
	y.data = datasets.New(cfg.Roads, &y.feed)
	y.nodes = nodes.New(nodes.Patience{SuspectAfter: cfg.SuspectAfter, LostAfter: cfg.LostAfter}, &y.feed, &y.timers,
		nodes.Watcher{Changed: y.nodeChanged, Lost: y.lose})
	y.ledger = ledger.New(cfg.Tariff, y.charge)
	y.leases = leases.New(cfg.Provision, cfg.Offers, y.quotas, &y.feed, &y.timers, y.nodes.RecentlySeen)

	return y
}

// Message is something that reaches the yardmaster. Handling one returns what
// the caller is to be told once the change is stored.
type Message interface {
	handle(y *Yard) (any, error)
}

// Step handles one message. The answer must not be given out before the batch
// that Take returns is stored.
func (y *Yard) Step(now time.Time, m Message) (any, error) {
	y.setNow(now)
	reply, err := m.handle(y)

	if y.leases.Pending() {
		y.settleLeases()
	}

	if y.freed {
		y.fulfil()
	}

	y.updateMeters()

	return reply, err
}

// setNow takes the time. A clock that was set back is not followed: to the
// yard time stands still until it has caught up.
func (y *Yard) setNow(now time.Time) {
	if now.After(y.now) {
		y.now = now
	}
}

// Take returns what has changed since the last call, and forgets it.
func (y *Yard) Take() *Batch {
	b := &Batch{}
	y.TakeInto(b)
	return b
}

// TakeInto is Take into a batch that is used again: what it held before is gone.
func (y *Yard) TakeInto(b *Batch) {
	b.Jobs = batch.Take(&y.changedJobs, b.Jobs, func(to *job.Job, r *jobRecord) { *to = r.Job })
	b.Runs = batch.Take(&y.changedRuns, b.Runs, func(to *job.Run, r *runRecord) {
		ranks := append(to.Ranks[:0], r.Ranks...)
		*to = r.Run
		to.Ranks = ranks
	})

	y.nodes.Take(b)
	y.people.Take(b)
	b.Quotas, y.changedQuotas = y.changedQuotas, nil
	b.Ledger = y.ledger.Take()
	b.Usage, b.Notices = y.quotas.Changed()
	y.leases.Take(b)
	y.data.Take(b)
	y.orders.Take(b)
	y.feed.Take(b)

	for _, j := range y.expired {
		y.forget(j)
	}

	y.expired = y.expired[:0]
}

func (y *Yard) changedJob(r *jobRecord) {
	r.Seq++
	y.changedJobs.Add(r)
}

func (y *Yard) changedRun(r *runRecord) {
	r.Seq++
	y.changedRuns.Add(r)
}

// nodeChanged takes note that a node is another than before.
func (y *Yard) nodeChanged(n id.Node) {
	y.meterChanged(n)
	y.round = true
	y.freed = y.freed || len(y.promises) > 0
}

// event adds an entry to the feed.
func (y *Yard) event(e Event) { y.feed.Tell(y.now, e) }

// must writes down a transition that the code believed possible and the table did not.
func (y *Yard) must(err error) { y.feed.Bug(y.now, err) }

// The yard's own name as an actor.
const theYard = batch.Yard
