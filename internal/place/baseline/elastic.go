package baseline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/seats"
	"trainyard/internal/queue"
)

// Elastic gives each job a number of GPUs by a rule, and changes what runs when
// the numbers change. There is one pool for each kind of GPU, because a job on two
// kinds goes as fast as on the slower; a waiting job belongs to the pool that has
// least to do of those it may use. Jobs without GPUs start where they fit.
type Elastic struct {
	name string
	why  string // the rule, said of a job that gets another number: "…, because …"
	rule func(p *pool)
	// gap is how long running jobs are left alone after some were changed. What
	// waits may start meanwhile on what is free.
	gap time.Duration
	// period lets running jobs be changed only at multiples of it.
	period time.Duration
}

var _ place.Policy = Elastic{}

// Name is what the policy is called in the configuration.
func (e Elastic) Name() string { return e.name }

// Revises reports that it also changes what runs.
func (e Elastic) Revises() bool { return true }

// pool is the GPUs of one kind and the jobs that share them.
type pool struct {
	now  time.Time
	kind seats.Kind
	free int // GPUs that nobody has been given yet
	jobs []*member
	// again is when the rule wants to be asked again, zero if it does not.
	again time.Time
}

// member is a job that a rule gives GPUs to.
type member struct {
	task
	least, most int // GPUs
	step        int // by how many its number may grow
	curve       *job.Curve
	perNode     int // GPUs that it can have on one node
	has, gets   int
}

// Plan asks the rule and deals out.
func (e Elastic) Plan(v *place.View) place.Plan {
	pools, others := e.pools(v)
	wants := others
	var plan place.Plan
	until, calm := e.calm(v)
	for _, p := range pools {
		if calm {
			e.wait(p)
		} else {
			e.rule(p)
		}
		plan.Again = sooner(plan.Again, p.again)
		for _, m := range p.jobs {
			if m.run != nil || m.gets > 0 {
				wants = append(wants, seats.Want{Item: m.it, Running: m.run, GPUs: m.gets, Least: min(m.least, m.gets), Kinds: []int32{p.kind.ID}})
			}
		}
	}
	given := seats.Deal(v, wants, seats.Options{Move: !calm})
	dealt := seats.Plan(wants, given, func(i int) string { return e.reason(&wants[i], &given[i]) })
	dealt.Again = plan.Again
	if calm && (v.Line.Len() > len(dealt.Starts) || len(v.Running) > 0) {
		dealt.Again = sooner(dealt.Again, until)
	}
	return dealt
}

// sooner is the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// calm reports whether running jobs are to be left alone, and until when.
func (e Elastic) calm(v *place.View) (until time.Time, calm bool) {
	if e.period > 0 {
		last := v.Now.Truncate(e.period)
		return last.Add(e.period), !last.Equal(v.Now)
	}
	for _, r := range v.Running {
		if at := r.Ordered.Add(e.gap); r.Outlook.Stops > 0 && at.After(v.Now) && at.After(until) {
			until = at
		}
	}
	return until, !until.IsZero()
}

// wait lets what runs be, and gives those that wait their least from what is free.
func (e Elastic) wait(p *pool) {
	for _, m := range p.jobs {
		m.gets = m.has
		p.free -= m.has
	}
	p.grant(p.jobs)
}

// pools makes the pools, each with its jobs by priority and submission, and the
// wants of jobs without GPUs.
func (e Elastic) pools(v *place.View) ([]*pool, []seats.Want) {
	var pools []*pool
	for _, k := range seats.Kinds(v) {
		if k.GPU != nil {
			pools = append(pools, &pool{now: v.Now, kind: k, free: k.GPUs})
		}
	}
	load := make([]int, len(pools))
	for _, r := range v.Running {
		if r.Shape.Need.MaxGPUs == 0 || r.GPUs == 0 || !seats.Loose(r) {
			continue
		}
		at := poolOf(v, pools, r)
		if at < 0 {
			continue
		}
		m := newMember(task{it: r.Item, run: r}, &pools[at].kind)
		if m == nil { // what is known of it does not fit where it is; let it be
			pools[at].free -= r.GPUs
			continue
		}
		m.has = r.GPUs
		m.most = max(m.most, m.least)
		load[at] += m.least
		pools[at].jobs = append(pools[at].jobs, m)
	}
	var others []seats.Want
	usable := map[*queue.Shape][]bool{}
	for _, it := range v.Line.Items() {
		if it.Shape.Need.MaxGPUs == 0 {
			others = append(others, seats.Want{Item: it, GPUs: it.Shape.Need.Nodes})
			continue
		}
		if usable[it.Shape] == nil {
			usable[it.Shape] = kindsFor(v, pools, it.Shape)
		}
		var best *member
		to := -1
		for i, p := range pools {
			if !usable[it.Shape][i] {
				continue
			}
			m := newMember(task{it: it}, &p.kind)
			if m != nil && m.least <= p.kind.GPUs && (to < 0 || load[i]*pools[to].kind.GPUs < load[to]*p.kind.GPUs) {
				best, to = m, i
			}
		}
		if to >= 0 {
			load[to] += best.least
			pools[to].jobs = append(pools[to].jobs, best)
		}
	}
	for _, p := range pools {
		slices.SortFunc(p.jobs, func(a, b *member) int {
			return cmp.Or(cmp.Compare(b.it.Priority, a.it.Priority), cmp.Compare(a.it.Number, b.it.Number))
		})
	}
	return pools, others
}

// poolOf returns the pool of a running job.
func poolOf(v *place.View, pools []*pool, r *place.Running) int {
	at, found := slices.BinarySearchFunc(v.Rooms, r.Seats[0].Node, func(room fleet.Room, n id.Node) int { return cmp.Compare(room.Node.ID, n) })
	if !found {
		return -1
	}
	return slices.IndexFunc(pools, func(p *pool) bool { return p.kind.ID == v.Rooms[at].Kind })
}

// kindsFor reports for each pool whether a shape could run there.
func kindsFor(v *place.View, pools []*pool, s *queue.Shape) []bool {
	m := fleet.NewMatcher(s.Need)
	usable := make([]bool, len(pools))
	for i, p := range pools {
		usable[i] = slices.ContainsFunc(v.Rooms, func(r fleet.Room) bool { return r.Kind == p.kind.ID && r.Open && m.Eligible(&r) })
	}
	return usable
}

// newMember says what a job can have of a kind, nil if nothing.
func newMember(t task, kind *seats.Kind) *member {
	need := &t.it.Shape.Need
	m := &member{task: t, step: 1, perNode: max(min(need.MaxGPUs, kind.Largest), 1)}
	m.least = max(need.Nodes*need.GPUs, 1)
	m.most = need.MaxNodes * m.perNode
	if need.GPUs == need.MaxGPUs && need.GPUs > 0 {
		m.step = need.GPUs
	}
	if s := t.it.Outlook.Speed; s != nil {
		if m.curve = s.On(kind.GPU.Model, kind.GPU.Memory); m.curve == nil {
			return nil
		}
		m.least = max(m.least, m.curve.Least())
		m.most = min(m.most, max(m.curve.Most(), m.least))
	}
	m.most = min(m.most, kind.GPUs)
	if m.least > m.most && t.run == nil {
		return nil
	}
	return m
}

// rate is the units per second on so many GPUs; without a curve, as many as GPUs.
func (m *member) rate(gpus int) float64 {
	if gpus <= 0 {
		return 0
	}
	if m.curve == nil {
		return float64(gpus)
	}
	return m.curve.Rate(gpus, (gpus+m.perNode-1)/m.perNode)
}

// speedup is how many times faster it is than on one GPU; where it needs more
// than one, those count as so many.
func (m *member) speedup(gpus int) float64 {
	base := m.rate(m.least)
	if base <= 0 {
		return 0
	}
	return m.rate(gpus) / base * float64(m.least)
}

// left is how long the rest of it takes on so many GPUs, in seconds. Unknown is longest.
func (m *member) left(now time.Time, gpus int) float64 {
	units, known := m.it.Outlook.Left()
	if m.run != nil {
		units, known = m.run.Left(now)
	}
	if rate := m.rate(gpus); known && m.curve != nil && rate > 0 {
		return units / rate
	}
	if m.it.Lasts == 0 {
		return math.Inf(1)
	}
	// It was declared for as little as it asks for.
	rest := math.Max(m.it.Lasts.Seconds()-served(now, &m.task)/float64(m.least), 0)
	return rest * m.rate(m.least) / math.Max(m.rate(gpus), 1e-12)
}

// reason says why a job gets what it gets.
func (e Elastic) reason(w *seats.Want, g *seats.Given) string {
	gpus := "1 GPU"
	if g.GPUs != 1 {
		gpus = fmt.Sprintf("%d GPUs", g.GPUs)
	}
	switch {
	case w.Item.Shape.Need.MaxGPUs == 0:
		return fmt.Sprintf("%s has room for it", g.Seats[0].Node)
	case w.Running == nil:
		return fmt.Sprintf("starts on %s: %s", gpus, e.why)
	case g.GPUs == 0:
		return "makes room: " + e.why
	case g.GPUs == w.Running.GPUs:
		return "moves to make room for a larger job"
	}
	return fmt.Sprintf("goes on with %s instead of %d: %s", gpus, w.Running.GPUs, e.why)
}
