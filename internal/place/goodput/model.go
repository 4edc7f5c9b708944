package goodput

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/queue"
)

// market is a plan in the making.
type market struct {
	view   *place.View
	enough func() bool // the time is up; nil if there is no limit
	policy Policy
	kinds  []allocate.Kind
	rooms  []float64 // GPUs of each kind, as a number for arithmetic
	price  []float64 // of a GPU of each kind, job-seconds per second
	tasks  []task
	more   int           // jobs that wait and are left out, because they come after all that could run
	plain  []*queue.Item // jobs that wait and ask for no GPU
	shapes map[*queue.Shape][]reach
	known  map[source][]option
}

// task is a job that waits, or runs and may be changed.
type task struct {
	item   *queue.Item
	run    *place.Running // nil if it waits
	opts   []option       // what it could have, by kind and count; never changed
	held   int            // which of them it has now, -1 if it waits
	young  bool           // it has just begun and keeps what it has
	left   float64        // units of work
	pause  float64        // seconds that a change costs it: saving itself and starting again
	lead   float64        // seconds until its first unit: its pause if it waits, 0 if it runs
	weight float64        // how many jobs it counts as
	share  float64        // of the present price that will hold when it ends, 0 to 1
	value  float64        // of a unit of its work, in job-seconds
	worth  []float64      // of each option a second, after what the change costs; of nothing in front
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
	shape *queue.Shape
	speed *job.Speed
}

func newMarket(v *place.View, p Policy) *market {
	m := &market{view: v, policy: p, kinds: allocate.Kinds(v), shapes: map[*queue.Shape][]reach{},
		known: map[source][]option{}}
	for _, k := range m.kinds {
		m.rooms = append(m.rooms, float64(k.GPUs))
	}

	for _, r := range v.Running {
		if allocate.Movable(r) && r.GPUs > 0 {
			m.add(r.Item, r)
		}
	}

	for _, it := range v.Queue.Items() {
		if it.Shape.Need.MaxGPUs == 0 {
			m.plain = append(m.plain, it)
			continue
		}

		m.add(it, nil)
	}

	return m
}

// add makes a task of a job, if there is a way to run it.
func (m *market) add(it *queue.Item, r *place.Running) {
	t := task{item: it, run: r, opts: m.options(it), held: -1}
	t.pause = briefly
	if s := it.Outlook.Speed; s != nil {
		t.pause = math.Max(t.pause, time.Duration(s.Start+s.Save).Seconds())
	}

	if r == nil && !m.policy.Makespan {
		t.lead = t.pause
	}

	if r != nil && !t.hold(m) || len(t.opts) == 0 {
		return
	}

	t.left = m.left(&t)
	t.weight = 1 + float64(it.Priority)/10
	if !m.policy.Makespan {
		t.weight *= m.wronged(&t)
	}

	m.tasks = append(m.tasks, t)
}

// hold finds the option that a running job has, and adds it if it is not among
// them. It reports false for a job on nodes that are closed or gone, which is left
// as it is.
func (t *task) hold(m *market) bool {
	own := option{gpus: t.run.GPUs, nodes: len(t.run.Allocations), rate: math.Max(t.run.Rate, tiny)}
	if t.item.Outlook.Speed == nil {
		own.rate = 1
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

	t.held = slices.IndexFunc(t.opts, func(o option) bool {
		return o.kind == own.kind && o.gpus == own.gpus &&
			o.nodes == own.nodes
	})

	if t.held < 0 {
		t.held = len(t.opts)
		t.opts = append(slices.Clone(t.opts), own)
	}

	t.young = t.run.Began.IsZero() || m.view.Now.Sub(t.run.Began) < m.policy.gap()
	if t.young {
		t.opts, t.held = t.opts[t.held:t.held+1], 0
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

// briefly is the least, in seconds, that a change is assumed to cost a job: what
// nobody told is not nothing, and without it jobs that are alike take turns.
const briefly = 10

// tiny is less work than any job has, and less worth than matters.
const tiny = 1e-9

// soon is how much is assumed to be left, in seconds, of a job that has just begun
// and does not say how much work it is.
const soon = 60

// left returns the work that is left. Of a job that does not say how much it is,
// as much is assumed to be left as it has had: what has lasted lasts.
func (m *market) left(t *task) float64 {
	o := t.item.Outlook
	left, known := o.RemainingWork()

	served := o.Served
	if t.run != nil {
		left, known = t.run.RemainingWork(m.view.Now)
		served = t.run.Served(m.view.Now)
	}

	if known {
		return math.Max(left, tiny)
	}

	had, rate := served/float64(t.opts[0].gpus), t.opts[0].rate
	if lasts := t.item.Lasts.Seconds(); o.Speed == nil && had < lasts {
		return lasts - had
	}

	// In steps of two, so that jobs of about the same age do not take turns.
	return rate * soon * math.Exp2(math.Ceil(math.Log2(math.Max(had/soon, 1))))
}

// threefold is how many times longer than by itself a job may take before it counts
// as more than one.
const threefold = 3

// wronged is how many jobs a job counts as because it has been there for far
// longer than it would take by itself. Without it a large job could wait for ever
// where small ones keep coming.
func (m *market) wronged(t *task) float64 {
	best, work := 0.0, t.left
	for i := range t.opts {
		best = max(best, t.opts[i].rate)
	}

	if s := t.item.Outlook.Speed; s != nil && s.Work > 0 {
		work = s.Work
	} else if t.item.Lasts > 0 {
		work = t.item.Lasts.Seconds()
	}

	there := m.view.Now.Sub(t.item.Outlook.Submitted).Seconds()

	return math.Max(1, there/(threefold*(work/best+t.pause)))
}

// pace is how fast a job comes to its end at a rate: with a start ahead, which
// weighs most on a short job with many GPUs.
func (t *task) pace(rate float64) float64 { return rate * t.left / (t.left + t.lead*rate) }

// content reports whether a job has the fastest there is for it.
func (t *task) content() bool {
	return t.held >= 0 && !slices.ContainsFunc(t.opts, func(o option) bool { return o.rate > t.opts[t.held].rate })
}

// options lists the ways to run a job: kind by kind, counts rising, each faster
// than the one before it.
func (m *market) options(it *queue.Item) []option {
	key := source{it.Shape, it.Outlook.Speed}
	if opts, ok := m.known[key]; ok {
		return opts
	}

	var opts []option
	for k, r := range m.reaches(it.Shape) {
		if r.gpus > 0 && m.kinds[k].GPU != nil {
			opts = m.appendOptions(opts, k, r, it)
		}
	}

	m.known[key] = opts

	return opts
}

// appendOptions adds the ways to run a job on one kind. Beyond one node a job
// takes whole nodes, or all there is: what would be left of the last one suits
// others better.
func (m *market) appendOptions(opts []option, kind int, r reach, it *queue.Item) []option {
	need := &it.Shape.Need
	speed := it.Outlook.Speed
	gpu := m.kinds[kind].GPU

	least, most := need.Nodes*max(need.GPUs, 1), min(r.gpus, need.MaxNodes*r.each)
	if speed == nil {
		if least <= most {
			opts = append(opts, option{kind: kind, gpus: least, nodes: max(need.Nodes, (least+r.each-1)/r.each),
				rate: 1})
		}

		return opts
	}

	curve := speed.On(gpu.Model, gpu.Memory)
	best := 0.0

	most = min(most, curve.MaxGPUs())
	for n := max(least, curve.MinGPUs()); n <= most; n++ {
		nodes := max(need.Nodes, (n+r.each-1)/r.each)
		if nodes > need.Nodes && nodes > 1 && n%r.each != 0 && n < most {
			continue
		}

		if rate := curve.Rate(n, nodes); rate > best {
			best = rate
			opts = append(opts, option{kind: kind, gpus: n, nodes: nodes, rate: rate})
		}
	}

	return opts
}

// reaches returns how much the jobs of a shape could have of each kind.
func (m *market) reaches(s *queue.Shape) []reach {
	if list, ok := m.shapes[s]; ok {
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

	m.shapes[s] = list

	return list
}
