package goodput

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/queue"
	"trainyard/internal/scaling"
)

// market is a plan in the making.
type market struct {
	view        *place.View
	enough      func() bool // the time is up; nil if there is no limit
	policy      Policy
	kinds       []allocate.Kind
	capacity    []float64 // GPUs of each kind, as a number for arithmetic
	price       []float64 // of a GPU of each kind, job-seconds per second
	tasks       []task
	prunedJobs  int           // jobs that wait and are left out, because they come after all that could run
	withoutGPUs []*queue.Item // jobs that wait and ask for no GPU
	reachCache  map[*queue.Shape][]reach
	optionCache map[source][]option
}

// task is a job that waits, or runs and may be changed.
type task struct {
	item       *queue.Item
	run        *place.Running // nil if it waits
	options    []option       // what it could have, by kind and count; never changed
	current    int            // which of them it has now, -1 if it waits
	elapsed    float64        // seconds since it began where it is, if its speed is learned; 0 otherwise
	takesTurns bool           // it prefers one kind after the other, for nobody knows which is faster
	recent     bool           // it has just begun and keeps what it has
	remaining  float64        // units of work
	restart    float64        // seconds that a change costs it: saving itself and starting again
	startDelay float64        // seconds until its first unit: its pause if it waits, 0 if it runs
	weight     float64        // how many jobs it counts as
	share      float64        // of the present price that will hold when it ends, 0 to 1
	value      float64        // of a unit of its work, in job-seconds
	worth      []float64      // of each option a second, after what the change costs; of nothing in front
}

// option is a way to run a job.
type option struct {
	kind  int // index of the market's kinds
	gpus  int
	nodes int
	rate  float64 // units per second
}

// reach is how much of a kind the jobs of a shape could have: in all, and on one node.
type reach struct{ gpus, each int }

// source is what options depend on.
type source struct {
	shape     *queue.Shape
	speed     *job.Speed
	learned   *scaling.Model
	reference job.Reference // of the expected run time of a job of unknown speed
}

func newMarket(v *place.View, p Policy) *market {
	m := &market{view: v, policy: p, kinds: allocate.Kinds(v), reachCache: map[*queue.Shape][]reach{},
		optionCache: map[source][]option{}}
	for _, k := range m.kinds {
		m.capacity = append(m.capacity, float64(k.GPUs))
	}

	for _, r := range v.Running {
		if allocate.Movable(r) && r.GPUs > 0 {
			m.add(r.Item, r)
		}
	}

	for _, it := range v.Queue.Items() {
		if it.Shape.Need.MaxGPUs == 0 {
			m.withoutGPUs = append(m.withoutGPUs, it)
			continue
		}

		m.add(it, nil)
	}

	return m
}

// add makes a task of a job, if there is a way to run it.
func (m *market) add(it *queue.Item, r *place.Running) {
	t := task{item: it, run: r, options: m.options(it), current: -1}
	save, start := it.Outlook.RestartCost()
	t.restart = math.Max(minRestart, (save + start).Seconds())

	if r == nil && m.policy.Aim == Completion {
		t.startDelay = t.restart
	}

	if r != nil && !t.findCurrent(m) || len(t.options) == 0 {
		return
	}

	if m.policy.Aim == Fairness {
		m.setTurn(&t)
	}

	t.remaining = m.remainingWork(&t)
	t.weight = 1 + float64(it.Priority)/10
	if m.policy.Aim == Completion {
		t.weight *= m.ageWeight(&t)
	}

	m.tasks = append(m.tasks, t)
}

// findCurrent finds the option that a running job has, and adds it if it is not among
// them. It reports false for a job on nodes that are closed or gone, which is left
// as it is.
func (t *task) findCurrent(m *market) bool {
	own := option{gpus: t.run.GPUs, nodes: len(t.run.Allocations), rate: math.Max(t.run.Rate, tiny)}
	if !t.item.Outlook.HasRates() {
		own.rate = cmp.Or(t.run.Pace, 1)
	}

	for i, s := range t.run.Allocations {
		at, found := m.room(s.Node)
		if !found || !m.view.Rooms[at].Open {
			return false
		}

		if i == 0 {
			own.kind = m.kind(m.view.Rooms[at].Kind)
		}
	}

	t.current = slices.IndexFunc(t.options, func(o option) bool {
		return o.kind == own.kind && o.gpus == own.gpus &&
			o.nodes == own.nodes
	})

	if t.current < 0 {
		t.current = len(t.options)
		t.options = append(slices.Clone(t.options), own)
	}

	t.recent = t.run.Began.IsZero() || m.view.Now.Sub(t.run.Began) < m.policy.gap()
	if o := t.item.Outlook; !t.run.Began.IsZero() && o.DeclaredSpeed() == nil && o.Learned != nil {
		t.elapsed = m.view.Now.Sub(t.run.Began).Seconds()
	}
	if t.recent {
		t.options, t.current = t.options[t.current:t.current+1], 0
	}

	return true
}

// room returns the place of a node's room in the view.
func (m *market) room(n id.Node) (int, bool) {
	return slices.BinarySearchFunc(m.view.Rooms, n, func(r fleet.Room,
		n id.Node) int {
		return cmp.Compare(r.Node.ID, n)
	})
}

// kind returns the index of a kind of open rooms.
func (m *market) kind(number int32) int {
	return slices.IndexFunc(m.kinds, func(k allocate.Kind) bool { return k.ID == number })
}

// minRestart is the minimum restart time in seconds: an unknown restart time is not zero, and
// without a minimum similar jobs would take turns.
const minRestart = 10

// tiny is less work than any job has, and less worth than matters.
const tiny = 1e-9

// initialGuess is the assumed remaining time, in seconds, of a job that has just begun and
// whose amount of work is unknown.
const initialGuess = 60

// guessStep is the ratio of one guess to the next: jobs of about the same age must not take turns.
const guessStep = 4

// remainingWork returns the remaining work. If the amount of work is unknown, as much is
// assumed to remain as the job has had so far.
func (m *market) remainingWork(t *task) float64 {
	o := t.item.Outlook
	left, known := o.RemainingWork()

	served := o.Served
	if t.run != nil {
		left, known = t.run.RemainingWork(m.view.Now)
		served = t.run.Served(m.view.Now)
		if !o.HasRates() {
			served = t.run.ServedAsked(m.view.Now)
		}
	}

	if known {
		return math.Max(left, tiny)
	}

	had, rate := served/float64(t.options[0].gpus), t.options[0].rate
	if lasts := t.item.Lasts.Seconds(); o.DeclaredSpeed() == nil && had < lasts {
		return (lasts - had) * t.perSecond()
	}

	steps := math.Ceil(math.Log(math.Max(had/initialGuess, 1)) / math.Log(guessStep))

	return rate * initialGuess * math.Pow(guessStep, steps)
}

// perSecond returns how much work a second of the job's expected run time is: its rate on the fewest
// GPUs, or one if no rates are known, for then its work is counted in seconds on what it asks for.
func (t *task) perSecond() float64 {
	if t.item.Outlook.HasRates() {
		return t.options[0].rate
	}

	return 1
}

// maxStretch is how many times longer than alone on the yard a job may take before it
// counts as more than one job. How long it takes alone is a guess if its work is unknown, and a
// guess from what it has had so far is too low for most of its time.
const (
	maxStretch        = 3.0
	maxStretchGuessed = 10.0
)

// ageWeight is how many jobs a job counts as because it has been in the yard for far longer
// than it would take alone. Without it a large job could starve where small ones keep coming.
func (m *market) ageWeight(t *task) float64 {
	best, work := 0.0, t.remaining
	for i := range t.options {
		best = max(best, t.options[i].rate)
	}

	stretch := maxStretch
	if s := t.item.Outlook.Speed; s != nil && s.Work > 0 {
		work = s.Work
	} else if t.item.Lasts > 0 {
		work = t.item.Lasts.Seconds() * t.perSecond()
	} else {
		stretch = maxStretchGuessed
	}

	there := m.view.Now.Sub(t.item.Outlook.Submitted).Seconds()

	return math.Max(1, there/(stretch*(work/best+t.restart)))
}

// pace is how fast a job comes to its end at a rate: with a start ahead, which
// weighs most on a short job with many GPUs.
func (t *task) pace(rate float64) float64 {
	return rate * t.remaining / (t.remaining + t.startDelay*rate)
}

// hasFastest reports whether a job has the fastest there is for it.
func (t *task) hasFastest() bool {
	return t.current >= 0 &&
		!slices.ContainsFunc(t.options, func(o option) bool { return o.rate > t.options[t.current].rate })
}

// options lists the ways to run a job: kind by kind, counts rising, each faster
// than the one before it.
func (m *market) options(it *queue.Item) []option {
	key := source{it.Shape, it.Outlook.DeclaredSpeed(), it.Outlook.Learned, it.Outlook.Reference}
	if opts, ok := m.optionCache[key]; ok {
		return opts
	}

	var opts []option
	for k, r := range m.reaches(it.Shape) {
		if r.gpus > 0 && m.kinds[k].GPU != nil {
			opts = m.appendOptions(opts, k, r, it)
		}
	}

	m.optionCache[key] = opts

	return opts
}

// appendOptions adds the ways to run a job on one kind. Beyond one node a job
// takes whole nodes, or all there is: what would be left of the last one suits
// others better.
func (m *market) appendOptions(opts []option, kind int, r reach, it *queue.Item) []option {
	need := &it.Shape.Need

	least, most := need.Nodes*max(need.GPUs, 1), min(r.gpus, need.MaxNodes*r.each)
	if !it.Outlook.HasRates() {
		if least <= most {
			opts = append(opts, option{kind: kind, gpus: least, nodes: max(need.Nodes, (least+r.each-1)/r.each),
				rate: it.Outlook.Reference.Pace(least, place.HardwareOf(m.kinds[kind].GPU, least))})
		}

		return opts
	}

	curve := newCurve(it.Outlook, m.kinds[kind].GPU)
	best := 0.0

	most = min(most, curve.maxGPUs())
	for n := max(least, curve.minGPUs()); n <= most; n++ {
		nodes := max(need.Nodes, (n+r.each-1)/r.each)
		if nodes > need.Nodes && nodes > 1 && n%r.each != 0 && n < most {
			continue
		}

		if rate := curve.rate(n, nodes); rate > best {
			best = rate
			opts = append(opts, option{kind: kind, gpus: n, nodes: nodes, rate: rate})
		}
	}

	return opts
}

// reaches returns how much the jobs of a shape could have of each kind.
func (m *market) reaches(s *queue.Shape) []reach {
	if list, ok := m.reachCache[s]; ok {
		return list
	}

	list := make([]reach, len(m.kinds))
	match := fleet.NewMatcher(s.Need)

	for i := range m.view.Rooms {
		r := &m.view.Rooms[i]
		if !r.Open || !match.Eligible(r) {
			continue
		}

		k := &list[m.kind(r.Kind)]
		n := min(bits.OnesCount64(match.MatchingGPUs(r)), s.Need.MaxGPUs)
		k.gpus += n
		k.each = max(k.each, n)
	}

	for k := range list {
		list[k].each = min(list[k].each, m.kinds[k].Largest)
		list[k].gpus = min(list[k].gpus, m.kinds[k].GPUs)
		if list[k].each == 0 {
			list[k].gpus = 0
		}
	}

	m.reachCache[s] = list

	return list
}
