package rules

import (
	"math"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// queuedJob is a queued job and what is known of it.
type queuedJob struct {
	// What the order depends on stands together in memory.
	length
	user         *queue.Portion[id.User]
	project      *queue.Portion[id.Project]
	width        float64 // its GPUs, as far as wide jobs go first
	overshare    float64 // what its owner and its project used beyond their shares
	sharePenalty float64 // factor on the key for that
	key          float64 // less goes first
	priority     int
	number       uint64
	due          time.Time     // it goes first from then on
	value        money.PerHour // of its time
	aged         bool

	unprofiled    bool           // its speed on different GPUs is unknown: it is assumed to scale with theirs
	costSensitive bool           // it waits for a node that is paid for anyway before one is provisioned
	hasNode       bool           // a node was provisioned for it and is ready
	leases        []*fleet.Lease // of nodes that are provisioned for it
	shape         *shape
	kin           *kin  // nil if it says how long it lasts
	lane          *lane // nil if it is not queued

	item         *queue.Item
	stay         uint64 // in the queue
	comparison   uint64 // backlog.comparisons when it was seen there last
	since        time.Time
	patience     ondemand.Patience
	provisioning *option // the best way to provision for it; nil if not computed
	generation   uint64  // backlog.generation when it was

	// Of this round.
	provisionedIn time.Duration // until a node could be provisioned for it; 0 if none can be
	nowOnly       bool          // later starts are not searched for
	limited       bool          // because the round has used up Config.Visits
}

// length is how long a job lasts.
type length struct {
	lasts time.Duration
	basis basis         // how it is known
	guess bool          // it is not: what it is planned by means no time of day
	low   time.Duration // 80 % prediction interval; 0 if unknown
	high  time.Duration
}

// kin is the queued jobs that do not say how long they last and of which the same is expected.
type kin struct {
	length
	of   queue.Kin
	jobs int
}

func (e *engine) newKin(of queue.Kin) *kin {
	k := &kin{of: of}
	k.estimate(e)

	return k
}

// estimate estimates how long the jobs last from earlier ones.
func (k *kin) estimate(e *engine) {
	k.length = length{lasts: e.cfg.Guess, basis: guessed, guess: true}
	if past, ok := e.view.Past.Estimate(k.of); ok {
		k.length = length{past.Mean, basis(past.Basis), past.Guess, past.Low, past.High}
	}
}

// adoptLength sets how long a job lasts that does not say so.
func (j *queuedJob) adoptLength() {
	if j.kin != nil {
		j.setLength(j.kin.length)
	}
}

func (j *queuedJob) setLength(l length) {
	if l.lasts != j.lasts {
		j.provisioning = nil
	}

	j.length = l
}

func newQueuedJob(it *queue.Item, s *shape, u *queue.Portion[id.User]) *queuedJob {
	return &queuedJob{
		item: it, shape: s, user: u, priority: it.Priority, number: it.Number,
		unprofiled: it.Outlook == nil || it.Outlook.Speed == nil, costSensitive: it.Spec != nil &&
			it.Spec.Objective == job.ObjectiveCost,
	}
}

// describe computes what a job's time is worth, how long it will take, and how urgent that
// makes it. It reports whether the answer may be different in the next round.
func (e *engine) describe(j *queuedJob) (volatile bool) {
	it := j.item
	j.value = e.cfg.Value[job.ObjectiveBalanced]
	if it.Spec != nil {
		if v, ok := e.cfg.Value[it.Spec.Objective]; ok {
			j.value = v
		}
	}

	if it.Lasts == 0 {
		if j.kin == nil {
			j.kin = e.backlog.kinOf(e, it)
		}

		j.adoptLength()
	} else {
		j.setLength(declaredLength(it))
	}

	j.since = it.Since
	if it.Outlook != nil && !it.Outlook.Submitted.IsZero() && it.Outlook.Stops == 0 && it.Outlook.Ran == 0 {
		j.since = it.Outlook.Submitted
	}

	if j.since.IsZero() {
		j.since, volatile = e.view.Now, true
	}

	j.due = j.since.Add(e.cfg.Ageing)
	j.patience = ondemand.Patience{}
	if len(e.view.Offers) > 0 && !j.costSensitive {
		p, settled := e.patienceOf(j)
		j.patience = p
		if p.Share > 0 && p.Lasts < e.cfg.Ageing {
			j.due = j.since.Add(p.Lasts)
		}

		volatile = volatile || !settled
	}

	need := &it.Shape.Need
	j.width = math.Pow(float64(max(need.GPUs*need.Nodes, 1)), e.cfg.Width)

	return volatile
}

// declaredLength returns how long a job lasts by what its owner says, its measured speed or its forecast.
func declaredLength(it *queue.Item) length {
	l := length{lasts: it.Lasts, basis: expected}
	if it.Outlook == nil || it.Spec != nil && (it.Spec.Expect != 0 || it.Spec.MaxDuration != 0) {
		return l
	}

	switch f := it.Outlook.Forecast; {
	case it.Outlook.Speed != nil:
		l.basis = measured
	case it.Spec != nil && f != nil:
		l.basis, l.low, l.high = forecast, job.Seconds(f.Remaining.Low), job.Seconds(f.Remaining.High)
		l.guess = !f.Timed()
	}

	return l
}

// describeNew describes a job that is not in the queue.
func (e *engine) describeNew(it *queue.Item) *queuedJob {
	l := e.backlog
	j := newQueuedJob(it, &shape{of: it.Shape}, l.users.Of(it.User))
	if it.Project != "" {
		j.project = l.projects.Of(it.Project)
	}

	for _, x := range e.view.Leases {
		if x.Live() && x.Job == it.Job && it.Job != "" {
			j.leases = append(j.leases, x)
		}
	}

	if it.Lasts == 0 {
		j.kin = e.newKin(queue.KinOf(it))
	}

	e.describe(j)
	j.aged = !j.due.After(e.view.Now)

	return j
}

// takes returns how long a job takes on nodes of a pool, with so many GPUs on each.
func (e *engine) takes(j *queuedJob, pool *timeline.Pool, gpus, nodes int, s *shape) time.Duration {
	var gpu *fleet.GPU
	if all := pool.Sample.Node.Inventory.GPUs; len(all) > 0 && s.Match.Need.MaxGPUs > 0 {
		gpu = &all[0]
	}

	if part := s.Match.Need.Share; part > 0 {
		return place.RunTimeOnPart(j.item, j.lasts, gpu, part)
	}

	return place.RunTimeOf(j.item, j.lasts, gpu, gpus*nodes, nodes)
}
