// Package yardmaster is the deterministic core: messages and the time go in,
// changes to store and orders to carry out come out.
//
// It is single-threaded, does no I/O, reads no clock, uses no randomness and holds
// no lock. The server feeds it from HTTP and agents, commits what comes out in
// one transaction, and only then answers and acts; the simulator feeds it from
// an event heap. One file for each step of a job's path: submit.go, queue.go,
// place.go, launch.go, watch.go, finish.go, retry.go. Quotas are checked in quota.go
// and usage is metered in ledger.go.
//
// Jobs and their runs are kept here; nodes, people, leases, datasets, checkpoints and secrets by the packages
// below this one, usage by package ledger and limits by package quota. They know nothing of the life
// of a job: nodes.go, users.go, leases.go, data.go, checkpoints.go, secrets.go, ledger.go and quota.go
// connect them to it. All of them put their changes into one batch.
package yardmaster

import (
	"time"

	"trainyard/internal/contact"
	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/provision/lifecycle"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/share"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/channels"
	"trainyard/internal/yardmaster/checkpoints"
	"trainyard/internal/yardmaster/datasets"
	"trainyard/internal/yardmaster/leases"
	"trainyard/internal/yardmaster/nodes"
	"trainyard/internal/yardmaster/people"
	"trainyard/internal/yardmaster/secrets"
	"trainyard/internal/yardmaster/timers"
)

// Config is what an operator can set.
type Config struct {
	Policy           place.Policy
	contact.Patience               // how long nodes may be silent
	BackoffBase      time.Duration // delay before the first retry; doubles with each
	MaxBackoff       time.Duration
	SaveWait         time.Duration // how long a move waits for a checkpoint before it is abandoned
	KeepFinal        time.Duration // how long ended jobs stay in memory; 0 for until they are stored
	AskFor           time.Duration // how long a failed job is held for its owner to decide what follows; 0 to let it fail
	AssumeSaved      bool          // stopped jobs have saved all they did, for any node, whatever the catalogue has
	Unattended       bool          // nobody answers questions: none are asked, and what fails ends at once
	MaxJobs          int           // jobs of one user that have not ended
	Caps             tenant.Caps   // of the priorities of jobs
	MaxJobText       job.Bytes     // text of the specs of a user's jobs that have not ended; 0 for no limit
	MaxAllJobText    job.Bytes     // the same of all users together
	LogLimit         int64         // bytes of output kept of each rank
	Tariff           *fleet.Tariff // what nodes cost; nil if unknown
	Offers           []fleet.Offer // what can be provisioned
	Provision        lifecycle.Config
	Keep             provision.IdlePolicy
	Shared           fleet.SharedFolders
	Network          dataset.Network // over which datasets are staged
	RefuseImpossible bool            // jobs that no node and no offer could ever run are refused
	Unmetered        bool            // the use of nodes is not metered
	TrustInventory   bool            // more hardware than a node had before need not be accepted by an admin
	// Limit starts the time limit of a plan and returns a function that reports that it has
	// passed. Nil means that there is no limit.
	Limit func() func() bool
}

// Defaults returns the configuration that is used where nothing is set.
func Defaults(p place.Policy) Config {
	return Config{
		Policy:      p,
		Patience:    contact.Patience{SuspectAfter: 30 * time.Second, LostAfter: 5 * time.Minute},
		BackoffBase: 5 * time.Second,
		MaxBackoff:  5 * time.Minute,
		SaveWait:    10 * time.Minute,
		KeepFinal:   10 * time.Minute,
		AskFor:      24 * time.Hour,
		MaxJobs:     20_000,
		MaxJobText:  64 << 20,
		LogLimit:    1 << 30,

		MaxAllJobText: 1 << 30,

		Provision: lifecycle.Defaults(),
		Keep:      provision.IdlePolicy{MaxIdle: 5 * time.Minute, ReleaseMargin: time.Minute},
		Network:   dataset.DefaultNetwork(),
	}
}

// Yard is the state of the yard. Jobs and their runs are its own; it has a part each for
// nodes, people, the ledger, quotas, leases, datasets, checkpoints and secrets.
type Yard struct {
	cfg    Config
	now    time.Time // of the message being handled; never goes back
	jobs   map[id.Job]*jobRecord
	runs   map[id.Run]*runRecord // not ended
	keys   map[submitKey][]id.Job
	needed map[id.Job][]id.Job // jobs that wait for a job, by that job

	nodes       *nodes.Nodes
	people      *people.People
	ledger      *ledger.Ledger
	quotas      *quota.Tracker
	leases      *leases.Leases
	data        *datasets.Datasets
	checkpoints *checkpoints.Catalogue
	secrets     *secrets.Secrets
	channels    *channels.Channels
	orders      *batch.Orders

	queue        *queue.Queue
	past         queue.Past                 // durations of earlier runs
	planPast     *queue.Past                // a copy of it, as policies see it; nil before the first plan
	planPastAt   time.Time                  // when it was copied
	programs     map[string]history.Program // what commands run
	references   references                 // GPUs that expected run times are for
	running      runningJobs                // jobs that hold nodes, by number
	promises     []*promise                 // starts that wait for stops, oldest first
	origins      map[id.Node]id.Job         // on-demand nodes that a job has left to move, until it runs
	promisesDue  bool                       // something changed for which a promise may wait
	lent         []*jobRecord               // suspended in place, in the order in which they were
	imaged       map[id.Job]bool            // queued jobs that continue from a snapshot, or would if a node could
	planAgain    bool                       // another plan can do what part of the last one could not
	singleUsers  bool                       // there are nodes that are reserved, or run jobs of one user at a time
	reservedSoon bool                       // there are nodes that will be reserved soon
	imagesDue    bool                       // nodes have changed, of which these may need one
	wakeTimer    *timers.Timer              // when the policy wants to plan again
	demand       provision.Demand           // for nodes that are kept ready
	aheadDue     bool                       // something changed for which nodes may have to be provisioned ahead
	aheadTimer   *timers.Timer              // when nodes that could not be had are tried again
	expired      []id.Job                   // ended jobs to forget once they have been taken
	reservation  *place.Reservation         // of the last round
	waits        map[id.Job]string          // jobs that the last plan lets wait although there is room, and why
	unprovided   map[id.Job]string          // jobs for which the last plan could not provision nodes, and why
	timers       timers.Timers
	lastTick     time.Time       // last tick
	planDue      bool            // something changed that may lead to another plan
	freed        bool            // a run has ended since the last plan, which left room for another
	slowDue      bool            // that plan is to look at jobs that are too slow
	slow         map[id.Job]bool // jobs whose Outlook.Slow has reached place.SlowForecasts; some may be so no longer
	planning     bool            // a plan is being made outside the loop
	// atBegin is what the policy knew when that plan was begun, for rehearsals meanwhile: the policy
	// itself must not be looked into while it plans. It plans nothing.
	atBegin place.Policy
	drops   int // number of parts of plans that were not carried out
	holds   int // number of queued jobs that were held for their quota when a plan was carried out

	payers        map[queue.Payer]int   // number of unfinished jobs by owner and project
	ownAllowances map[id.Job]*jobRecord // queued jobs with an allowance of their own

	changedMeters   map[id.Node]bool // nodes whose meters have to be updated
	scratch         scratch
	arrays          map[id.Array]*arrayRecord
	loading         bool         // what is stored is being read, and nothing has changed
	changedElements []*jobRecord // elements of which it has to be looked whether they are admitted

	budgets       int            // jobs with a budget of their own that have not ended
	heldJobs      queue.HeldJobs // jobs that a quota or a secret keeps out of the queue
	quotaCheck    *timers.Timer  // of watchQuotas
	quotaCheckAt  time.Time      // when that is due; zero if none is
	changedQuotas []tenant.Quota

	seed         string      // of the UIDs of runs; "" if they have none
	incarnation  Incarnation // of the yard's history
	incarnations []Incarnation
	settles      time.Time // when runs of the history before a restore have surely been stopped

	lastJob     uint64
	jobText     job.Bytes // of the specs of jobs that have not ended
	texts       texts
	snapshots   snapshots
	feed        batch.Feed
	changedJobs batch.Set[*jobRecord]
	changedRuns batch.Set[*runRecord]

	schedules        map[id.Schedule]*scheduleRecord
	lastSchedule     uint64
	changedSchedules batch.Set[*scheduleRecord]

	reservations        map[id.Reservation]*fleet.Reservation
	lastReservation     uint64
	changedReservations []fleet.Reservation

	changedQuestions batch.Set[*questionRecord]
	asked            map[id.Job]bool // jobs with open questions

	pastRuns          []queue.PastRun // added to past since they were last taken
	pastForgotten     []uint64        // numbers of those that past has no room for any more
	observed          batch.Set[*observedRecord]
	observedForgotten []id.Job // jobs that have ended of which something was stored
	shortages         map[string]job.Shortage
	beside            *share.Interference     // how fast jobs are beside others; nil if nothing is known
	besideChanged     map[string]share.Record // by key: what was learned since it was last taken
	besideForgotten   []string
	shortagesChanged  map[string]bool // keys of those that were added, changed or forgotten since they were last taken
}

// scratch is memory that is used again for each message, for lists that are not kept.
type scratch struct {
	nodes   []id.Node
	holders []ledger.Holder
}

type submitKey struct {
	owner id.User
	key   string
}

type jobRecord struct {
	job.Job
	batch.Mark
	stale        bool        // what snapshots have of it is to be renewed
	item         *queue.Item // in the queue; nil if it is not queued
	entry        *queue.Item // with which it is or was last queued
	pendingNeeds []id.Job    // of the jobs it needs, those that have not succeeded yet
	run          *runRecord  // live run, nil if none
	running      *place.Running
	promise      *promise // start that waits for its GPUs, nil if none
	hold         hold     // what keeps it out of the queue; zero if nothing does
	outlook      *job.Outlook
	observed     *observedRecord   // nil if nothing was learned of it yet
	text         job.Bytes         // of its spec, without the long ones; 0 when it has ended
	longTexts    []string          // of its spec, which it shares with other jobs
	questions    []*questionRecord // open ones
	// committed says that money or GPU-hours were committed to it, when it ran or when
	// nodes were provisioned for it.
	committed bool
	// admitted says that it counts against the limit of its array: it is queued, held for another reason, or runs.
	admitted bool
	// ofArray says that its text is counted with its array.
	ofArray bool
	// exhausts is when its budget will be used up at what it costs now; zero if it has none or does not run.
	exhausts time.Time
}

// hold is what keeps a job out of the queue.
type hold struct {
	reason string // one sentence, "" if nothing does
	kind   tenant.Hold
	until  time.Time // when it ends by itself; zero if that is not known
}

type runRecord struct {
	job.Run
	batch.Mark
	timeout       *timers.Timer // of its max_duration, nil if it has none
	port          int           // on which rank 0 listens for the others
	move          *move         // for which it saves a checkpoint, nil if it is not about to move
	loan          *loan         // of its GPU to another job, nil if there is none
	stopOrdered   time.Time     // when it was ordered to stop
	stoppedByPlan bool          // a plan stopped it
	stopReason    string        // why it was stopped
	newestEpoch   int           // greatest epoch that a node has had, if one refused this run for it
	restore       id.Checkpoint // from which it continues, "" if it began anew
	corrupt       bool          // that checkpoint turned out to be corrupt
	slowNoted     bool          // its owner knows that it is too slow
	idle          idleness      // of a job that a person works in
	beside        besideRecord  // how fast it is beside others on its GPU
	faster        faster        // for which it waits
	reclaim       *reclaim      // its node will be gone soon, nil if no notice was given
	gang          *gang         // its start on several nodes, nil before the first rank was heard of and after the start
	fence         time.Time     // before which a rank on a node that was removed may still be alive; zero if there is none
}

// New returns an empty yard.
func New(cfg Config) *Yard {
	y := &Yard{
		cfg:           cfg,
		jobs:          map[id.Job]*jobRecord{},
		runs:          map[id.Run]*runRecord{},
		keys:          map[submitKey][]id.Job{},
		texts:         texts{},
		needed:        map[id.Job][]id.Job{},
		payers:        map[queue.Payer]int{},
		ownAllowances: map[id.Job]*jobRecord{},
		orders:        batch.NewOrders(),
		queue:         queue.New(),
		quotas:        quota.New(),

		demand:        make(provision.Demand, len(cfg.Keep.Warm)),
		changedMeters: map[id.Node]bool{},
		imaged:        map[id.Job]bool{},
		slow:          map[id.Job]bool{},
		asked:         map[id.Job]bool{},
		arrays:        map[id.Array]*arrayRecord{},
		schedules:     map[id.Schedule]*scheduleRecord{},
		reservations:  map[id.Reservation]*fleet.Reservation{},

		shortagesChanged: map[string]bool{},
		besideChanged:    map[string]share.Record{},
	}

	y.people = people.New(&y.feed)
	y.data = datasets.New(cfg.Network, &y.feed, y.people.Member)
	y.checkpoints = checkpoints.New(&y.feed)
	y.secrets = secrets.New(&y.feed)
	y.channels = channels.New(&y.feed)
	y.nodes = nodes.New(cfg.Patience, &y.feed, &y.timers,
		nodes.Watcher{Changed: y.nodeChanged, Lost: y.lose})
	y.nodes.TrustInventory = cfg.TrustInventory
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

	if y.aheadDue {
		y.provisionAhead()
	}

	if y.promisesDue {
		y.fulfil()
	}

	y.recheckOwners()

	if y.imagesDue {
		y.recheckImages()
	}

	if len(y.lent) > 0 {
		y.resumeLent()
	}

	if len(y.origins) > 0 {
		y.releaseOrigins()
	}

	if len(y.changedElements) > 0 {
		y.admitMore()
	}

	y.updateMeters()

	return reply, err
}

// setNow advances the time. If the clock was set back, time stands still for the yard until
// the clock has caught up.
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

// TakeInto is Take into a batch whose memory is reused: its contents are overwritten.
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
	y.checkpoints.Take(b)
	y.secrets.Take(b)
	y.channels.Take(b)
	y.orders.Take(b)
	y.feed.Take(b)
	y.takeMemory(b)
	y.takeQuestions(b)
	b.Schedules = batch.Take(&y.changedSchedules, b.Schedules, func(to *job.Schedule, r *scheduleRecord) {
		*to = r.Schedule
	})
	b.Reservations, y.changedReservations = y.changedReservations, nil
	b.Incarnations, y.incarnations = y.incarnations, nil

	for _, j := range y.expired {
		y.forget(j)
	}

	y.expired = y.expired[:0]

	if len(y.snapshots.stale) > maxStale {
		y.renewFacts()
	}
}

func (y *Yard) changedJob(r *jobRecord) {
	r.Seq++
	y.changedJobs.Add(r)
	y.touch(r)

	if r.admitted {
		y.changedElements = append(y.changedElements, r)
	}
}

func (y *Yard) changedRun(r *runRecord) {
	r.Seq++
	y.changedRuns.Add(r)
	y.touch(y.jobs[r.Job])
}

// nodeChanged records that a node has changed.
func (y *Yard) nodeChanged(n id.Node) {
	y.meterChanged(n)
	y.touchNode(n)
	y.planDue = true
	y.promisesDue = y.promisesDue || len(y.promises) > 0
	y.imagesDue = y.imagesDue || len(y.imaged) > 0
}

// event adds an entry to the feed.
func (y *Yard) event(e Event) { y.feed.Add(y.now, e) }

// must records a transition that the life cycle does not allow although the code expected it to.
func (y *Yard) must(err error) { y.feed.Bug(y.now, err) }

// theYard is the actor of events that no person or node caused.
const theYard = batch.Yard
