package rules

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/tenant"
)

// option is one way to run a job.
type option struct {
	stock *timeline.Pool
	rooms []int32
	gpus  int           // on each node
	wait  time.Duration // until the nodes are there
	ready time.Duration // until it can work: the wait, boot, set-up and data
	runs  time.Duration
	money float64 // that is paid for its sake
	shown float64 // what the books will say it costs
	score float64
	hire  bool
	offer *hire.Option     // to be hired
	nodes int              // of those
	stops []*place.Running // whose nodes it takes
	bar   string           // why it does not come into question
}

// done returns when the job would be done, counted from now.
func (o *option) done() time.Duration { return o.ready + o.runs }

// options lists the ways to run a job: of each stock the soonest, and the best that
// could be hired.
func (e *engine) options(w *wait, s *shape) []option {
	a := e.allowance(w)
	if a.Hold != "" {
		return nil
	}
	list := e.policy.ways[:0]
	hire, hired := e.hiring(w, s)
	limit := timeline.Never
	w.ready = 0
	if hired {
		hire.bar = barred(a, &hire)
		if hire.bar == "" && !w.patient {
			limit, w.ready = e.limit(w, &hire), hire.ready
		}
	}
	all, now, none := true, false, e.barren(w, s)
	for _, st := range s.Able {
		if e.costs.of(st).rent > 0 && a.NoRent {
			all = false
			continue
		}
		list = append(list, option{stock: st})
		if o := &list[len(list)-1]; e.own(w, s, o, limit, none) {
			now = now || o.wait == 0
		} else {
			list = list[:len(list)-1]
		}
	}
	if !now {
		e.nothingFree(w, s, all)
	}
	if hired {
		list = append(list, hire)
	}
	for i := range list {
		e.score(w, &list[i])
	}
	e.policy.ways = list
	return e.sorted(list)
}

// sorted returns options in another list, the best first. They are few.
func (e *engine) sorted(list []option) []option {
	p := e.policy
	p.rank = p.rank[:0]
	for i := range list {
		k := len(p.rank)
		p.rank = append(p.rank, i)
		for ; k > 0 && cmp.Less(list[i].score, list[p.rank[k-1]].score); k-- {
			p.rank[k] = p.rank[k-1]
		}
		p.rank[k] = i
	}
	p.best = p.best[:0]
	for _, at := range p.rank {
		p.best = append(p.best, list[at])
	}
	return p.best
}

// nothingFree remembers that a job of a shape found no free room, in all stocks or in
// those that it may use.
func (e *engine) nothingFree(w *wait, s *shape, all bool) {
	if s.closed == 0 || s.stops != len(e.plan.Stops) || w.lasts < s.closed {
		s.closed, s.stops = w.lasts, len(e.plan.Stops)
	}
	if all && w.plain && (s.shut == 0 || s.freed != e.freed || w.lasts < s.shut) {
		s.shut, s.freed = w.lasts, e.freed
	}
}

// allowance is what a job may still take.
func (e *engine) allowance(w *wait) *tenant.Allowance {
	if e.view.Allow != nil {
		e.allow = e.view.Allow(w.it)
	}
	return &e.allow
}

// limit returns for how long at most a job waits rather than be hired for, from now.
func (e *engine) limit(w *wait, h *option) time.Duration {
	if w.wait.lasts == timeline.Never || w.wait.lasts == 0 && w.wait.share > 0 {
		return w.wait.lasts
	}
	most := min(e.cfg.Ageing, time.Duration(min(float64(stopAt*w.wait.lasts), float64(timeline.Never))))
	left := w.since.Add(most).Sub(e.view.Now)
	return max(min(w.wait.lasts, left)+h.ready, 0)
}

// score is what an option costs in all: money, and time at what it is worth. Being
// late costs what the job says, or ten times as much as waiting.
func (e *engine) score(w *wait, o *option) {
	o.score = o.money + w.value*o.done().Hours()
	if w.wait.share > 0 { // while it waits longer than for a hired node others are kept out: see patience
		o.score += w.value * (1/w.wait.share - 1) * min(max(o.wait-w.ready, 0), timeline.Never/2).Hours()
	}
	if l := w.it.Outlook; l != nil && !l.Deadline.IsZero() {
		if late := e.view.Now.Add(o.done()).Sub(l.Deadline); late > 0 {
			o.score += late.Hours() * max(l.LateCost*3600, 10*w.value)
		}
	}
	o.score += float64(classRank(o)) * 1e-9 // ties go local, then reserved, then on-demand
	if w.it.Shape.Need.MaxGPUs == 0 && !o.hire && len(o.stock.Sample.Node.Inventory.GPUs) > 0 {
		o.score += 1e-10 // and away from GPUs that others could use
	}
}

func classRank(o *option) int {
	if o.hire {
		return len(fleet.Classes())
	}
	return slices.Index(fleet.Classes(), o.stock.Class)
}

// own completes an option: the soonest way to run a job on nodes of its stock, now or
// later. It reports whether there is one. If none is set, nothing is free now.
func (e *engine) own(w *wait, s *shape, o *option, limit time.Duration, none bool) bool {
	need := &s.Match.Need
	o.gpus = need.GPUs
	o.runs = e.takes(w, o.stock, need.GPUs, need.Nodes, s)
	if none {
		e.timeline.Prune(o.stock, need.GPUs)
	} else if o.rooms = e.fitNow(w, s, o.stock, o.runs); o.rooms != nil {
		e.widen(w, s, o)
		e.price(w, o)
		return true
	}
	if w.quick {
		return false
	}
	o.rooms, o.wait = e.timeline.Earliest(e.request(w, s, o.stock, o.runs), o.stock, limit)
	if o.rooms == nil {
		return false
	}
	e.price(w, o)
	return true
}

// fitNow returns rooms of a pool on which a job can start now, nil if there are none: those
// that were provisioned for it first, then where it ran before, because its checkpoints
// are there.
func (e *engine) fitNow(w *wait, s *shape, st *timeline.Pool, lasts time.Duration) []int32 {
	q := e.request(w, s, st, lasts)
	if s.Match.Need.Nodes == 1 {
		for _, l := range w.hired {
			if at, ok := e.timeline.FitsOn(q, st, l.Node); ok {
				return []int32{at}
			}
		}
		if at, ok := e.timeline.FitsOn(q, st, w.it.Prefer); ok {
			return []int32{at}
		}
	}
	return e.timeline.FitNow(q, st)
}

// request is what a job looks for in a pool. A provisioned node is paid for as a whole, so
// there the tightest fit is the cheapest.
func (e *engine) request(w *wait, s *shape, st *timeline.Pool, lasts time.Duration) *timeline.Request {
	e.req = timeline.Request{Shape: &s.Shape, Job: w.it.Job, Lasts: lasts, Tightest: e.costs.of(st).rent > 0}
	return &e.req
}

// widen lets a job that can use more GPUs have more of the rooms it starts in: a
// cost-sensitive one as few as it asked for, the others as many as are free.
func (e *engine) widen(w *wait, s *shape, o *option) {
	need := &s.Match.Need
	if need.MaxGPUs <= need.GPUs || w.patient {
		return
	}
	most := need.MaxGPUs
	for _, at := range o.rooms {
		r := e.timeline.Room(at)
		fits, _ := s.Match.Fits(&r)
		most = min(most, bits.OnesCount64(fits))
		if e.timeline.Reserved(at) {
			most = need.GPUs
		}
	}
	if most > o.gpus {
		if d := e.takes(w, o.stock, most, need.Nodes, s); d < o.runs {
			o.gpus, o.runs = most, d
		}
	}
}

// price says what an option on the yard's own nodes costs.
func (e *engine) price(w *wait, o *option) {
	o.ready = o.wait
	node := o.stock.Sample.Node
	if len(o.rooms) > 0 {
		node = e.view.Rooms[o.rooms[0]].Node
	}
	if e.view.Stage != nil {
		d, money := e.view.Stage(w.it, node)
		o.ready += d
		o.money += money
		o.shown += money
	}
	hours := float64(max(o.gpus, 1)*max(len(o.rooms), 1)) * o.runs.Hours()
	o.money += e.costs.of(o.stock).energy * hours
	if e.costs.of(o.stock).rent == 0 {
		o.shown += e.costs.of(o.stock).shown * hours
		return
	}
	for _, at := range o.rooms {
		rent := e.rent(at, o)
		o.money += rent
		o.shown += rent
	}
}

// rent returns what is paid for a hired room for the job's sake: all of it, for as long
// as nobody else would keep it.
func (e *engine) rent(at int32, o *option) float64 {
	r := &e.view.Rooms[at]
	kept := time.Duration(0)
	for i := range r.Holds {
		kept = max(kept, e.timeline.Remaining(&r.Holds[i]))
	}
	hourly := e.costs.of(o.stock).rent * float64(max(len(r.Node.Inventory.GPUs), 1))
	return hourly * max(o.done()-max(kept, o.wait), 0).Hours()
}

// hiring is the best way to hire for a job. What speaks against it is not said. It is
// worked out once as long as there are the same offers and rooms, because it does not
// depend on when it begins; where its data are may change.
func (e *engine) hiring(w *wait, s *shape) (option, bool) {
	if len(e.view.Offers) == 0 || !fleet.OnDemand.Allows(s.Match.Need.Place) {
		return option{}, false
	}
	if w.hire != nil {
		return *w.hire, w.hire.hire
	}
	q := e.query(w, s)
	best, ok := e.policy.offers.first(&s.Match.Need, &q)
	o := option{}
	if ok {
		o = e.hireOption(&best)
	}
	if w.it.Spec == nil || len(w.it.Spec.Data) == 0 {
		w.hire = &o
	}
	return o, ok
}

// hireOption is a way to hire as an option.
func (e *engine) hireOption(h *hire.Option) option {
	return option{
		hire: true, offer: h, nodes: h.Nodes, gpus: h.GPUs, ready: h.Start.Sub(e.view.Now), runs: h.Finish.Sub(h.Start), money: h.Money, shown: h.Money,
	}
}

// takeOffers takes up what can be hired now. What was worked out for jobs with other
// offers is dropped.
func (e *engine) takeOffers() {
	if o := e.policy.offers; o == nil || !o.isOf(e.view.Offers) {
		e.policy.offers = newCatalogue(e.view.Offers)
		e.line.unprice()
	}
}

// stages reports whether data are to be brought to where a job runs.
func (e *engine) stages(w *wait) bool {
	return e.view.Stage != nil && w.it.Spec != nil && len(w.it.Spec.Data) > 0
}

// query is what is asked about what could be hired for a job.
func (e *engine) query(w *wait, s *shape) hire.Query {
	q := hire.Query{
		Now: e.view.Now, Objective: job.ObjectiveBalanced, Value: w.value, Setup: e.cfg.Setup,
		Run: w.lasts, Base: e.reference(s) * float64(max(s.Match.Need.GPUs, 1)*s.Match.Need.Nodes),
	}
	if o := w.it.Outlook; o != nil {
		q.Every = o.Every
		q.NoSpot = !o.Resumes && w.lasts > 2*time.Hour
		if o.Speed != nil {
			q.Restore = time.Duration(o.Speed.Start)
			q.Takes = func(of *fleet.Offer, nodes, gpus int) (time.Duration, bool) {
				return o.Takes(o.Speed.On(of.GPU, of.GPUMemory).Rate(nodes*gpus, nodes))
			}
		}
	}
	if e.stages(w) {
		q.Stage = func(of *fleet.Offer) (time.Duration, float64) { return e.view.Stage(w.it, of.Node()) }
	}
	return q
}

// barred says which limit keeps a job from hiring, "" if none does.
func barred(a *tenant.Allowance, o *option) string {
	switch {
	case a.NoRent:
		return a.By.Money + " leaves only nodes for which no rent is paid"
	case o.nodes > a.Nodes:
		return a.By.Nodes + " allows no more on-demand nodes"
	case o.money > a.Money:
		return a.By.Money + " has " + dollars(max(a.Money, 0)) + " left"
	}
	return ""
}

// best returns the option to take, nil if the job shall just wait.
func (e *engine) best(w *wait, options []option) *option {
	if w.patient {
		if o := e.weakest(w, options); o != nil {
			return o
		}
	}
	for i := range options {
		o := &options[i]
		switch {
		case o.bar != "":
		case o.hire && len(w.hired) > 0:
			return nil // its nodes are on their way
		case o.hire && w.cut:
			e.ask(w.due) // it is not known how long it would wait: it goes first then
			return nil
		case o.hire && w.patient && !e.outwaited(w, options):
		default:
			return o
		}
	}
	return nil
}

// weakest returns the weakest idle node that is paid for anyway and will do, a local
// one first: the strong ones stay free for those who are in a hurry. Nil if there is
// none, or if the job would miss its deadline there and not elsewhere.
func (e *engine) weakest(w *wait, options []option) *option {
	var found *option
	for i := range options {
		o := &options[i]
		if o.hire || o.wait > 0 || e.costs.of(o.stock).rent > 0 || e.late(w, o) && !e.late(w, &options[0]) {
			continue
		}
		if found == nil || classRank(o) < classRank(found) || classRank(o) == classRank(found) && o.stock.TFLOPS < found.stock.TFLOPS {
			found = o
		}
	}
	return found
}

// late reports whether a job would miss its deadline.
func (e *engine) late(w *wait, o *option) bool {
	l := w.it.Outlook
	return l != nil && !l.Deadline.IsZero() && e.view.Now.Add(o.done()).After(l.Deadline)
}

// outwaited reports whether a cost-sensitive job would wait longer than it has to for
// a node that is paid for anyway, or for ever.
func (e *engine) outwaited(w *wait, options []option) bool {
	waited := e.view.Now.Sub(w.it.Since)
	return !slices.ContainsFunc(options, func(o option) bool { return !o.hire && o.wait+waited <= e.cfg.Patience })
}

// keep books a job's nodes from the time on at which they will be free.
func (e *engine) keep(w *wait, o *option) {
	n := timeline.SizeOf(&w.it.Shape.Need)
	for _, at := range o.rooms {
		e.timeline.Reserve(at, o.wait, n, o.runs)
	}
	if w.wait.share > 0 && !w.patient {
		e.ask(w.since.Add(min(stopAt*w.wait.lasts, e.cfg.Ageing)))
	}
	if e.plan.Held == nil {
		e.plan.Held = &place.Reservation{Job: w.it.Job, Nodes: e.names(o.rooms), At: e.view.Now.Add(o.wait)}
	}
}

// ask wants another look at a time at which nothing else may happen, in a second at
// the earliest: the patience of a short job may be less than a round takes.
func (e *engine) ask(at time.Time) {
	if e.sooner(at) {
		if e.plan.Again = at; at.Before(e.soon) {
			e.plan.Again = e.soon
		}
	}
}

// sooner reports whether a time is to come, and before the next look.
func (e *engine) sooner(at time.Time) bool {
	if !at.After(e.view.Now) {
		return false
	}
	return e.plan.Again.IsZero() || at.Before(e.plan.Again) && e.plan.Again.After(e.soon)
}

func (e *engine) names(rooms []int32) []id.Node {
	list := make([]id.Node, len(rooms))
	for i, at := range rooms {
		list[i] = e.view.Rooms[at].Node.ID
	}
	return list
}

// start puts a job onto the rooms of an option.
func (e *engine) start(w *wait, o *option, all []option) {
	need := &w.it.Shape.Need
	match := e.shapeOf(w).Match
	s := place.Start{Item: w.it, Seats: make([]place.Seat, 0, len(o.rooms))}
	for _, at := range o.rooms {
		r := e.timeline.Room(at)
		gpus := fleet.Take(match.Wanted(&r)&r.Free, o.gpus)
		s.Seats = append(s.Seats, place.Seat{Node: r.Node.ID, GPUs: gpus})
		e.timeline.Start(at, gpus, need, o.runs)
	}
	s.Reason = e.whyHere(w, o, all)
	e.letGo(w)
	s.Saves, s.Instead = e.saves(o, all)
	e.plan.Starts = append(e.plan.Starts, s)
}

// saves says what a start costs less than hiring would have.
func (e *engine) saves(o *option, all []option) (float64, string) {
	for i := range all {
		if h := &all[i]; h.hire && !o.hire && e.costs.of(o.stock).rent == 0 && h.shown > o.shown {
			return h.shown - o.shown, "instead of hiring " + h.offer.Offer.Name + " for " + dollars(h.shown)
		}
	}
	return 0, ""
}

// hire asks for nodes.
func (e *engine) hire(w *wait, o *option) {
	e.plan.Hires = append(e.plan.Hires, place.Hire{
		Item: w.it, Offer: o.offer.Offer.Name, Count: o.offer.Nodes, Cost: o.money, Reason: e.whyHire(w, o),
	})
}
