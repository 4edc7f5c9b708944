package goodput

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/seats"
	"trainyard/internal/queue"
)

// task is a job that waits, or runs and may be changed.
type task struct {
	item   *queue.Item
	run    *place.Running // nil if it waits
	opts   []option       // what it could have, by kind and count
	held   int            // which of them it has now, -1 if it waits
	left   float64        // units of work
	pause  float64        // seconds that a change costs it: saving itself and starting again
	steady float64        // seconds for which a change is taken to last
	weight float64        // how many jobs it counts as
	share  float64        // of the present price that will hold when it ends, 0 to 1
	value  float64        // of a unit of its work, in job-seconds
	young  bool           // it has just begun and is left alone
	worth  []float64      // of each option a second after what the change costs; of nothing in front
}

// option is a way to run a job.
type option struct {
	kind  int // index of the market's kinds
	gpus  int
	nodes int
	rate  float64 // units per second
}

// market is a plan in the making.
type market struct {
	view   *place.View
	policy Policy
	kinds  []seats.Kind
	rooms  []float64 // GPUs of each kind, as a number to reckon with
	price  []float64 // of a GPU of each kind, job-seconds per second
	tasks  []task
	more   int // jobs that wait and are left out, because they come after all that could run
	plain  []*queue.Item
	shapes map[*queue.Shape][]reach
	known  map[source][]option
}

// reach is how much of a kind the jobs of a shape could have.
type reach struct{ gpus, each int }

// source is what options depend on.
type source struct {
	shape *queue.Shape
	speed *job.Speed
}

func newMarket(v *place.View, p Policy) *market {
	m := &market{view: v, policy: p, kinds: seats.Kinds(v), shapes: map[*queue.Shape][]reach{}, known: map[source][]option{}}
	for _, k := range m.kinds {
		m.rooms = append(m.rooms, float64(k.GPUs))
	}
	for _, r := range v.Running {
		if seats.Loose(r) && r.GPUs > 0 {
			m.add(r.Item, r)
		}
	}
	for _, it := range v.Line.Items() {
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
	t := task{item: it, run: r, opts: m.options(it), held: -1, weight: m.weight(it)}
	s := it.Outlook.Speed
	if s != nil {
		t.pause = time.Duration(s.Start + s.Save).Seconds()
	}
	if r != nil {
		t.hold(m)
	}
	if len(t.opts) == 0 || r != nil && t.held < 0 {
		return
	}
	t.left = m.left(&t)
	t.weight *= m.unfair(&t)
	m.tasks = append(m.tasks, t)
}

// weight is how many jobs a job counts as.
func (m *market) weight(it *queue.Item) float64 { return 1 + float64(it.Priority)/10 }

// unfair is how many jobs more a job counts as because it has been there for far
// longer than it would take by itself: with many small jobs it would wait for ever.
func (m *market) unfair(t *task) float64 {
	best := 0.0
	for i := range t.opts {
		best = math.Max(best, t.opts[i].rate)
	}
	work := t.left
	if s := t.item.Outlook.Speed; s != nil && s.Work > 0 {
		work = s.Work
	} else if t.item.Lasts > 0 {
		work = t.item.Lasts.Seconds()
	}
	there := m.view.Now.Sub(t.item.Outlook.Submitted).Seconds()
	return math.Max(1, there/(tenfold*(work/best+soon)))
}

// tenfold is how many times longer than by itself a job may take before it counts
// as more than one.
const tenfold = 10

// patience is how many times what it costs a change must last to be made. Between
// three and six makes no difference that could be measured; at twenty jobs are
// changed too often, at one too seldom.
const patience = 5

// hold finds the option that a running job has, and adds it if it is not among them.
func (t *task) hold(m *market) {
	at, found := m.kindOf(t.run)
	if !found {
		return // its node is gone; it will end by itself
	}
	own := option{kind: at, gpus: t.run.GPUs, nodes: len(t.run.Seats), rate: t.run.Rate}
	if t.item.Outlook.Speed == nil {
		own.rate = 1
	}
	t.held = slices.IndexFunc(t.opts, func(o option) bool { return o.kind == own.kind && o.gpus == own.gpus && o.nodes == own.nodes })
	if t.held < 0 {
		t.held = len(t.opts)
		t.opts = append(slices.Clone(t.opts), own)
	}
	if t.young = t.run.Began.IsZero() || m.view.Now.Sub(t.run.Began) < m.policy.gap(); t.young {
		t.opts = t.opts[t.held : t.held+1 : t.held+1]
		t.held = 0
	}
	t.steady = patience * t.pause
}

// kindOf returns the kind of the nodes that a job runs on.
func (m *market) kindOf(r *place.Running) (int, bool) {
	at, found := slices.BinarySearchFunc(m.view.Rooms, r.Seats[0].Node, func(room fleet.Room, n id.Node) int {
		switch {
		case room.Node.ID < n:
			return -1
		case room.Node.ID > n:
			return 1
		}
		return 0
	})
	if !found {
		return 0, false
	}
	kind := m.view.Rooms[at].Kind
	k := slices.IndexFunc(m.kinds, func(k seats.Kind) bool { return k.ID == kind })
	return k, k >= 0
}

// soon is how much is taken to be left, in seconds, of a job that has just begun
// and does not say how much work it is.
const soon = 60

// left returns the work that is left. Of a job that does not say how much it is,
// as much is taken to be left as it has had: what has lasted lasts.
func (m *market) left(t *task) float64 {
	o := t.item.Outlook
	served := o.Served
	if t.run != nil {
		served = t.run.Served(m.view.Now)
		if left, known := t.run.Left(m.view.Now); known {
			return math.Max(left, tiny)
		}
	} else if left, known := o.Left(); known {
		return math.Max(left, tiny)
	}
	gpus, rate := float64(t.opts[0].gpus), t.opts[0].rate
	had := served / gpus
	if t.item.Outlook.Speed == nil && t.item.Lasts > 0 && had < t.item.Lasts.Seconds() {
		return rate * (t.item.Lasts.Seconds() - had)
	}
	// In steps of two, so that jobs of about the same age do not take turns.
	return rate * soon * math.Exp2(math.Ceil(math.Log2(math.Max(had/soon, 1))))
}

// tiny is less work than any job has.
const tiny = 1e-9

// options lists the ways to run a job: kind by kind, counts rising, each faster
// than the one before it.
func (m *market) options(it *queue.Item) []option {
	key := source{it.Shape, it.Outlook.Speed}
	if opts, ok := m.known[key]; ok {
		return opts
	}
	var opts []option
	for k, r := range m.reaches(it.Shape) {
		opts = m.appendOptions(opts, k, r, it)
	}
	m.known[key] = opts
	return opts
}

// appendOptions adds the ways to run a job on one kind. Beyond one node a job
// takes whole nodes: what would be left of the last one suits others better.
func (m *market) appendOptions(opts []option, kind int, r reach, it *queue.Item) []option {
	need, speed, gpu := &it.Shape.Need, it.Outlook.Speed, m.kinds[kind].GPU
	if gpu == nil || r.gpus == 0 {
		return opts
	}
	least, most := need.Nodes*max(need.GPUs, 1), min(r.gpus, need.MaxNodes*r.each)
	if speed == nil {
		if least <= most {
			opts = append(opts, option{kind: kind, gpus: least, nodes: max(need.Nodes, (least+r.each-1)/r.each), rate: 1})
		}
		return opts
	}
	curve := speed.On(gpu.Model, gpu.Memory)
	best := 0.0
	for n := max(least, curve.Least()); n <= min(most, curve.Most()); n++ {
		nodes := max(need.Nodes, (n+r.each-1)/r.each)
		if nodes > need.Nodes && nodes > 1 && n%r.each != 0 {
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
		k := slices.IndexFunc(m.kinds, func(k seats.Kind) bool { return k.ID == r.Kind })
		n := min(bits.OnesCount64(match.Wanted(r)), s.Need.MaxGPUs)
		list[k].gpus += n
		list[k].each = max(list[k].each, n)
	}
	for k := range list {
		list[k].gpus = min(list[k].gpus, m.kinds[k].GPUs)
		list[k].each = min(list[k].each, m.kinds[k].Largest)
	}
	m.shapes[s] = list
	return list
}
