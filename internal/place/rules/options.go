package rules

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/provision"
	"trainyard/internal/share"
)

// option is one way to run a job.
type option struct {
	pool         *timeline.Pool   // of its nodes; of the slowest if they are of several
	mix          []*timeline.Pool // the pools of its nodes if they are of several
	rooms        []int32
	gpus         int           // on each node
	part         uint64        // the GPU that it shares with others now; 0 if it is to be chosen, or it has whole ones
	share        float64       // of that GPU; 0 for whole ones
	besides      []share.Cut   // who else shares it
	waste        float64       // what others cannot use any more, see package share
	joins        int           // index of the reservation whose GPU it shares later, plus one; 0 for none
	startsIn     time.Duration // until nodes that are there become free; 0 for idle and for provisioned ones
	readyIn      time.Duration // until it computes: startsIn, boot, set-up and staging of data
	runs         time.Duration
	marginalCost money.Amount      // what is paid only because the job runs there
	score        money.Amount      // marginal cost, and time at what it is worth; less is better
	offer        *provision.Option // to be provisioned; nil for nodes that are there
	nodes        int               // of the offer
	stops        []*place.Running  // jobs that are preempted for it
	barredBy     string            // the quota or budget that forbids it, "" if none does
}

// provisions reports whether nodes have to be provisioned for it.
func (o *option) provisions() bool { return o.offer != nil }

// done returns when the job would be done, counted from now.
func (o *option) done() time.Duration { return o.readyIn + o.runs }

// options lists the ways to run a job, the best first: on each pool the soonest, for gangs
// also across pools, and the best offer.
func (e *engine) options(j *queuedJob, s *shape) []option {
	e.apart = nil

	a := e.allowance(j)
	if a.HoldReason != "" {
		return nil
	}

	list := e.policy.scratch.options[:0]
	provisioning, canProvision := e.provisionOption(j, s)
	limit := timeline.Never

	j.provisionedIn = 0
	if canProvision {
		if !j.awaitsNodes() { // what is being provisioned already is allowed
			provisioning.barredBy = e.barred(j, a, &provisioning)
		}

		switch {
		case provisioning.barredBy == "" && !j.costSensitive:
			limit, j.provisionedIn = e.limit(j, &provisioning), provisioning.readyIn
		case provisioning.barredBy != "" && e.claims.Any():
			e.wakeAt(e.view.Now.Add(time.Second)) // the next plan knows what is really left
		}
	}

	full := e.knownFull(j, s)

	all, now := true, false
	for _, pool := range s.Able {
		if e.costs.of(pool).rent > 0 && a.NoProvisioning {
			all = false
			continue
		}

		if s.Match.Need.SameGPU && pool.Kind < 0 {
			continue // its nodes have GPUs of several models
		}

		list = append(list, option{pool: pool})
		if o := &list[len(list)-1]; e.complete(j, s, o, limit, full) {
			now = now || o.startsIn == 0
		} else {
			list = list[:len(list)-1]
		}
	}

	if s.Match.Need.Nodes > 1 && len(s.Able) > 1 {
		alike := len(list)
		list = e.mixed(j, s, list, limit, full)
		now = now || slices.ContainsFunc(list[alike:], func(o option) bool { return o.startsIn == 0 })
	}

	if !now && e.apart == nil { // others of its shape need not be kept apart from whoever keeps it off
		e.nothingFree(j, s, all)
	}

	if canProvision {
		list = append(list, provisioning)
	}

	for i := range list {
		e.score(j, &list[i])
	}

	e.policy.sortByScore(list)
	e.policy.scratch.options = list

	return list
}

// rank is an option in the order of their scores.
type rank struct {
	score money.Amount
	at    int // in the list
}

// sortByScore sorts options, the best first, those with the same score as they were. Options are large, so their ranks
// are sorted and each option is moved to its place after that.
func (p *Policy) sortByScore(list []option) {
	ranks := p.scratch.ranks[:0]
	for i := range list {
		ranks = append(ranks, rank{list[i].score, i})
	}

	slices.SortFunc(ranks, func(a, b rank) int {
		if a.score != b.score {
			return cmp.Compare(a.score, b.score)
		}

		return cmp.Compare(a.at, b.at)
	})

	for i := range ranks {
		at := ranks[i].at
		for at < i { // what was there has been moved to where its successor was
			at = ranks[at].at
		}

		if at != i {
			list[i], list[at] = list[at], list[i]
		}
	}

	p.scratch.ranks = ranks
}

// nothingFree remembers that a job of a shape found no free room: in all pools, or in those
// that it may use. Jobs of the same shape that last as long need not search again.
func (e *engine) nothingFree(j *queuedJob, s *shape, all bool) {
	if s.shortestBlocked == 0 || s.stopsThen != len(e.plan.Stops) || j.lasts < s.shortestBlocked {
		s.shortestBlocked, s.stopsThen = j.lasts, len(e.plan.Stops)
	}

	if all && j.unprofiled && (s.shortestFull == 0 || s.freedThen != e.freed || j.lasts < s.shortestFull) {
		s.shortestFull, s.freedThen = j.lasts, e.freed
	}
}

// complete fills in an option: the soonest way to run a job on nodes of its pool, now or
// until limit. It reports whether there is one. If full is set, nothing is free now.
func (e *engine) complete(j *queuedJob, s *shape, o *option, limit time.Duration, full bool) bool {
	need := &s.Match.Need
	o.gpus, o.share = need.GPUs, need.Share
	o.runs = e.takes(j, o.pool, need.GPUs, need.Nodes, s)
	if !full && need.Share > 0 {
		e.fitPart(j, s, o)
	} else if !full {
		e.fitNow(j, s, o)
	}

	if o.rooms != nil {
		e.widen(j, s, o)
		e.price(j, o)
		return true
	}

	if j.nowOnly {
		return false
	}

	o.rooms, o.startsIn = e.timeline.Earliest(e.request(j, s, o.pool, o.runs), o.pool, limit)
	e.joinReservation(j, need, o)

	if o.rooms == nil {
		return false
	}

	e.price(j, o)

	return true
}

// request is what a job looks for in a pool. A provisioned node is paid for as a whole, so
// there the tightest fit is the cheapest.
func (e *engine) request(j *queuedJob, s *shape, pool *timeline.Pool, lasts time.Duration) *timeline.Request {
	e.search = timeline.Request{Shape: &s.Shape, Job: j.item.Job, Lasts: lasts, Tightest: e.costs.of(pool).rent > 0}
	return &e.search
}

// widen gives an elastic job more GPUs of the nodes it starts on, as many as are free there
// and make it faster. A cost-sensitive job gets as few as it asked for.
func (e *engine) widen(j *queuedJob, s *shape, o *option) {
	need := &s.Match.Need
	if need.MaxGPUs <= need.GPUs || j.costSensitive {
		return
	}

	// More than its quota allows would not be started at all.
	most := min(need.MaxGPUs, max(e.allowance(j).Ceiling/need.Nodes, need.GPUs))
	for _, at := range o.rooms {
		r := e.timeline.Room(at)
		fits, _ := s.Match.Fits(&r)
		most = min(most, bits.OnesCount64(fits))
		if e.timeline.Reserved(at) {
			most = need.GPUs
		}
	}

	if most <= o.gpus {
		return
	}

	runs := time.Duration(0)
	o.pools(func(p *timeline.Pool) { runs = max(runs, e.takes(j, p, most, need.Nodes, s)) })

	if runs < o.runs {
		o.gpus, o.runs = most, runs
	}
}

// choose returns the option to take, nil if the job stays queued without a reservation.
func (e *engine) choose(j *queuedJob, options []option) *option {
	if j.costSensitive {
		if o := e.weakest(j, options); o != nil {
			return o
		}
	}

	for i := range options {
		o := &options[i]
		switch {
		case o.barredBy != "":
		case o.provisions() && j.awaitsNodes():
			return nil // nodes are being provisioned for it already
		case o.provisions() && len(j.leases) > 0: // they have come: it starts there, not on others like them
		case o.provisions() && j.limited:
			e.wakeAt(j.due) // how long it would wait was not computed; when it is due it goes first
			return nil
		case o.provisions() && j.costSensitive && !e.outwaited(j, options):
		default:
			return o
		}
	}

	return nil
}

// weakest returns the slowest idle node that is paid for anyway, local ones first: the fast
// ones stay free for time-sensitive jobs. Nil if there is none, or if the job would miss
// its deadline there and not elsewhere.
func (e *engine) weakest(j *queuedJob, options []option) *option {
	var found *option
	for i := range options {
		o := &options[i]
		if o.provisions() || o.startsIn > 0 || e.rented(o) || e.late(j, o) && !e.late(j, &options[0]) {
			continue
		}

		if found == nil || weaker(o, found) {
			found = o
		}
	}

	return found
}

// weaker reports whether a cost-sensitive job rather takes one option than another: that of the
// better class, then alike nodes, then slower ones.
func weaker(a, b *option) bool {
	return cmp.Or(
		cmp.Compare(classRank(a), classRank(b)),
		falseFirst(len(a.mix) > 0, len(b.mix) > 0),
		cmp.Compare(a.pool.TFLOPS, b.pool.TFLOPS),
	) < 0
}
