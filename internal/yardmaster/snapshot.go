package yardmaster

import (
	"iter"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/yardmaster/leases"
	"trainyard/internal/yardmaster/versions"
)

// Snapshot is the yard at one moment, as far as questions about jobs need it: why they wait, where they run, what they
// have cost. It never changes and shares nothing with the yard that does, so any number of goroutines may ask it
// while the yard goes on.
//
// Making one costs what has changed since the last: what is known of each job is in a versions.Map, and the rooms of
// nodes that have not changed are shared. What is stored of a job is not in it. Whoever asks has read the job from the
// store.
type Snapshot struct {
	at   time.Time
	jobs versions.Version[facts] // by number, of jobs that have not ended
	line *queue.Standing

	// What is there for queued jobs. Round counts how often it has changed.
	round     uint64
	rooms     *fleet.Frozen
	exhausted []fleet.Offer // of which as many nodes are in use as may be

	reservation *place.Reservation // of the last plan; the same pointer as long as it is the same
	due         bool               // another plan is

	// What the last plan and the leases say of single jobs, by job. The maps are replaced, never changed.
	waits      map[id.Job]string
	unprovided map[id.Job]string
	arrivals   map[id.Job]leases.Arrival

	offers     []fleet.Offer // all that can be provisioned
	policy     string
	shortages  map[string]job.Shortage
	downgraded map[queue.Payer]bool // whose quotas let no nodes be provisioned
}

// snapshots is what the yard keeps for the next snapshot.
type snapshots struct {
	newest  *Snapshot // nil before the first: nothing is kept for it then
	jobs    versions.Map[facts]
	renewed bool // something of jobs is not in the newest
	line    queue.Standings
	charges uint64                  // of the users, as of the newest
	stale   []*jobRecord            // whose facts are to be renewed
	plain   map[*queue.Shape]*facts // of queued jobs of which nothing else is to be said
	quotas  time.Time               // when it was last looked who may not have nodes provisioned
	limits  map[queue.Payer]bool    // who that is
}

// Round counts how often nodes or offers have changed: as long as it is the same, so are the answers to equal
// questions.
func (s *Snapshot) Round() uint64 { return s.round }

// maxStale is how many jobs may change before their facts are renewed although nobody asks.
const maxStale = 4096

// Snapshot returns the yard as it is now. It must not be called while a message is being handled.
func (y *Yard) Snapshot(now time.Time) *Snapshot {
	y.setNow(now)

	if y.snapshots.newest == nil {
		y.snapshots.plain = map[*queue.Shape]*facts{}
		y.snapshots.newest = &Snapshot{}

		for _, j := range sortedKeys(y.jobs) {
			y.touch(y.jobs[j])
		}

		for _, it := range y.queue.Stays {
			y.snapshots.line.Add(it)
		}
	}

	y.renewFacts()

	last := y.snapshots.newest
	next := &Snapshot{
		at: y.now, jobs: last.jobs, line: last.line,
		round: last.round, rooms: y.nodes.Rooms.Freeze(), reservation: last.reservation, due: y.planDue || y.planning,
		waits: y.waits, unprovided: y.unprovided, arrivals: y.leases.Arrivals(),
		offers: y.leases.Market.All(), policy: y.cfg.Policy.Name(),
		shortages: y.shortages, downgraded: y.downgraded(),
	}

	if y.snapshots.renewed {
		next.jobs = y.snapshots.jobs.Version()
		y.snapshots.renewed = false
	}

	if charges := y.people.Charges(); next.line == nil || y.snapshots.line.Changed() || charges != y.snapshots.charges {
		next.line = y.snapshots.line.Standing(y.people.Decay)
		y.snapshots.charges = charges
	}

	if len(y.cfg.Offers) > 0 {
		_, next.exhausted = y.leases.Offers(y.now)
	}

	if !sameReservation(last.reservation, y.reservation) {
		next.reservation = cloneReservation(y.reservation)
	}

	if next.rooms != last.rooms || !slices.EqualFunc(next.exhausted, last.exhausted, sameOffer) {
		next.round++
	}

	y.snapshots.newest = next

	return next
}

func sameOffer(a, b fleet.Offer) bool { return a.Name == b.Name && a.MaxNodes == b.MaxNodes }

func sameReservation(a, b *place.Reservation) bool {
	if a == nil || b == nil {
		return a == b
	}

	return a.Job == b.Job && a.At.Equal(b.At) && slices.Equal(a.Nodes, b.Nodes)
}

func cloneReservation(r *place.Reservation) *place.Reservation {
	if r == nil {
		return nil
	}

	c := *r
	c.Nodes = slices.Clone(r.Nodes)

	return &c
}

// touch says that what questions ask about a job may have changed.
func (y *Yard) touch(r *jobRecord) {
	if y.snapshots.newest != nil && !r.stale {
		r.stale = true
		y.snapshots.stale = append(y.snapshots.stale, r)
	}
}

// touchNode says that a node has changed, on which what its runs cost and whether they are heard of depends.
func (y *Yard) touchNode(n id.Node) {
	if y.snapshots.newest == nil {
		return
	}

	if node, ok := y.nodes.Get(n); ok {
		for run := range node.Runs {
			if r := y.runs[run]; r != nil {
				y.touch(y.jobs[r.Job])
			}
		}
	}
}

// touchData says that the rules of datasets have changed, or who may use them.
func (y *Yard) touchData() {
	if y.snapshots.newest == nil {
		return
	}

	for _, r := range y.jobs {
		if len(r.Spec.Data) > 0 {
			y.touch(r)
		}
	}
}

// renewFacts brings what is known of jobs up to date.
func (y *Yard) renewFacts() {
	k := &y.snapshots
	if len(k.plain) > 2*y.queue.Shapes()+maxPlain {
		clear(k.plain)
	}

	k.renewed = k.renewed || len(k.stale) > 0
	for _, r := range k.stale {
		number, _ := r.ID.Number()
		r.stale = false
		k.jobs.Set(number, y.factsOf(r))
	}

	clear(k.stale)
	k.stale = k.stale[:0]
}

// maxPlain is of how many more shapes than there are in the queue the facts are kept.
const maxPlain = 64

// quotaGlance is how often it is looked who may not have nodes provisioned for them.
const quotaGlance = time.Second

// downgraded returns whose quotas let no nodes be provisioned.
func (y *Yard) downgraded() map[queue.Payer]bool {
	k := &y.snapshots

	switch {
	case !y.quotas.Any():
		k.quotas, k.limits = time.Time{}, nil
	case k.quotas.IsZero() || y.now.Sub(k.quotas) >= quotaGlance:
		k.quotas, k.limits = y.now, nil

		for p := range y.payers {
			if y.quotas.Allow(y.now, quota.Payer{Owner: p.User, Project: p.Project}, 0, 0).NoProvisioning {
				if k.limits == nil {
					k.limits = map[queue.Payer]bool{}
				}

				k.limits[p] = true
			}
		}
	}

	return k.limits
}

// factsFor returns what is known of a job, nil if it has ended or is not known yet.
func (s *Snapshot) factsFor(j id.Job) *facts {
	number, ok := j.Number()
	if !ok {
		return nil
	}

	return s.jobs.Get(number)
}

// Position returns the position in the queue of a job that was read from the store, from 1, or 0 if it is not queued or
// too far back.
func (s *Snapshot) Position(now time.Time, j *job.Job) int {
	f := s.factsFor(j.ID)
	if f == nil || !f.queued {
		return 0
	}

	number, _ := j.ID.Number()
	position := s.line.Position(s.clamp(now), j.Spec.Priority, j.Owner, number)
	if position > maxPosition {
		return 0
	}

	return position
}

// Queue yields the numbers of the queued jobs with their owners, in the order in which they are considered.
func (s *Snapshot) Queue(now time.Time) iter.Seq2[uint64, id.User] { return s.line.Order(s.clamp(now)) }

// Queued returns how many jobs are queued.
func (s *Snapshot) Queued() int { return s.line.Len() }

// clamp returns a time, or that of the snapshot if it is before that: for the yard time does not go back.
func (s *Snapshot) clamp(now time.Time) time.Time {
	if now.Before(s.at) {
		return s.at
	}

	return now
}
