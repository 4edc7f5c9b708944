package andreas

import (
	"math"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// task is a job that may be given GPUs: one that waits, or one that runs and may be stopped.
type task struct {
	item  *queue.Item
	run   *place.Running // nil if it waits
	home  []int32        // the rooms that it has seats in
	left  float64        // units of work; seconds if its speed is unknown
	dated bool           // it has a deadline
	slack float64        // seconds until then
	late  float64        // money for a second past it, or for a second at all without one
	again float64        // seconds that stopping and starting it again takes
	rank  int            // in the order of the line, of a waiting job without a deadline

	menu   []dish
	offers []offer
	base   int     // the offer that takes least of the yard
	fast   int     // the fastest
	cheap  int     // the cheapest
	now    int     // the offer that it has now, -1 if it waits
	turn   float64 // what a start is worth to it for each GPU, without a deadline
	spare  float64 // seconds that it could wait if all that is due before it were done first
	rush   float64 // what not having to wait is worth to it
	at     int     // the offer that it is given, -1 if it waits
	pos    []int32 // and its nodes, by their places on the kind's shelf
	one    [1]int32
	cut    int          // the shared GPU that it has a part of, on the kind's shelf
	luck   float64      // makes its steps look better or worse
	seats  []place.Seat // what it is given, once seats are dealt; pos then has the rooms
}

// offer is a kind and a number of GPUs that a task could have.
type offer struct {
	dish
	time   float64 // seconds until it has ended there
	lost   float64 // of these until it does its first work
	weight float64 // what it takes of the yard, in GPUs of the best kind
	bill   float64 // what its GPUs cost until its end, on well used nodes
	gain   float64 // money that it wins in a second over waiting
	cold   float64 // the same on nodes that must be switched on first
}

// dish is an offer as all jobs of one shape and speed have it.
type dish struct {
	kind        int32
	gpus, nodes int32   // of all nodes together
	part        float64 // of the one GPU, if it is shared with others; 0 for whole GPUs
	rate        float64
}

type menuKey struct {
	shape *shape
	speed *job.Speed
}

// unknownLasts is how long a job is taken to run of which nobody said it.
const unknownLasts = time.Hour

// enter makes tasks of the jobs that wait and of those that may be stopped.
func (y *yard) enter(waiting []*queue.Item) {
	y.shapes, y.needs, y.menus = map[*queue.Shape]*shape{}, map[fleet.Need]*shape{}, map[menuKey][]dish{}
	y.tasks = make([]task, 0, len(waiting)+len(y.loose))
	for _, l := range y.loose {
		y.tasks = append(y.tasks, task{item: l.run.Item, run: l.run, home: l.rooms, now: -1, at: -1})
	}
	undated := false
	for _, it := range waiting {
		y.tasks = append(y.tasks, task{item: it, now: -1, at: -1})
		undated = undated || it.Outlook.Deadline.IsZero()
	}
	if undated {
		y.rank()
	}
}

// rank writes down the order of the line, for the jobs without a deadline.
func (y *yard) rank() {
	ranks := make(map[*queue.Item]int, y.view.Line.Len())
	walk := y.view.Line.Walk(y.view.UsageOf)
	every := func(*queue.Shape) bool { return true }
	for it := walk.Next(every); it != nil; it = walk.Next(every) {
		ranks[it] = len(ranks)
	}
	for i := range y.tasks {
		if t := &y.tasks[i]; t.run == nil {
			t.rank = ranks[t.item]
		}
	}
}

// offer finds out what each task could have, and how long it would take there. A
// running job that nothing but its place is known of may only stay or wait.
func (y *yard) offer() {
	total := 0
	for i := range y.tasks {
		total += len(y.menu(&y.tasks[i])) + 1
	}
	y.space = make([]offer, 0, total)
	for i := range y.tasks {
		t := &y.tasks[i]
		t.pos = t.one[:0]
		o := t.item.Outlook
		t.again = y.restarts(t.item).Seconds() * y.o.Margin
		from := len(y.space)
		if t.run == nil {
			y.waitingOffers(t)
		} else {
			y.runningOffers(t)
		}
		t.offers = y.space[from:len(y.space):len(y.space)]
		if t.dated = !o.Deadline.IsZero(); t.dated {
			t.slack = o.Deadline.Sub(y.now).Seconds()
		}
	}
}

func (y *yard) waitingOffers(t *task) {
	o := t.item.Outlook
	left, known := o.Left()
	start := 0.0
	if o.Speed != nil {
		start = time.Duration(o.Speed.Start).Seconds()
	}
	if !known {
		left = y.lasts(t.item).Seconds()
	}
	t.left = left
	for _, d := range y.menu(t) {
		y.space = append(y.space, offer{dish: d, time: start + max(left/d.rate, 1), lost: start})
	}
}

func (y *yard) runningOffers(t *task) {
	r := t.run
	ends, known := r.Ends(y.now)
	if !known {
		ends = y.endOf(r)
	}
	t.now = len(y.space)
	y.space = append(y.space, offer{
		dish: dish{kind: y.spots[t.home[0]].kind, gpus: int32(r.GPUs), nodes: int32(len(r.Seats)), part: r.Seats[0].Share, rate: r.Rate},
		time: max(ends.Sub(y.now).Seconds(), 1),
	})
	t.left, _ = r.Left(y.now)
	if known {
		for _, d := range y.menu(t) {
			if n := &y.space[t.now]; d.kind != n.kind || d.gpus != n.gpus || d.nodes != n.nodes || d.part != n.part {
				y.space = append(y.space, offer{dish: d, time: t.again + max(t.left/d.rate, 1), lost: t.again})
			}
		}
	}
	t.now = 0
}

// lasts is how long a job of unknown speed runs.
func (y *yard) lasts(it *queue.Item) time.Duration {
	if it.Lasts > 0 {
		return it.Lasts
	}
	return unknownLasts
}

// endOf is when a running job of unknown speed is taken to end. One that is past
// that is taken to run as long again as it is late.
func (y *yard) endOf(r *place.Running) time.Time {
	from := r.Began
	if from.IsZero() {
		from = y.now
	}
	end := from.Add(y.lasts(r.Item))
	if late := y.now.Sub(end); late > 0 {
		return y.now.Add(late)
	}
	return end
}

// menu returns what jobs of the task's shape and speed could have.
func (y *yard) menu(t *task) []dish {
	if t.menu == nil {
		key := menuKey{y.shapeOf(t.item.Shape), t.item.Outlook.Speed}
		list, known := y.menus[key]
		if !known {
			list = y.write(t.item)
			y.menus[key] = list
		}
		t.menu = list
	}
	return t.menu
}

// write makes a menu. If nobody measured the job on any kind of GPU that there is,
// all will do.
func (y *yard) write(it *queue.Item) []dish {
	sh := y.shapeOf(it.Shape)
	if it.Outlook.Speed != nil {
		if list := y.measured(it, sh); len(list) > 0 {
			return list
		}
	}
	return y.dishes(it, sh, func(_ int, c count) float64 { return y.guess(it, c) })
}

// measured lists what a job has been measured on. Where it can do with a part of a
// GPU, that is an offer too.
func (y *yard) measured(it *queue.Item, sh *shape) []dish {
	speed := it.Outlook.Speed
	list := y.dishes(it, sh, func(k int, c count) float64 { return y.curve(speed, k).Rate(c.gpus, c.nodes) })
	if n := &it.Shape.Need; n.GPUs > 1 || n.Nodes > 1 || n.MaxGPUs == 0 {
		return list
	}
	for k := range y.kinds {
		if sh.most[k] < 1 || y.kinds[k].id < 0 { // on a node of several kinds it is not said which GPU it gets
			continue
		}
		for _, p := range y.curve(speed, k).Parts() {
			list = append(list, dish{kind: int32(k), gpus: 1, nodes: 1, part: p.Share, rate: p.PerSecond})
		}
	}
	return list
}

func (y *yard) dishes(it *queue.Item, sh *shape, rate func(k int, c count) float64) []dish {
	var list []dish
	for k := range y.kinds {
		if sh.most[k] < 0 {
			continue
		}
		from := len(list)
		for _, c := range y.counts(it, k, sh.most[k]) {
			d := dish{kind: int32(k), gpus: int32(c.gpus), nodes: int32(c.nodes), rate: rate(k, c)}
			// More GPUs that are not faster are no offer.
			if d.rate > 0 && (len(list) == from || d.rate > list[len(list)-1].rate) {
				list = append(list, d)
			}
		}
	}
	return list
}

// count is a number of GPUs and the nodes that it takes.
type count struct{ gpus, nodes int }

// mostCounts is how many counts of one kind are tried for a job that could have many.
const mostCounts = 16

// counts lists how many GPUs of a kind a job could have, ascending, each on as few
// nodes as possible. Of many, every further one is a step greater.
func (y *yard) counts(it *queue.Item, k, perNode int) []count {
	n := &it.Shape.Need
	if n.MaxGPUs == 0 {
		return []count{{0, n.Nodes}}
	}
	most := min(n.MaxNodes, len(y.kinds[k].rooms)) * perNode
	least := n.Nodes * max(n.GPUs, 1)
	if c := y.curve(it.Outlook.Speed, k); c != nil {
		least, most = max(least, c.Least()), min(most, c.Most())
	}
	var list []count
	step := func(g int) int { return max(1, g/(mostCounts/4)) }
	if most-least < mostCounts {
		step = func(int) int { return 1 }
	}
	for g := least; g <= most; g += step(g) {
		nodes := max(n.Nodes, (g+perNode-1)/perNode)
		if nodes <= n.MaxNodes && nodes*n.GPUs <= g {
			list = append(list, count{g, nodes})
		}
	}
	return list
}

func (y *yard) curve(s *job.Speed, k int) *job.Curve {
	if g := y.kinds[k].gpu; g != nil {
		return s.On(g.Model, g.Memory)
	}
	return s.On("", 0)
}

// unknownGain is how a job is taken to become faster with more GPUs of which
// nobody said it: twice as many make it 1.8 times as fast.
const unknownGain = 0.85

// guess returns the units a second of a job of unknown speed: one for each second
// that it lasts on the least that it asks for.
func (y *yard) guess(it *queue.Item, c count) float64 {
	n := &it.Shape.Need
	rate := 1.0
	if least := n.GPUs * n.Nodes; c.gpus > least {
		rate = math.Pow(float64(c.gpus)/max(float64(least), 1), unknownGain)
	}
	if s := it.Outlook.Speed; s != nil && s.Work > 0 {
		rate *= s.Work / y.lasts(it).Seconds()
	}
	return rate
}

// amount is how many GPUs an offer has, a part counted as such.
func (d *dish) amount() float64 {
	if d.part > 0 {
		return d.part
	}
	return float64(d.gpus)
}

// plain reports whether an offer is of whole GPUs of one node.
func (d *dish) plain() bool { return d.nodes == 1 && d.part == 0 }

// on returns how many GPUs the i-th node gives: as many as the others, or one more
// on the first few.
func (d *dish) on(i int) int {
	each := d.gpus / d.nodes
	if int32(i) < d.gpus%d.nodes {
		each++
	}
	return int(each)
}
