package andreas

import (
	"math"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// task is a job that may be given GPUs: a queued one, or a running one that may be preempted.
type task struct {
	item    *queue.Item
	running *place.Running // nil if it is queued

	// What is known of it.
	currentRooms  []int32 // the rooms that it runs in
	remainingWork float64 // in units of work; in seconds if its speed is unknown
	hasDeadline   bool
	slack         float64 // seconds until the deadline
	lateCost      float64 // money for a second past the deadline, or for any second without one
	restartTime   float64 // seconds that stopping and starting it again takes
	queueRank     int     // in the order of the queue, of a queued job without a deadline

	// What it could have.
	configurations []configuration
	candidates     []candidate
	leanest        int     // the candidate that uses least of the yard
	fastest        int     // the fastest candidate
	cheapest       int     // the cheapest candidate
	current        int     // the candidate that it has now, -1 if it is queued
	startValue     float64 // what a start is worth to it for each GPU, without a deadline
	spareTime      float64 // seconds that it could wait if all that is due before it were done first
	urgency        float64 // what not having to wait is worth to it, in money

	// What it is given.
	assigned     int     // the candidate, -1 if it waits
	positions    []int32 // its nodes, by their positions in the kind's index; once seats are allocated, its rooms
	onePosition  [1]int32
	sharedGPU    int                // the shared GPU that it has a part of, in the kind's index
	randomFactor float64            // multiplies the value of its steps in a randomised search
	seats        []place.Allocation // once seats are allocated
}

// candidate is a configuration that a task could have, with what it would take and cost.
type candidate struct {
	configuration
	duration float64 // seconds until it ends there
	startup  float64 // of these until it does its first work
	usage    float64 // what it takes of the yard, in GPUs of the best kind
	cost     float64 // of its GPUs until its end, on well used nodes
	gain     float64 // money that it saves in a second compared with waiting
	coldGain float64 // the same on nodes that must be switched on first
}

// configuration is a kind and a number of GPUs, as all jobs of one shape and speed have it.
type configuration struct {
	kind        int32
	gpus, nodes int32   // of all nodes together
	share       float64 // of the one GPU, if it is shared with others; 0 for whole GPUs
	rate        float64 // units of work in a second
}

type configurationKey struct {
	shape *shape
	speed *job.Speed
}

// unknownLasts is how long a job is assumed to run of which nothing is known.
const unknownLasts = time.Hour

// enter makes tasks of the jobs that are queued and of those that may be stopped.
func (y *yard) enter(waiting []*queue.Item) {
	y.shapes = map[*queue.Shape]*shape{}
	y.needs = map[fleet.Need]*shape{}
	y.configurations = map[configurationKey][]configuration{}
	y.tasks = make([]task, 0, len(waiting)+len(y.preemptible))
	for _, l := range y.preemptible {
		y.tasks = append(y.tasks, task{item: l.run.Item, running: l.run, currentRooms: l.rooms, current: -1,
			assigned: -1})
	}

	undated := false
	for _, it := range waiting {
		y.tasks = append(y.tasks, task{item: it, current: -1, assigned: -1})
		undated = undated || it.Outlook.Deadline.IsZero()
	}

	if undated {
		y.rank()
	}
}

// rank records the order of the queue, for the jobs without a deadline.
func (y *yard) rank() {
	ranks := make(map[*queue.Item]int, y.view.Queue.Len())
	walk := y.view.Queue.Walk(y.view.UsageOf)

	every := func(*queue.Shape) bool { return true }
	for it := walk.Next(every); it != nil; it = walk.Next(every) {
		ranks[it] = len(ranks)
	}

	for i := range y.tasks {
		if t := &y.tasks[i]; t.running == nil {
			t.queueRank = ranks[t.item]
		}
	}
}

// listCandidates finds out what each task could have, and how long it would take there. A
// running job that nothing but its place is known of may only stay or wait.
func (y *yard) listCandidates() {
	total := 0
	for i := range y.tasks {
		total += len(y.configurationsOf(&y.tasks[i])) + 1
	}

	y.candidateSpace = make([]candidate, 0, total)
	for i := range y.tasks {
		t := &y.tasks[i]
		t.positions = t.onePosition[:0]
		o := t.item.Outlook
		t.restartTime = y.restartTime(t.item).Seconds() * y.o.Margin
		from := len(y.candidateSpace)

		if t.running == nil {
			y.queuedCandidates(t)
		} else {
			y.runningCandidates(t)
		}

		t.candidates = y.candidateSpace[from:len(y.candidateSpace):len(y.candidateSpace)]
		t.hasDeadline = !o.Deadline.IsZero()
		if t.hasDeadline {
			t.slack = o.Deadline.Sub(y.now).Seconds()
		}
	}
}

func (y *yard) queuedCandidates(t *task) {
	o := t.item.Outlook
	left, known := o.RemainingWork()

	start := 0.0
	if o.Speed != nil {
		start = time.Duration(o.Speed.Start).Seconds()
	}

	if !known {
		left = y.lasts(t.item).Seconds()
	}

	t.remainingWork = left
	for _, d := range y.configurationsOf(t) {
		y.candidateSpace = append(y.candidateSpace, candidate{configuration: d, duration: start + max(left/d.rate, 1),
			startup: start})
	}
}

func (y *yard) runningCandidates(t *task) {
	r := t.running
	ends, known := r.ExpectedEnd(y.now)
	if !known {
		ends = y.endOf(r)
	}

	t.current = len(y.candidateSpace)
	y.candidateSpace = append(y.candidateSpace, candidate{
		configuration: configuration{kind: y.positions[t.currentRooms[0]].kind, gpus: int32(r.GPUs),
			nodes: int32(len(r.Allocations)), share: r.Allocations[0].Share, rate: r.Rate},
		duration: max(ends.Sub(y.now).Seconds(), 1),
	})

	t.remainingWork, _ = r.RemainingWork(y.now)
	if known {
		for _, d := range y.configurationsOf(t) {
			if n := &y.candidateSpace[t.current]; d.kind != n.kind || d.gpus != n.gpus || d.nodes != n.nodes ||
				d.share != n.share {
				y.candidateSpace = append(y.candidateSpace,
					candidate{configuration: d, duration: t.restartTime + max(t.remainingWork/d.rate, 1),
						startup: t.restartTime})
			}
		}
	}

	t.current = 0
}

// lasts is how long a job of unknown speed runs.
func (y *yard) lasts(it *queue.Item) time.Duration {
	if it.Lasts > 0 {
		return it.Lasts
	}

	return unknownLasts
}

// endOf is when a running job of unknown speed is assumed to end. One that is past
// that is assumed to run as long again as it is late.
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

// configurationsOf returns what jobs of the task's shape and speed could have.
func (y *yard) configurationsOf(t *task) []configuration {
	if t.configurations == nil {
		key := configurationKey{y.shapeOf(t.item.Shape), t.item.Outlook.Speed}
		list, known := y.configurations[key]
		if !known {
			list = y.listConfigurations(t.item)
			y.configurations[key] = list
		}

		t.configurations = list
	}

	return t.configurations
}

// listConfigurations makes a list of configurations. If nobody measured the job on any kind of GPU that there is,
// all will do.
func (y *yard) listConfigurations(it *queue.Item) []configuration {
	sh := y.shapeOf(it.Shape)
	if it.Outlook.Speed != nil {
		if list := y.measured(it, sh); len(list) > 0 {
			return list
		}
	}

	return y.enumerate(it, sh, func(_ int, c count) float64 { return y.guess(it, c) })
}

// measured lists what a job has been measured on. Where it can do with a part of a
// GPU, that is a candidate too.
func (y *yard) measured(it *queue.Item, sh *shape) []configuration {
	speed := it.Outlook.Speed
	list := y.enumerate(it, sh, func(k int, c count) float64 { return y.curve(speed, k).Rate(c.gpus, c.nodes) })
	if n := &it.Shape.Need; n.GPUs > 1 || n.Nodes > 1 || n.MaxGPUs == 0 {
		return list
	}

	for k := range y.kinds {
		if sh.most[k] < 1 || y.kinds[k].id < 0 { // on a node of several kinds it is not said which GPU it gets
			continue
		}

		for _, p := range y.curve(speed, k).Parts() {
			list = append(list, configuration{kind: int32(k), gpus: 1, nodes: 1, share: p.Share, rate: p.PerSecond})
		}
	}

	return list
}

func (y *yard) enumerate(it *queue.Item, sh *shape, rate func(k int, c count) float64) []configuration {
	var list []configuration
	for k := range y.kinds {
		if sh.most[k] < 0 {
			continue
		}

		from := len(list)
		for _, c := range y.counts(it, k, sh.most[k]) {
			d := configuration{kind: int32(k), gpus: int32(c.gpus), nodes: int32(c.nodes), rate: rate(k, c)}

			// More GPUs that are not faster are no candidate.
			if d.rate > 0 && (len(list) == from || d.rate > list[len(list)-1].rate) {
				list = append(list, d)
			}
		}
	}

	return list
}

// count is a number of GPUs and the nodes that it takes.
type count struct{ gpus, nodes int }

// maxCounts is how many counts of one kind are tried for a job that could have many.
const maxCounts = 16

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
		least, most = max(least, c.MinGPUs()), min(most, c.MaxGPUs())
	}

	var list []count

	step := func(g int) int { return max(1, g/(maxCounts/4)) }
	if most-least < maxCounts {
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

// unknownGain is how a job is assumed to become faster with more GPUs of which
// nothing is known: twice as many make it 1.8 times as fast.
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

// amount is how many GPUs a candidate has, a part counted as such.
func (d *configuration) amount() float64 {
	if d.share > 0 {
		return d.share
	}

	return float64(d.gpus)
}

// plain reports whether a candidate is of whole GPUs of one node.
func (d *configuration) plain() bool { return d.nodes == 1 && d.share == 0 }

// on returns how many GPUs the i-th node gives: as many as the others, or one more
// on the first few.
func (d *configuration) on(i int) int {
	each := d.gpus / d.nodes
	if int32(i) < d.gpus%d.nodes {
		each++
	}

	return int(each)
}
