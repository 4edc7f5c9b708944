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
	// What the order depends on stands together in memory: every round reads it for every job.
	shape         *shape
	user          *queue.Portion[id.User]
	project       *queue.Portion[id.Project]
	baseKey       float64 // the key before fair share
	overshare     float64 // what its owner and its project used beyond their shares
	sharePenalty  float64 // factor on the key for that
	key           float64 // less goes first
	priority      int
	number        uint64
	due           time.Time // it goes first from then on
	lasts         time.Duration
	aged          bool
	removed       bool           // it has left the queue
	unprofiled    bool           // its speed on different GPUs is unknown: it is assumed to scale with theirs
	costSensitive bool           // it waits for a node that is paid for anyway before one is provisioned
	hasNode       bool           // a node was provisioned for it and is ready
	leases        []*fleet.Lease // of nodes that are provisioned for it

	item         *queue.Item
	value        money.PerHour // of its time
	basis        basis         // how it is known how long it lasts
	guess        bool          // it is not: what it is planned by means no time of day
	low          time.Duration // 80 % prediction interval; 0 if unknown
	high         time.Duration
	since        time.Time
	patience     ondemand.Patience
	provisioning *option // the best way to provision for it; nil if not computed

	// Of this round.
	provisionedIn time.Duration // until a node could be provisioned for it; 0 if none can be
	nowOnly       bool          // later starts are not searched for
	limited       bool          // because the round has used up Config.Visits
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

	lasts := j.lasts
	j.lasts = it.Lasts
	j.basis = expected
	j.guess = false
	j.low = 0
	j.high = 0
	switch {
	case it.Outlook != nil && it.Outlook.Speed != nil &&
		(it.Spec == nil || it.Spec.Expect == 0 && it.Spec.MaxDuration == 0) && it.Lasts > 0:
		j.basis = measured
	case it.Lasts > 0 && it.Spec != nil && it.Spec.Expect == 0 && it.Spec.MaxDuration == 0 && it.Outlook != nil &&
		it.Outlook.Forecast != nil:
		f := it.Outlook.Forecast
		j.basis, j.low, j.high = forecast, job.Seconds(f.Remaining.Low), job.Seconds(f.Remaining.High)
		j.guess = !f.Timed()
	case it.Lasts == 0:
		volatile = true
		j.lasts, j.basis, j.guess = e.cfg.Guess, guessed, true
		if past, ok := e.view.Past.Estimate(queue.KinOf(it)); ok {
			j.lasts, j.basis, j.low, j.high = past.Mean, basis(past.Basis), past.Low, past.High
			j.guess = past.Guess
		}
	}

	if j.lasts != lasts {
		j.provisioning = nil
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
	wide := math.Pow(float64(max(need.GPUs*need.Nodes, 1)), e.cfg.Width)
	j.baseKey = j.lasts.Hours() / wide / float64(max(j.value, 1e-9))

	return volatile
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

	e.describe(j)

	return j
}

// takes returns how long a job takes on nodes of a pool, with so many GPUs on each.
func (e *engine) takes(j *queuedJob, pool *timeline.Pool, gpus, nodes int, s *shape) time.Duration {
	var gpu *fleet.GPU
	if all := pool.Sample.Node.Inventory.GPUs; len(all) > 0 && s.Match.Need.MaxGPUs > 0 {
		gpu = &all[0]
	}

	return place.RunTimeOf(j.item, j.lasts, gpu, gpus*nodes, nodes)
}
