// Package yardmaster is the deterministic core: messages and the time go in,
// changes to store and orders to carry out come out.
//
// It is single-threaded, does no I/O, reads no clock, rolls no dice and holds
// no lock. The server feeds it from HTTP and agents, commits what comes out in
// one transaction, and only then answers and acts; the simulator feeds it from
// an event heap. One file for each step of a job's path: submit.go, line.go
// (admission to the line), place.go, launch.go, watch.go, finish.go, retry.go; nodes.go
// and accounts.go for the rest of the yard.
package yardmaster

import (
	"slices"
	"time"

	"trainyard/internal/books"
	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/hire/leases"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/agenda"
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
	Offers       []fleet.Offer // what can be hired
	Hire         leases.Config
	Keep         hire.KeepConfig
	Roads        dataset.Roads // by which data travels
	Refuse       bool          // jobs that no node and no offer could ever run are refused
	Unmetered    bool          // no books are kept of what nodes are used for
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
		Hire:         leases.Defaults(),
		Keep:         hire.KeepConfig{Idle: 5 * time.Minute, Margin: time.Minute},
		Roads:        dataset.DefaultRoads(),
	}
}

// Yard is the state of the yard.
type Yard struct {
	cfg    Config
	now    time.Time // of the message being handled; never goes back
	jobs   map[id.Job]*jobRecord
	runs   map[id.Run]*runRecord // not ended
	nodes  map[id.Node]*nodeRecord
	users  map[id.User]*userRecord
	shares queue.Shares // of projects
	tokens map[id.Token]*tokenRecord
	orders map[string]*orderRecord
	keys   map[submitKey][]id.Job
	needed map[id.Job][]id.Job // waiting jobs by a job they need

	table    *fleet.Table
	line     *queue.Line
	running  []*place.Running   // jobs that hold nodes, by number
	promises []*promise         // starts that wait for stops, by age
	freed    bool               // something changed that a promise may wait for
	asked    *timer             // when the policy wants to be asked again
	spent    []id.Job           // ended jobs to forget when they have been taken
	held     *place.Reservation // of the last round
	timers   agenda.Agenda[func(*Yard)]
	ticked   time.Time // last tick
	round    bool      // something changed that may let a job start

	leases  *leases.Leases
	market  *hire.Market
	books   *books.Books
	data    *dataset.Catalogue
	past    queue.Past            // how long earlier jobs ran
	aside   queue.Aside           // jobs that a limit keeps out of the line
	budgets int                   // live jobs with a budget of their own
	touched map[id.Node]bool      // whose meters have to be read
	hired   map[id.Job][]id.Lease // leases for jobs that wait
	asking  map[id.Lease]float64  // what machines that have not come yet will cost in an hour
	failing map[string]*outage    // providers that do not answer as they should
	sweep   *timer                // of the leases
	booked  *timer                // of the books

	lastJob   uint64
	lastEvent uint64
	out       pending
}

type submitKey struct {
	owner id.User
	key   string
}

type jobRecord struct {
	job.Job
	item    *queue.Item // in line, nil if not
	entry   *queue.Item // the one with which it was last in line
	waits   []id.Job    // of the jobs it needs, those that have not succeeded yet
	run     *runRecord  // live run, nil if none
	running *place.Running
	promise *promise // seats that are kept for it, nil if none
	aside   string   // the limit that keeps it out of the line, "" if none does
	outlook *job.Outlook
	dirty   bool
}

type runRecord struct {
	job.Run
	limit   *timer    // of its max_duration, nil if it has none
	port    int       // on which rank 0 listens for the others
	told    time.Time // when it was told to stop
	planned bool      // a plan stopped it
	why     string    // and says why
	dirty   bool
}

type nodeRecord struct {
	fleet.Node
	seen    time.Time      // last report, in this process
	foreign uint64         // GPUs used by others
	runs    map[id.Run]int // live runs and the rank that is here
	ports   map[int]id.Run // on which rank 0 of some of them listens for the others
	heard   bool           // has reported, in this process
	idle    time.Time      // nothing runs there since
	kept    []job.DataCopy // datasets that it said it keeps
	told    bool           // and that it said so, in this process and since it was lost
	look    *timer         // when to look whether a hired node is to be given back
	dirty   bool
}

type userRecord struct {
	tenant.User
	rate  float64 // weight of what runs now
	alive int     // jobs that have not ended
	dirty bool
}

type tokenRecord struct {
	tenant.Token
	dirty bool
}

type orderRecord struct {
	Order
	dirty bool
}

// pending collects what changed since the last Take. A thing that changes
// several times is stored once, with its last value.
type pending struct {
	jobs     []*jobRecord
	runs     []*runRecord
	nodes    []*nodeRecord
	users    []*userRecord
	tokens   []*tokenRecord
	orders   []*orderRecord
	leases   []*fleet.Lease
	limits   []tenant.Limit
	datasets []dataset.Dataset
	uses     []dataset.Use
	closed   []string
	events   []Event
}

// New returns an empty yard.
func New(cfg Config) *Yard {
	y := &Yard{
		cfg:     cfg,
		jobs:    map[id.Job]*jobRecord{},
		runs:    map[id.Run]*runRecord{},
		nodes:   map[id.Node]*nodeRecord{},
		users:   map[id.User]*userRecord{},
		tokens:  map[id.Token]*tokenRecord{},
		orders:  map[string]*orderRecord{},
		keys:    map[submitKey][]id.Job{},
		needed:  map[id.Job][]id.Job{},
		table:   fleet.NewTable(),
		line:    queue.NewLine(),
		leases:  leases.New(cfg.Hire),
		market:  hire.NewMarket(cfg.Offers),
		data:    dataset.NewCatalogue(cfg.Roads),
		touched: map[id.Node]bool{},
		hired:   map[id.Job][]id.Lease{},
		failing: map[string]*outage{},
		asking:  map[id.Lease]float64{},
	}
	y.books = books.New(cfg.Tariff, y.charged)
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
	y.account()
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
	o := &y.out
	b.Events, o.events = o.events, b.Events[:0]
	b.Closed, o.closed = o.closed, b.Closed[:0]
	b.Jobs = resize(b.Jobs, len(o.jobs))
	for i, r := range o.jobs {
		b.Jobs[i], r.dirty = r.Job, false
	}
	b.Runs = resize(b.Runs, len(o.runs))
	for i, r := range o.runs {
		ranks := b.Runs[i].Ranks[:0]
		b.Runs[i], r.dirty = r.Run, false
		b.Runs[i].Ranks = append(ranks, r.Ranks...)
	}
	b.Nodes = resize(b.Nodes, len(o.nodes))
	for i, r := range o.nodes {
		b.Nodes[i], r.dirty = r.Node, false
	}
	b.Users = resize(b.Users, len(o.users))
	for i, r := range o.users {
		b.Users[i], r.dirty = r.User, false
	}
	b.Tokens = resize(b.Tokens, len(o.tokens))
	for i, r := range o.tokens {
		b.Tokens[i], r.dirty = r.Token, false
	}
	b.Limits, o.limits = o.limits, nil
	b.Datasets, o.datasets = o.datasets, nil
	b.Uses, o.uses = o.uses, nil
	b.Shares = y.shares.Take()
	b.Books = y.books.Take()
	b.Leases = b.Leases[:0]
	for _, l := range o.leases {
		b.Leases = append(b.Leases, *l)
	}
	b.Orders = slices.Grow(b.Orders[:0], len(o.orders))
	for _, r := range o.orders {
		if r.dirty { // closed meanwhile otherwise
			b.Orders = append(b.Orders, r.Order)
			r.dirty = false
		}
	}
	o.reset(len(b.Events))
	for _, j := range y.spent {
		y.forget(j)
	}
	y.spent = y.spent[:0]
}

// resize returns a slice of n elements, the same one if it is large enough. It is
// nil if nothing is wanted of nothing.
func resize[T any](list []T, n int) []T {
	if n <= cap(list) {
		return list[:n]
	}
	return append(list[:cap(list)], make([]T, n-cap(list))...)
}

// reset forgets what was taken; the lists of records are used again. Events come
// in batches that are much alike, so there is room for as many again.
func (o *pending) reset(events int) {
	clear(o.jobs)
	clear(o.runs)
	clear(o.nodes)
	clear(o.users)
	clear(o.tokens)
	clear(o.orders)
	clear(o.leases)
	o.jobs, o.runs, o.nodes, o.users, o.tokens, o.orders = o.jobs[:0], o.runs[:0], o.nodes[:0], o.users[:0], o.tokens[:0], o.orders[:0]
	o.leases = o.leases[:0]
	if o.events == nil && events > 0 {
		o.events = make([]Event, 0, min(events, 512))
	}
}

func (y *Yard) changedJob(r *jobRecord) {
	r.Seq++
	if !r.dirty {
		r.dirty = true
		y.out.jobs = append(y.out.jobs, r)
	}
}

func (y *Yard) changedRun(r *runRecord) {
	r.Seq++
	if !r.dirty {
		r.dirty = true
		y.out.runs = append(y.out.runs, r)
	}
}

func (y *Yard) changedNode(r *nodeRecord) {
	r.Seq++
	if !r.dirty {
		r.dirty = true
		y.out.nodes = append(y.out.nodes, r)
	}
	node := r.Node
	y.touch(r.ID)
	y.table.Put(&node, r.foreign)
	y.round = true
	y.freed = y.freed || len(y.promises) > 0
}

func (y *Yard) changedUser(r *userRecord) {
	r.Seq++
	if !r.dirty {
		r.dirty = true
		y.out.users = append(y.out.users, r)
	}
}

func (y *Yard) changedToken(r *tokenRecord) {
	r.Seq++
	if !r.dirty {
		r.dirty = true
		y.out.tokens = append(y.out.tokens, r)
	}
}

// event adds an entry to the feed.
func (y *Yard) event(e Event) {
	y.lastEvent++
	e.Seq, e.At = y.lastEvent, y.now
	y.out.events = append(y.out.events, e)
}

// The yard's own name as an actor.
const theYard = "yard"
