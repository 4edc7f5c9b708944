package problem

import (
	"math"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Task is a job that may be given GPUs: a queued job, or a running one that may be preempted.
type Task struct {
	Item    *queue.Item
	Running *place.Running // nil if it is queued

	// What is known of the job.
	CurrentRooms  []int32 // the rooms that it runs in
	RemainingWork float64 // in units of work; in seconds if its speed is unknown
	HasDeadline   bool
	Slack         float64         // seconds until the deadline
	LateCost      money.PerSecond // past the deadline, or for any second without one
	RestartTime   float64         // seconds that stopping and starting again takes
	QueueRank     int             // position in the queue, of a queued job without a deadline

	// The candidates of the task.
	configurations []Configuration
	Candidates     []Candidate
	Current        int      // index of its present candidate, -1 if it is queued
	OnOffer        *OnOffer // nodes that could be or are being provisioned for it; nil if none can be
	Leaves         bool     // it costs less on its offer than on any node of the yard that is free

	// The assignment of the task.
	Assigned    int     // index of the candidate, -1 if it waits
	Positions   []int32 // its nodes, by their positions in the kind's index; once seats are allocated, its rooms
	onePosition [1]int32
	sharedGPU   int                // the shared GPU that it has a part of, in the kind's index
	Seats       []place.Allocation // valid once seats are allocated

	Valuation
}

// Valuation is what a policy with a look-ahead computes for a task. This package only stores it.
type Valuation struct {
	Leanest      int          // the candidate that uses least of the yard
	Fastest      int          // the fastest candidate
	Cheapest     int          // the cheapest candidate
	StartValue   float64      // value of a start per GPU, of a job without a deadline
	SpareTime    float64      // seconds it could wait if everything due before it were done first
	Urgency      money.Amount // value of not having to wait
	RandomFactor float64      // multiplies the value of its steps in a randomised search
}

// Candidate is a configuration for a task, with its duration and cost there.
type Candidate struct {
	Configuration
	Duration float64      // seconds until the task ends
	Startup  float64      // seconds of Duration before its first work
	Usage    float64      // share of the yard that it takes, in GPUs of the best kind
	Cost     money.Amount // of its GPUs until its end, on well used nodes
	Gain     float64      // dollars saved per second, weighted, compared with waiting
	ColdGain float64      // the same on nodes that must be switched on first
}

// Configuration is a kind and a number of GPUs. All jobs of one shape and speed share their
// configurations.
type Configuration struct {
	Kind        int32
	GPUs, Nodes int32   // of all nodes together
	Share       float64 // of the one GPU, if it is shared; 0 for whole GPUs
	Rate        float64 // units of work per second
}

type configurationKey struct {
	shape     *Shape
	speed     *job.Speed
	reference job.Reference // of its expected run time
	fixed     bool          // which is the same on all GPUs
}

// unknownLasts is the assumed duration of a job of which nothing is known.
const unknownLasts = time.Hour

// enter makes tasks of the queued and the preemptible jobs.
func (y *Yard) enter(waiting []*queue.Item) {
	y.remember()

	y.Tasks = make([]Task, 0, len(waiting)+len(y.preemptible))
	for _, l := range y.preemptible {
		y.Tasks = append(y.Tasks, Task{Item: l.run.Item, Running: l.run, CurrentRooms: l.rooms, Current: -1,
			Assigned: -1})
	}

	undated := false
	for _, it := range waiting {
		y.Tasks = append(y.Tasks, Task{Item: it, Current: -1, Assigned: -1})
		undated = undated || it.Outlook.Deadline.IsZero()
	}

	if undated {
		y.rank()
	}
}

// remember makes room for what is computed once for many jobs.
func (y *Yard) remember() {
	y.shapes = map[*queue.Shape]*Shape{}
	y.needs = map[fleet.Need]*Shape{}
	y.configurations = map[configurationKey][]Configuration{}
}

// rank records the position in the queue of jobs without a deadline.
func (y *Yard) rank() {
	ranks := make(map[*queue.Item]int, y.View.Queue.Len())
	walk := y.View.Queue.Walk(y.View.UsageOf)

	every := func(*queue.Shape) bool { return true }
	for it := walk.Next(every); it != nil; it = walk.Next(every) {
		ranks[it] = len(ranks)
	}

	for i := range y.Tasks {
		if t := &y.Tasks[i]; t.Running == nil {
			t.QueueRank = ranks[t.Item]
		}
	}
}

// ListCandidates lists the candidates of each task with their durations. A running job of unknown
// speed may only stay or wait.
func (y *Yard) ListCandidates() {
	total := 0
	for i := range y.Tasks {
		total += len(y.ConfigurationsOf(&y.Tasks[i])) + 1
	}

	y.candidateSpace = make([]Candidate, 0, total)
	for i := range y.Tasks {
		t := &y.Tasks[i]
		t.Positions = t.onePosition[:0]
		o := t.Item.Outlook
		t.RestartTime = y.restartTime(t.Item).Seconds() * y.o.Margin
		from := len(y.candidateSpace)

		if t.Running == nil {
			y.queuedCandidates(t)
		} else {
			y.runningCandidates(t)
		}

		t.Candidates = y.candidateSpace[from:len(y.candidateSpace):len(y.candidateSpace)]
		t.HasDeadline = !o.Deadline.IsZero()
		if t.HasDeadline {
			t.Slack = o.Deadline.Sub(y.Now).Seconds()
		}
	}
}

func (y *Yard) queuedCandidates(t *Task) {
	o := t.Item.Outlook
	left, known := o.RemainingWork()

	start := 0.0
	if o.Speed != nil {
		start = time.Duration(o.Speed.Start).Seconds()
	}

	if !known {
		left = y.lasts(t.Item).Seconds()
	}

	t.RemainingWork = left
	for _, d := range y.ConfigurationsOf(t) {
		run := start + max(left/d.Rate, 1)
		if s := t.Item.Spec; s != nil && s.MaxDuration > 0 {
			run = min(run, time.Duration(s.MaxDuration).Seconds())
		}

		y.candidateSpace = append(y.candidateSpace, Candidate{Configuration: d, Duration: run, Startup: start})
	}
}

func (y *Yard) runningCandidates(t *Task) {
	r := t.Running
	ends, known := r.ExpectedEnd(y.Now)
	if !known {
		ends = y.endOf(r)
	}

	t.Current = len(y.candidateSpace)
	y.candidateSpace = append(y.candidateSpace, Candidate{
		Configuration: Configuration{Kind: y.Positions[t.CurrentRooms[0]].Kind, GPUs: int32(r.GPUs),
			Nodes: int32(len(r.Allocations)), Share: r.Allocations[0].Share, Rate: r.Rate},
		Duration: max(ends.Sub(y.Now).Seconds(), 1),
	})

	t.RemainingWork, _ = r.RemainingWork(y.Now)
	if known {
		for _, d := range y.ConfigurationsOf(t) {
			if n := &y.candidateSpace[t.Current]; d.Kind != n.Kind || d.GPUs != n.GPUs || d.Nodes != n.Nodes ||
				d.Share != n.Share {
				y.candidateSpace = append(y.candidateSpace,
					Candidate{Configuration: d, Duration: t.RestartTime + max(t.RemainingWork/d.Rate, 1),
						Startup: t.RestartTime})
			}
		}
	}

	t.Current = 0
}

// lasts returns the assumed duration of a job of unknown speed.
func (y *Yard) lasts(it *queue.Item) time.Duration {
	if it.Lasts > 0 {
		return it.Lasts
	}

	return unknownLasts
}

// EndOf returns when a running job is expected to end.
func (y *Yard) EndOf(r *place.Running) time.Time {
	if ends, known := r.ExpectedEnd(y.Now); known {
		return ends
	}

	return y.endOf(r)
}

// endOf returns when a running job of unknown speed is assumed to end. A job past that time is
// assumed to run as long again as it is late.
func (y *Yard) endOf(r *place.Running) time.Time {
	from := r.Began
	if from.IsZero() {
		from = y.Now
	}

	takes := r.Takes
	if takes == 0 {
		takes = y.lasts(r.Item)
	}

	end := from.Add(takes)
	if late := y.Now.Sub(end); late > 0 {
		return y.Now.Add(late)
	}

	return end
}

// ConfigurationsOf returns the configurations for jobs of the task's shape and speed.
func (y *Yard) ConfigurationsOf(t *Task) []Configuration {
	if t.configurations == nil {
		t.configurations = y.configurationsOf(t.Item)
	}

	return t.configurations
}

// configurationsOf returns the configurations for jobs of an item's shape and speed.
func (y *Yard) configurationsOf(it *queue.Item) []Configuration {
	key := configurationKey{y.ShapeOf(it.Shape), it.Outlook.Speed, it.Outlook.Reference, onlyLimited(it)}

	list, known := y.configurations[key]
	if !known {
		list = y.listConfigurations(it)
		y.configurations[key] = list
	}

	return list
}

// listConfigurations lists the configurations of a job. If it was measured on no kind of GPU in the yard, all
// kinds are allowed.
func (y *Yard) listConfigurations(it *queue.Item) []Configuration {
	sh := y.ShapeOf(it.Shape)
	parts := y.parts(it, sh)

	if it.Outlook.Speed != nil {
		if list := y.measured(it, sh); len(list) > 0 {
			return append(parts, list...)
		}
	}

	return append(parts, y.enumerate(it, sh, func(k int, c count) float64 { return y.guess(it, k, c) })...)
}

// cuts reports whether a job can get a part of a GPU of the kind. On a node of several kinds it is unknown which GPU
// that would be.
func (k *Kind) cuts() bool { return k.divides && k.id >= 0 }

// parts lists the configurations of a job that asks for a part of a GPU: that part, of each kind, unless it is among
// those that were measured.
func (y *Yard) parts(it *queue.Item, sh *Shape) []Configuration {
	part := it.Shape.Need.Share
	if part == 0 {
		return nil
	}

	var list []Configuration

	for k := range y.Kinds {
		if sh.most[k] < 1 || !y.Kinds[k].cuts() {
			continue
		}

		var rate float64

		switch curve := y.curve(it.Outlook.Speed, k); {
		case curve.OnPart(part) > 0:
			continue
		case curve.Rate(1, 1) > 0:
			rate = place.PartRate(curve, part)
		default:
			rate = y.guess(it, k, count{1, 1})
		}

		list = append(list, Configuration{Kind: int32(k), GPUs: 1, Nodes: 1, Share: part, Rate: rate})
	}

	return list
}

// measured lists the configurations in which a job was measured. If a part of a GPU is enough for
// it, that is a configuration too.
func (y *Yard) measured(it *queue.Item, sh *Shape) []Configuration {
	speed := it.Outlook.Speed
	list := y.enumerate(it, sh, func(k int, c count) float64 { return y.curve(speed, k).Rate(c.gpus, c.nodes) })
	if n := &it.Shape.Need; n.GPUs > 1 || n.Nodes > 1 || n.MaxGPUs == 0 {
		return list
	}

	for k := range y.Kinds {
		if sh.most[k] < 1 || !y.Kinds[k].cuts() {
			continue
		}

		for _, p := range y.curve(speed, k).Parts() {
			list = append(list, Configuration{Kind: int32(k), GPUs: 1, Nodes: 1, Share: p.Share, Rate: p.PerSecond})
		}
	}

	return list
}

func (y *Yard) enumerate(it *queue.Item, sh *Shape, rate func(k int, c count) float64) []Configuration {
	var list []Configuration
	for k := range y.Kinds {
		if sh.most[k] < 0 {
			continue
		}

		from := len(list)
		for _, c := range y.counts(it, k, sh.most[k]) {
			d := Configuration{Kind: int32(k), GPUs: int32(c.gpus), Nodes: int32(c.nodes), Rate: rate(k, c)}

			// More GPUs that are not faster are not a candidate.
			if d.Rate > 0 && (len(list) == from || d.Rate > list[len(list)-1].Rate) {
				list = append(list, d)
			}
		}
	}

	return list
}

// count is a number of GPUs and the number of nodes for it.
type count struct{ gpus, nodes int }

// maxCounts bounds how many counts per kind are tried for a job with a wide range.
const maxCounts = 16

// counts lists the numbers of GPUs of a kind that a job could have, ascending, each on as few nodes
// as possible. For a wide range the steps between them grow.
func (y *Yard) counts(it *queue.Item, k, perNode int) []count {
	n := &it.Shape.Need
	if n.MaxGPUs == 0 {
		return []count{{0, n.Nodes}}
	}

	most := min(n.MaxNodes, len(y.Kinds[k].Rooms)) * perNode

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

func (y *Yard) curve(s *job.Speed, k int) *job.Curve {
	if g := y.Kinds[k].gpu; g != nil {
		return s.On(g.Model, g.Memory)
	}

	return s.On("", 0)
}

// guess returns the units of work per second of a job of unknown speed on a kind of GPU, where a unit is one
// second of its assumed duration on what it asks for.
func (y *Yard) guess(it *queue.Item, k int, c count) float64 {
	rate := 1.0
	if n := &it.Shape.Need; n.MaxGPUs > 0 && !onlyLimited(it) {
		rate = it.Outlook.Reference.Pace(max(n.GPUs*n.Nodes, 1), place.HardwareOf(y.Kinds[k].gpu, c.gpus))
	}

	if s := it.Outlook.Speed; s != nil && s.Work > 0 {
		rate *= s.Work / y.lasts(it).Seconds()
	}

	return rate
}

// onlyLimited reports whether max_duration is all that is known of a job's run time. It is the same everywhere.
func onlyLimited(it *queue.Item) bool {
	return it.Spec != nil && it.Spec.Expect == 0 && it.Spec.MaxDuration > 0
}

// Amount returns the number of GPUs, with a part counted as a fraction.
func (d *Configuration) Amount() float64 {
	if d.Share > 0 {
		return d.Share
	}

	return float64(d.GPUs)
}

// Plain reports whether the configuration is whole GPUs of one node.
func (d *Configuration) Plain() bool { return d.Nodes == 1 && d.Share == 0 }

// On returns how many GPUs the i-th node gives: GPUs divided by Nodes, and one more on the first
// nodes for the remainder.
func (d *Configuration) On(i int) int {
	each := d.GPUs / d.Nodes
	if int32(i) < d.GPUs%d.Nodes {
		each++
	}

	return int(each)
}

// SetLateCost sets what a second past the deadline costs: the late cost of the job, or else a multiple
// of the price of the cheapest GPUs that it could have. Without a deadline every second costs such a multiple, and
// more the longer ago the job was submitted.
func (y *Yard) SetLateCost(t *Task) {
	o := t.Item.Outlook
	if t.HasDeadline && o.LateCost > 0 {
		t.LateCost = o.LateCost
		return
	}

	least := y.leastRate(t)
	if t.HasDeadline {
		t.LateCost = least.Times(y.o.Late)
		return
	}

	age := max(y.Now.Sub(o.Submitted).Seconds(), 0)
	t.LateCost = least.Times(y.o.Wait * (1 + age/max(y.o.Patience.Seconds(), 1)))
}

// leastRate returns what the cheapest GPUs cost per second that a task could have: on nodes of the yard, or else on
// offers. Nodes that take no new runs at present count too, because a job's deadline is worth the same whether a
// node is cordoned or not: otherwise another offer would be provisioned while it is.
func (y *Yard) leastRate(t *Task) money.PerSecond {
	least := money.PerSecond(math.Inf(1))
	for k := range t.Candidates {
		least = min(least, y.rateOf(&t.Candidates[k].Configuration))
	}

	closed := y.closedRooms()
	list := closed.configurationsOf(t.Item)

	for i := range list {
		least = min(least, closed.rateOf(&list[i]))
	}

	if math.IsInf(float64(least), 1) {
		least = y.leastRent(t)
	}

	if math.IsInf(float64(least), 1) {
		return 0 // nothing can run it
	}

	return least
}

// rateOf returns what the GPUs of a configuration cost per second, on well used nodes.
func (y *Yard) rateOf(d *Configuration) money.PerSecond {
	return y.Kinds[d.Kind].GPURate.Of(max(d.Amount(), 1))
}

// closedRooms returns the yard of the rooms that take no new runs at present.
func (y *Yard) closedRooms() *Yard {
	if y.closed == nil {
		y.closed = &Yard{o: y.o, terms: y.terms, View: y.View, Now: y.Now, Rooms: y.Rooms}
		y.closed.groupRooms(false)
		y.closed.remember()
	}

	return y.closed
}
