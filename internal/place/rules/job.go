package rules

import (
	"math"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
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
	samples      int           // number of earlier jobs it is learned from
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
	j.samples = 0
	j.low = 0
	j.high = 0
	switch {
	case it.Outlook != nil && it.Outlook.Speed != nil &&
		(it.Spec == nil || it.Spec.Expect == 0 && it.Spec.MaxDuration == 0) && it.Lasts > 0:
		j.basis = measured
	case it.Lasts > 0 && it.Spec != nil && it.Spec.Expect == 0 && it.Spec.MaxDuration == 0 && it.Outlook != nil &&
		it.Outlook.Forecast != nil:
		r := &it.Outlook.Forecast.Remaining
		j.basis, j.low, j.high = forecast, job.Seconds(r.Low), job.Seconds(r.High)
	case it.Lasts == 0:
		volatile = true
		j.lasts, j.basis = e.cfg.Guess, guessed
		if mean, of := e.view.Past.MeanDuration(it.User, it.Shape.Need.GPUs*it.Shape.Need.Nodes); of > 0 {
			j.lasts, j.basis, j.samples = mean, learned, of
			j.low, j.high = e.view.Past.Interval(it.User, it.Shape.Need.GPUs*it.Shape.Need.Nodes)
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
	if !j.unprofiled {
		o := j.item.Outlook
		var model string

		var memory job.Bytes
		if len(pool.Sample.Node.Inventory.GPUs) > 0 {
			g := &pool.Sample.Node.Inventory.GPUs[0]
			model, memory = g.Model, g.Memory
		}

		if d, known := o.RemainingTime(o.Speed.On(model, memory).Rate(gpus*nodes, nodes)); known {
			return d
		}
	}

	if s.Match.Need.MaxGPUs == 0 {
		return j.lasts // GPUs that it does not use make it no faster
	}

	reference := s.baseSpeed
	if !s.baseKnown {
		reference = e.reference(s)
	}

	return scaled(j.lasts, reference, pool.TFLOPS, s.Match.Need.GPUs*s.Match.Need.Nodes, gpus*nodes)
}

// scaled returns how long something takes at another speed, with more GPUs than it
// asked for. Twice the GPUs are not quite twice as fast.
func scaled(d time.Duration, reference, speed float64, asked, gets int) time.Duration {
	seconds := d.Seconds()
	if reference > 0 && speed > 0 {
		seconds *= reference / speed
	}

	if asked > 0 && gets > asked {
		seconds *= math.Pow(float64(asked)/float64(gets), 0.9)
	}

	return job.Seconds(seconds)
}

// reference returns the GPU speed that an owner's expected run time is assumed to be for:
// that of the slowest suitable GPU of the yard's own nodes, or else of the slowest offer.
func (e *engine) reference(s *shape) float64 {
	if s.baseKnown {
		return s.baseSpeed
	}

	weakest := 0.0
	for _, pool := range s.Able {
		if pool.Class != fleet.OnDemand && pool.TFLOPS > 0 && (weakest == 0 || pool.TFLOPS < weakest) {
			weakest = pool.TFLOPS
		}
	}

	if weakest == 0 && len(e.view.Offers) > 0 {
		weakest = e.policy.catalogue.Fit(&s.Match.Need).SlowestTFLOPS() / float64(max(s.Match.Need.GPUs, 1))
	}

	s.baseSpeed, s.baseKnown = weakest, true

	return weakest
}
