package provision

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Query is what is asked about a job: how long it runs where, what comes before
// that, and what matters.
type Query struct {
	Now       time.Time
	Objective job.Objective
	HourValue money.PerHour // what the job's time is worth; counts for balanced alone

	// Takes returns how long the job would run undisturbed on so many nodes of an
	// offer with so many GPUs in use on each, and false if it cannot run there. It
	// is the same for offers whose nodes are alike. Nil means that Run says it.
	RunTime func(o *fleet.Offer, nodes, gpus int) (time.Duration, bool)
	// Run is how long it runs on its reference with as many GPUs as it asks for, where RunTime is nil;
	// elsewhere it follows from that by the rule for expected run times. Without Run an hour is reckoned
	// with, and the options are guessed. GPUs whose speed is unknown are taken to be as fast as the
	// reference.
	Run       time.Duration
	Reference job.Reference
	Spec      *job.Spec // for its max_duration; may be nil

	Setup time.Duration // of the environment, on each new node
	// Stage returns how long it takes to bring the data to a node of an offer, and
	// what that costs for each node. Nil means nothing.
	Stage func(o *fleet.Offer) (time.Duration, money.Amount)

	CheckpointEvery time.Duration // between checkpoints; 0 if what is done is lost with a node
	Restore         time.Duration // from a checkpoint
	NoSpot          bool          // nodes that may be taken back do not come into question
}

// Option is one way to provision for a job.
type Option struct {
	Offer  *fleet.Offer
	Nodes  int
	GPUs   int           // in use on each node
	Start  time.Time     // when it would begin to work
	Finish time.Time     // when it is expected to be done
	Run    time.Duration // undisturbed
	Money  money.Amount  // expected
	Losses float64       // times that nodes are expected to be taken back meanwhile
	Score  float64       // by which options are compared, less is better
	// Guessed says that nothing is known of how long the job runs: only the order of
	// options means something, and the start.
	Guessed bool
}

// String says it in a sentence.
func (o *Option) String() string {
	const layout = "Jan 2 15:04 MST"
	what := humanize.Times(o.Nodes, o.Offer.Name)

	start := o.Start.UTC().Format(layout)
	if o.Guessed {
		return fmt.Sprintf("%s: start %s, %s", what, start, humanize.Rate(o.Offer.PerHour().Times(float64(o.Nodes))))
	}

	text := fmt.Sprintf(
		"%s: start %s, est. finish %s, est. cost %s",
		what,
		start,
		o.Finish.UTC().Format(layout),
		humanize.Dollars(o.Money),
	)

	if o.Losses > 0.005 {
		text += fmt.Sprintf(", %.2f expected spot interruptions", o.Losses)
	}

	return text
}

// Options lists the ways to provision for a need, the best first. Frequent callers use an
// Catalogue.
func Options(offers []fleet.Offer, need fleet.Need, q Query) []Option {
	return NewIndex(offers, nil).Fit(need).Options(q)
}

// Index holds offers prepared for matching with many jobs: offers whose
// nodes are alike are compared with a need once.
type Index struct{ shapes []shape }

// shape is a kind of node and the offers of it.
type shape struct {
	room   fleet.Room
	tflops float64 // of one GPU, 0 if unknown
	offers []*fleet.Offer
	front  []*fleet.Offer // without those that another is better than in everything
	second []*fleet.Offer // without those that two others are better than in everything
}

// shapeKey is what nodes that are alike have in common.
type shapeKey struct {
	gpu    string
	gpus   int
	size   job.Bytes
	tflops float64
	cpus   job.CPUs
	memory job.Bytes
	fake   bool
	shared string
	shares string
}

// NewIndex prepares offers for matching. They must not be changed after that. peak returns
// the TFLOPS of a GPU for offers that do not say, 0 if unknown; it may be nil.
func NewIndex(offers []fleet.Offer, peak func(gpu string, memory job.Bytes) float64) *Index {
	type gpu struct {
		model string
		size  job.Bytes
	}

	c := &Index{}
	index, kinds := map[shapeKey]int{}, map[gpu]int32{}

	for i := range offers {
		o := &offers[i]
		key := shapeKey{o.GPU, o.GPUs, o.GPUMemory, o.TFLOPS, o.CPUs, o.Memory, o.Fake, o.Shared, o.Shares}
		at, ok := index[key]
		if !ok {
			at = len(c.shapes)
			index[key] = at

			kind, known := kinds[gpu{o.GPU, o.GPUMemory}]
			if !known {
				kind = int32(len(kinds))
				kinds[gpu{o.GPU, o.GPUMemory}] = kind
			}

			s := shape{room: roomOf(o, kind), tflops: o.TFLOPS}
			if s.tflops == 0 && o.GPUs > 0 && peak != nil {
				s.tflops = peak(o.GPU, o.GPUMemory)
			}

			c.shapes = append(c.shapes, s)
		}

		c.shapes[at].offers = append(c.shapes[at].offers, o)
	}

	for i := range c.shapes {
		c.shapes[i].front = front(c.shapes[i].offers)
		c.shapes[i].second = second(c.shapes[i].offers)
	}

	return c
}

// roomOf returns an empty node of an offer as matchers see it.
func roomOf(o *fleet.Offer, kind int32) fleet.Room {
	n := o.Node()
	r := fleet.Room{Node: n, Open: true, Kind: -1, CPUs: n.Inventory.CPUs, Memory: n.Inventory.Memory}
	if o.GPUs > 0 {
		r.Kind = kind
	}

	r.Sound = ^uint64(0) >> (fleet.MaxGPUs - min(max(o.GPUs, 0), fleet.MaxGPUs))
	r.Free = r.Sound

	return r
}

// front returns the offers that no other is better than in everything, wherever the
// data are. The others cannot be the best for any job.
func front(offers []*fleet.Offer) []*fleet.Offer {
	var best []*fleet.Offer
	for _, o := range offers {
		if slices.ContainsFunc(best, func(b *fleet.Offer) bool { return atLeastAsGood(b, o) }) {
			continue
		}

		best = slices.DeleteFunc(best, func(b *fleet.Offer) bool { return atLeastAsGood(o, b) })
		best = append(best, o)
	}

	return best
}

// second returns the offers that at most one other comes before, whatever the job. Without any one of the offers, the
// best of the rest is among them.
func second(offers []*fleet.Offer) []*fleet.Offer {
	type ranked struct {
		offer  *fleet.Offer
		before int // how many of the others come before it
	}

	var best []ranked
	for _, o := range offers {
		before := 0
		for i := range best {
			if comesBefore(best[i].offer, o) {
				before++
			}
		}

		if before > 1 {
			continue
		}

		best = slices.DeleteFunc(best, func(b ranked) bool { return b.before == 1 && comesBefore(o, b.offer) })
		for i := range best {
			if comesBefore(o, best[i].offer) {
				best[i].before++
			}
		}

		best = append(best, ranked{o, before})
	}

	list := make([]*fleet.Offer, len(best))
	for i := range best {
		list[i] = best[i].offer
	}

	return list
}

// comesBefore reports whether Options lists a before b, whose nodes are alike, wherever the data are.
func comesBefore(a, b *fleet.Offer) bool {
	return atLeastAsGood(a, b) && (a.Hourly < b.Hourly || a.Name < b.Name)
}

// atLeastAsGood reports whether nothing speaks for b against a, whose nodes are alike.
func atLeastAsGood(a, b *fleet.Offer) bool {
	return a.Hourly <= b.Hourly && a.Boot <= b.Boot && a.BillingIncrement == b.BillingIncrement &&
		a.MinBilling <= b.MinBilling &&
		(!a.Spot || b.Spot && a.LossRate <= b.LossRate) &&
		(a.MaxNodes == 0 || b.MaxNodes != 0 && a.MaxNodes >= b.MaxNodes)
}

// Fit is the part of an index that a need fits on.
type Fit struct {
	need  fleet.Need
	hosts []host
}

// host is a shape that a need fits on.
type host struct {
	shape *shape
	gpus  int     // in use
	speed float64 // TFLOPS of those, 0 if unknown
}

// Fit compares a need with all offers. Jobs with the same need share the answer.
func (c *Index) Fit(need fleet.Need) *Fit {
	match := fleet.NewMatcher(need)
	f := &Fit{need: need}
	for i := range c.shapes {
		s := &c.shapes[i]
		if gpus, ok := match.Fits(&s.room); ok {
			used := min(bits.OnesCount64(gpus), need.MaxGPUs)
			f.hosts = append(f.hosts, host{shape: s, gpus: used, speed: s.tflops * float64(used)})
		}
	}

	return f
}

// Options lists the ways to provision, the best first. A need for a range of nodes is tried
// with the least number and with its doublings, as far as the offer goes and as
// long as more nodes are faster.
func (f *Fit) Options(q Query) []Option {
	q.setDefaults(f)
	var list []Option
	for i := range f.hosts {
		for _, o := range f.hosts[i].shape.offers {
			q.options(o, &f.hosts[i], &f.need, func(opt Option) { list = append(list, opt) })
		}
	}

	slices.SortFunc(list, func(a, b Option) int { return q.compare(&a, &b) })

	return list
}

// Best returns the best way to provision, the first of those that Options lists or one as
// good, and false if there is none. It is faster: offers that cannot be the best are
// not looked at.
func (f *Fit) Best(q Query) (Option, bool) {
	return f.best(q, func(s *shape) []*fleet.Offer { return s.front }, "")
}

// BestWithout returns the best way to provision if the offer of that name did not exist: the first of those that
// Options lists that is of another offer. It is faster, as Best is.
func (f *Fit) BestWithout(name string, q Query) (Option, bool) {
	return f.best(q, func(s *shape) []*fleet.Offer { return s.second }, name)
}

// best returns the best way to provision of those offers of each shape that may be the best, but not of that name.
func (f *Fit) best(q Query, of func(*shape) []*fleet.Offer, except string) (Option, bool) {
	q.setDefaults(f)
	var best Option

	found := false
	tell := func(opt Option) {
		if !found || q.compare(&opt, &best) < 0 {
			best, found = opt, true
		}
	}

	for i := range f.hosts {
		offers := of(f.hosts[i].shape)
		if q.Stage != nil { // which knows where the data are
			offers = f.hosts[i].shape.offers
		}

		for _, o := range offers {
			if o.Name != except {
				q.options(o, &f.hosts[i], &f.need, tell)
			}
		}
	}

	return best, found
}

// compare orders options: by the objective, and where that says nothing the cheaper
// and the sooner first.
func (q *Query) compare(a, b *Option) int {
	if c := cmp.Compare(a.Score, b.Score); c != 0 {
		return c
	}

	first, second := cmp.Compare(a.Money, b.Money), a.Finish.Compare(b.Finish)
	if q.Objective == job.ObjectiveTime {
		first, second = second, first
	}

	return cmp.Or(first, second, strings.Compare(a.Offer.Name, b.Offer.Name), a.Nodes-b.Nodes)
}

// setDefaults compares the offers of a guess by their speeds: with the slowest node that fits.
func (q *Query) setDefaults(f *Fit) {
	if q.RunTime != nil || q.Run > 0 || q.Reference.TFLOPS > 0 {
		return
	}

	for i := range f.hosts {
		h := &f.hosts[i]
		if h.gpus == 0 || h.speed <= 0 {
			continue
		}

		if s := h.speed / float64(h.gpus); q.Reference.TFLOPS == 0 || s < q.Reference.TFLOPS {
			q.Reference.TFLOPS = s
		}
	}
}

// runTime returns how long the job runs without interruptions, and whether that is a guess.
func (q *Query) runTime(o *fleet.Offer, h *host, need *fleet.Need, nodes int) (run time.Duration, guessed, ok bool) {
	if q.RunTime != nil {
		run, ok = q.RunTime(o, nodes, h.gpus)
		return run, false, ok
	}

	run, guessed = q.Run, q.Run <= 0
	if guessed {
		run = time.Hour
	}

	asked := 0
	if need.MaxGPUs > 0 {
		asked = max(need.GPUs*need.Nodes, 1)
	}

	outlook := job.Outlook{Reference: q.Reference}
	on := job.Hardware{GPU: o.GPU, GPUs: h.gpus * nodes}
	if h.gpus > 0 {
		on.TFLOPS = h.speed / float64(h.gpus)
	}

	return outlook.RunTime(q.Spec, run, asked, on), guessed, true
}

// options tells the ways to provision one offer.
func (q *Query) options(o *fleet.Offer, h *host, need *fleet.Need, tell func(Option)) {
	if o.Spot && q.NoSpot {
		return
	}

	most := max(need.MaxNodes, need.Nodes, 1)
	if o.MaxNodes > 0 {
		most = min(most, o.MaxNodes)
	}

	var last time.Duration

	for n := max(need.Nodes, 1); n <= most; n *= 2 {
		run, guessed, ok := q.runTime(o, h, need, n)
		if !ok || last > 0 && run >= last {
			return
		}

		last = run

		if opt, ok := q.price(o, h, n, run); ok {
			opt.Guessed = guessed
			tell(opt)
		}

		if guessed {
			return // more nodes are worth their money only if that is known
		}
	}
}

// price works out when an option is done and what it costs.
//
// A node is paid for from its request on, so boot, set-up and staging are paid for too. Spot
// nodes are interrupted at random, each with the rate L of its offer, and a job on n
// nodes loses all of them with the first, so at the rate n·L. Work that was done since the
// last checkpoint is lost, and then come boot, set-up, staging and restoring again,
// in all R. (An offer without a loss rate is assumed to have none; those of a Catalog
// always have one.) A stretch of work w between two checkpoints is then expected to take
//
//	(1/(n·L) + R) · (exp(n·L·w) − 1)
//
// with exp(n·L·w) − 1 interruptions, and the stretches add up. A replacement begins a
// paid stretch of its own, of which half is lost on average.
func (q *Query) price(o *fleet.Offer, h *host, nodes int, run time.Duration) (Option, bool) {
	var stage time.Duration
	var transfer money.Amount
	if q.Stage != nil {
		stage, transfer = q.Stage(o)
	}

	ready := time.Duration(o.Boot) + q.Setup + stage
	opt := Option{Offer: o, Nodes: nodes, GPUs: h.gpus, Run: run, Start: q.Now.Add(ready)}
	works := run.Seconds()

	if o.Spot && o.LossRate > 0 {
		var ok bool
		works, opt.Losses, ok = withInterruptions(
			run.Seconds(),
			q.CheckpointEvery.Seconds(),
			(ready + q.Restore).Seconds(),
			o.LossRate*float64(nodes)/time.Hour.Seconds(),
		)

		if !ok {
			return Option{}, false
		}
	}

	held := ready + job.Seconds(works)
	if held < ready || held > maxDuration {
		return Option{}, false
	}

	opt.Finish = q.Now.Add(held)
	opt.Money = (o.Cost(job.Duration(held)) + transfer).Times(float64(nodes)) +
		(o.PerHour().For(time.Duration(o.BillingIncrement)/2) + transfer).Times(opt.Losses)

	switch q.Objective {
	case job.ObjectiveTime:
		opt.Score = held.Seconds()
	case job.ObjectiveCost:
		opt.Score = float64(opt.Money)
	case job.ObjectiveBalanced:
		opt.Score = float64(opt.Money + q.HourValue.For(held))
	}

	return opt, true
}

// maxDuration is more than any job takes: an option that takes longer is dropped.
const maxDuration = 10 * 365 * 24 * time.Hour

// withInterruptions returns how long work takes that is interrupted at a rate, and how often
// that happens; all in seconds. It is not ok if it would hardly ever get done.
func withInterruptions(work, every, again, rate float64) (takes, losses float64, ok bool) {
	if every <= 0 || every > work {
		every = work
	}

	if rate*every > 10 {
		return 0, 0, false
	}

	whole := 0.0
	if every > 0 {
		whole = math.Floor(work / every)
	}

	losses = whole*math.Expm1(rate*every) + math.Expm1(rate*(work-whole*every))

	return losses * (1/rate + again), losses, true
}
