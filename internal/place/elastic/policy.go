// Package elastic holds the policies that give each job a number of GPUs by a rule, and change it
// while the job runs: equal shares, FfDL, AFS-L, Paddle EDL's autoscaler, and the elastic variants
// of FIFO, SRJF and Tiresias. The rule decides how many GPUs each job gets; package allocate
// decides which.
//
// They are baselines from published rules; where the public code of a rule has a known defect it is
// corrected, and the comment of the rule says so. Like every policy they are pure functions from a
// view to a plan. They do not learn, and they do not consider money.
package elastic

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/place/lineup"
	"trainyard/internal/queue"
)

// Policy gives each job a number of GPUs by a rule, and changes running jobs when the numbers
// change. There is one pool for each kind of GPU, because a job on two kinds runs at the speed of
// the slower one. A waiting job belongs to the least loaded pool that it may use; a job that no
// single pool can hold waits. Jobs without GPUs start where they fit.
type Policy struct {
	name string
	why  string // the rule as the reason of a change: "resized from 2 to 4 GPUs: …"
	rule func(p *pool)
	// cooldown is how long running jobs are left alone after some were changed. Queued
	// jobs may start on free GPUs meanwhile.
	cooldown time.Duration
	// reactive applies the rule during the cooldown too, with coolingDown set.
	reactive bool
	// period restricts changes of running jobs to its multiples; 0 for any time.
	period time.Duration
}

var _ place.Deliberator = Policy{}

// Name returns the name of the policy in the configuration.
func (e Policy) Name() string { return e.name }

// Revises reports that the policy also changes running jobs.
func (e Policy) Revises() bool { return true }

// Slow reports that the server does not wait for it: with many jobs, sharing out the GPUs takes several times as
// long as copying the view.
func (e Policy) Slow() bool { return true }

// pool is the GPUs of one kind and the jobs that share them.
type pool struct {
	now         time.Time
	kind        allocate.Kind
	gpus        int // GPUs that can be assigned
	fragments   int // free GPUs in pieces too small for any job
	free        int // of gpus, not assigned yet
	jobs        []*member
	arrivals    []arrival // jobs that were submitted lately, running or not
	coolingDown bool      // running jobs were changed within the cooldown
	hasUnplaced bool      // a job was removed because no node has room for it
	// wakeAt is when the rule must be applied again, zero if only after an event.
	wakeAt time.Time
}

// arrival is a recently submitted job.
type arrival struct {
	at      time.Time
	minGPUs int // GPUs
}

// arrivalWindow is how long after its submission a job counts as a recent arrival.
const arrivalWindow = time.Minute

// member is a job that a rule gives GPUs to.
type member struct {
	it               *queue.Item
	run              *place.Running // nil if it is queued
	minGPUs, maxGPUs int            // GPUs
	step             int            // number of GPUs by which it grows
	gpu              *fleet.GPU     // of the kind that it can have
	curve            *job.Curve     // nil if its speed is unknown
	perNode          int            // GPUs that it can have on one node
	has, assigned    int
}

// Plan applies the rule and allocates. If the rule gives GPUs to a job that fits on no node, the
// free fragments are useless to it: the rule is applied again as if the fragments did not exist,
// and after that without the job.
func (e Policy) Plan(v *place.View) place.Plan {
	pools, others := e.pools(v)
	until, calm := e.coolingDown(v)
	var wants []allocate.Request
	var given []allocate.Allocation

	var again time.Time
	for try := range maxTries {
		wants, again = slices.Clone(others), time.Time{}
		for _, p := range pools {
			wants = append(wants, e.wants(p, calm)...)
			again = sooner(again, p.wakeAt)
		}

		given = allocate.Assign(v, wants, allocate.Options{Move: !calm || e.reactive})
		failed := failures(wants, given)
		if len(failed) == 0 {
			break
		}

		for _, p := range pools {
			p.retry(try, failed, wants, given)
		}
	}

	plan := allocate.Plan(wants, given, func(i int, takers []id.Job) string {
		return e.reason(&wants[i], &given[i], takers, calm && !e.reactive)
	})
	plan.WakeAt = again
	if calm {
		plan.WakeAt = sooner(plan.WakeAt, until)
	}

	return plan
}

// maxTries bounds how often the rule is applied in one plan.
const maxTries = 4

// failures returns the jobs that the rule gave GPUs but that got none.
func failures(wants []allocate.Request, given []allocate.Allocation) map[*queue.Item]bool {
	failed := map[*queue.Item]bool{}
	for i := range wants {
		if wants[i].GPUs > 0 && len(given[i].Seats) == 0 && wants[i].Item.Shape.Need.MaxGPUs > 0 {
			failed[wants[i].Item] = true
		}
	}

	return failed
}

// retry prepares a pool for another try: the first time fragments no longer count, after that the
// jobs without room are removed.
func (p *pool) retry(try int, failed map[*queue.Item]bool, wants []allocate.Request, given []allocate.Allocation) {
	p.gpus += p.fragments
	p.fragments = 0
	mine := slices.ContainsFunc(p.jobs, func(m *member) bool { return failed[m.it] && m.run == nil })
	if !mine {
		return
	}

	if try == 0 {
		p.fragments = p.gpus
		for i := range wants {
			if len(wants[i].Kinds) == 1 && wants[i].Kinds[0] == p.kind.ID {
				p.fragments -= given[i].GPUs
			}
		}

		p.fragments = max(p.fragments, 0)
		p.gpus -= p.fragments

		return
	}

	p.jobs = slices.DeleteFunc(p.jobs, func(m *member) bool { return failed[m.it] && m.run == nil })
	p.hasUnplaced = true
}

// wants applies the rule and returns the requests that follow from it.
func (e Policy) wants(p *pool, calm bool) []allocate.Request {
	p.free = p.gpus
	p.wakeAt = time.Time{}
	p.coolingDown = calm
	for _, m := range p.jobs {
		m.assigned = 0
	}

	if calm && !e.reactive {
		p.settle()
	} else {
		e.rule(p)
	}

	var wants []allocate.Request
	for _, m := range p.jobs {
		if m.run != nil || m.assigned > 0 {
			wants = append(wants, allocate.Request{Item: m.it, Running: m.run, GPUs: m.assigned,
				Min: min(m.minGPUs, m.assigned), Kinds: []int32{p.kind.ID}})
		}
	}

	return wants
}

// sooner returns the earlier of two times, where zero means none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}

	return a
}

// coolingDown reports whether running jobs must not be changed, and until when.
func (e Policy) coolingDown(v *place.View) (until time.Time, calm bool) {
	if e.period > 0 {
		last := v.Now.Truncate(e.period)
		return last.Add(e.period), !last.Equal(v.Now)
	}

	for _, r := range v.Running {
		if at := r.Ordered.Add(e.cooldown); r.Outlook.Stops > 0 && at.After(v.Now) && at.After(until) {
			until = at
		}
	}

	return until, !until.IsZero()
}

// settle leaves running jobs as they are and gives queued jobs their minimum from the free GPUs.
func (p *pool) settle() {
	for _, m := range p.jobs {
		m.assigned = m.has
		p.free -= m.has
	}

	p.grant(p.jobs)
}

// pools makes the pools, each with its jobs by priority and submission, and the requests of jobs
// without GPUs.
func (e Policy) pools(v *place.View) ([]*pool, []allocate.Request) {
	vacant := allocate.Vacant(v)
	var pools []*pool
	for _, k := range allocate.KindsOf(vacant) {
		if k.GPU != nil {
			pools = append(pools, &pool{now: v.Now, kind: k, gpus: k.GPUs})
		}
	}

	b := &builder{view: v, vacant: vacant, pools: pools, load: make([]int, len(pools)), reach: map[*queue.Shape][]int{}}
	items := v.Queue.Items()
	b.members = make([]member, 0, len(items)+len(v.Running))
	for _, r := range v.Running {
		if r.GPUs > 0 {
			b.running(r)
		}
	}

	var others []allocate.Request
	for _, it := range items {
		if it.Shape.Need.MaxGPUs == 0 {
			others = append(others, allocate.Request{Item: it, GPUs: it.Shape.Need.Nodes})
		} else {
			b.waiting(it)
		}
	}

	for _, p := range pools {
		slices.SortFunc(p.jobs, func(a, b *member) int {
			return cmp.Or(cmp.Compare(b.it.Priority, a.it.Priority), cmp.Compare(a.it.Number, b.it.Number))
		})
	}

	return pools, others
}

// builder assigns each job to a pool.
type builder struct {
	view    *place.View
	vacant  []fleet.Room
	pools   []*pool
	load    []int                  // GPUs that the jobs of each pool need as their minimum
	reach   map[*queue.Shape][]int // most GPUs that a shape can have of each pool
	members []member               // never grows beyond its capacity, because others point into it
}

func (b *builder) running(r *place.Running) {
	at, found := slices.BinarySearchFunc(b.view.Rooms, r.Allocations[0].Node,
		func(room fleet.Room, n id.Node) int { return cmp.Compare(room.Node.ID, n) })
	if !found {
		return
	}

	i := slices.IndexFunc(b.pools, func(p *pool) bool { return p.kind.ID == b.view.Rooms[at].Kind })
	if i < 0 {
		return
	}

	m, ok := newMember(r.Item, r, &b.pools[i].kind, max(b.most(r.Shape, i), r.GPUs))
	switch {
	case !allocate.Movable(r):
		b.note(i, &m)
	case !ok: // its range does not fit its present nodes: leave it alone
		b.pools[i].gpus -= r.GPUs
	default:
		m.has = r.GPUs
		b.add(i, m)
	}
}

// waiting adds a queued job to the least loaded pool that it can use.
func (b *builder) waiting(it *queue.Item) {
	var best member
	to := -1
	for i, p := range b.pools {
		if to >= 0 && b.load[i]*b.pools[to].kind.GPUs >= b.load[to]*p.kind.GPUs {
			continue
		}

		if m, ok := newMember(it, nil, &p.kind, b.most(it.Shape, i)); ok {
			best, to = m, i
		}
	}

	if to >= 0 {
		b.add(to, best)
	}
}

// note records the arrival of a job if it was recent.
func (b *builder) note(to int, m *member) {
	if at := m.it.Outlook.Submitted; b.view.Now.Sub(at) < arrivalWindow {
		b.pools[to].arrivals = append(b.pools[to].arrivals, arrival{at, m.minGPUs})
	}
}

func (b *builder) add(to int, m member) {
	b.note(to, &m)
	b.load[to] += m.minGPUs
	b.members = append(b.members, m)
	b.pools[to].jobs = append(b.pools[to].jobs, &b.members[len(b.members)-1])
}

// most returns how many GPUs a shape could have in a pool of its own, 0 if there are not enough
// nodes for it.
func (b *builder) most(s *queue.Shape, pool int) int {
	if b.reach[s] == nil {
		b.reach[s] = make([]int, len(b.pools))
		m := fleet.NewMatcher(s.Need)

		var each []int
		for i, p := range b.pools {
			each = each[:0]
			for k := range b.vacant {
				if r := &b.vacant[k]; r.Kind == p.kind.ID {
					if gpus, ok := m.Fits(r); ok {
						each = append(each, min(s.Need.MaxGPUs, bits.OnesCount64(gpus)))
					}
				}
			}

			if len(each) < s.Need.Nodes {
				continue
			}

			slices.SortFunc(each, func(a, b int) int { return b - a })
			for _, n := range each[:min(len(each), s.Need.MaxNodes)] {
				b.reach[s][i] += n
			}
		}
	}

	return b.reach[s][pool]
}

// newMember returns what a job can have of a kind of GPU, and whether it can have anything.
func newMember(it *queue.Item, run *place.Running, kind *allocate.Kind, most int) (m member, ok bool) {
	need := &it.Shape.Need
	m = member{it: it, run: run, gpu: kind.GPU, step: 1, perNode: max(min(need.MaxGPUs, kind.Largest), 1), maxGPUs: most}
	m.minGPUs = max(need.Nodes*need.GPUs, 1)
	if need.GPUs == need.MaxGPUs {
		m.step = need.GPUs
	}

	if s := it.Outlook.Speed; s != nil {
		m.curve = s.On(kind.GPU.Model, kind.GPU.Memory)
		if m.curve == nil {
			return m, false
		}

		m.minGPUs = max(m.minGPUs, m.curve.MinGPUs())
		m.maxGPUs = min(m.maxGPUs, max(m.curve.MaxGPUs(), m.minGPUs))
	}

	return m, m.minGPUs <= m.maxGPUs
}

// rate returns the units of work per second on a number of GPUs. Without a measured curve it is
// that number.
func (m *member) rate(gpus int) float64 {
	if gpus <= 0 {
		return 0
	}
	if m.curve == nil {
		return float64(gpus)
	}

	return m.curve.Rate(gpus, (gpus+m.perNode-1)/m.perNode)
}

// speedup returns how many times faster the job is than on one GPU. If its minimum is more than one
// GPU, a speed-up equal to the minimum is assumed there.
func (m *member) speedup(gpus int) float64 {
	base := m.rate(m.minGPUs)
	if base <= 0 {
		return 0
	}

	return m.rate(gpus) / base * float64(m.minGPUs)
}

// remainingTime returns how long the rest of the job takes on a number of GPUs, in seconds,
// infinite if unknown.
func (m *member) remainingTime(now time.Time, gpus int) float64 {
	units, known := m.it.Outlook.RemainingWork()
	if m.run != nil {
		units, known = m.run.RemainingWork(now)
	}

	if rate := m.rate(gpus); known && m.curve != nil && rate > 0 {
		return units / rate
	}
	if m.it.Lasts == 0 {
		return math.Inf(1)
	}

	if m.curve != nil { // the declared duration is for the minimum number of GPUs
		rest := math.Max(m.it.Lasts.Seconds()-lineup.ServedAsked(now, m.it, m.run)/float64(m.minGPUs), 0)

		return rest * m.rate(m.minGPUs) / math.Max(m.rate(gpus), 1e-12)
	}

	rest := m.it.Lasts - job.Seconds(lineup.ServedAsked(now, m.it, m.run)/float64(m.minGPUs))

	return place.RunTimeOf(m.it, max(rest, 0), m.gpu, gpus, m.it.Shape.Need.Nodes).Seconds()
}

// reason explains the allocation of a job. takers are the jobs that get GPUs which it holds now; if
// calm is set, running jobs are not changed and the rule was not applied.
func (e Policy) reason(w *allocate.Request, g *allocate.Allocation, takers []id.Job, calm bool) string {
	gpus := humanize.Count(g.GPUs, "GPU")
	if w.Running == nil {
		switch {
		case w.Item.Shape.Need.MaxGPUs == 0:
			return fmt.Sprintf("%s: fits", g.Seats[0].Node)
		case calm:
			return fmt.Sprintf("starts on %s that are free, its minimum; running jobs were changed a moment ago and keep theirs",
				gpus)
		}

		return fmt.Sprintf("starts on %s: %s", gpus, e.why)
	}

	released := ""
	if len(takers) > 0 {
		released = fmt.Sprintf("; released GPUs go to %s", place.JobNames(takers))
	}

	switch {
	case g.GPUs == 0:
		return "preempted: " + e.why + released
	case g.GPUs == w.Running.GPUs && len(takers) > 0:
		return fmt.Sprintf("%s: moved to make room for %s", lineup.NodeNames(g.Seats), place.JobNames(takers))
	case g.GPUs == w.Running.GPUs:
		return lineup.NodeNames(g.Seats) + ": moved, with as many GPUs as before"
	}

	return fmt.Sprintf("resized from %d to %s: %s%s", w.Running.GPUs, gpus, e.why, released)
}
