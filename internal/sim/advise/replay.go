package advise

import (
	"cmp"
	"io"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/yardmaster"
)

// play replays one variant.
type play struct {
	*variant
	work   *workload
	policy func() place.Policy
	seed   uint64
}

// mostPasses bounds how often a period is replayed until the times at which spot nodes
// are taken back agree with the spot nodes that there are. After the second pass there
// are about as many losses as there should be; later ones move some of them.
const mostPasses = 4

// run replays the period and adds up what it cost. When spot nodes are taken back is
// drawn from how many of them there are at each time; that depends in turn on which
// were taken back before, so the period is replayed until both agree.
func (p *play) run(step func(time.Duration, int), stop func() bool) (*bill, *sim.Result, error) {
	storm := newStorm(p.seed)
	var takes []time.Duration
	for pass := 1; ; pass++ {
		b, result, err := p.once(takes, step, stop)
		if err != nil || stop != nil && stop() {
			return b, result, err
		}

		again := storm.takes(b.leases)
		if slices.Equal(again, takes) || pass == mostPasses {
			b.spotLosses = len(takes)
			return b, result, nil
		}

		takes, step = again, nil // the jobs of a first pass are counted once
	}
}

// once simulates the period with given times at which spot nodes are reclaimed.
func (p *play) once(
	takes []time.Duration,
	step func(time.Duration, int),
	stop func() bool,
) (*bill, *sim.Result, error) {
	h := p.work.history
	seen := map[id.Lease]*fleet.Lease{}
	ends := make([]*sim.Outcome, len(p.work.jobs))

	result, err := sim.Run(sim.Config{
		Policy:  p.policy(),
		Nodes:   p.work.present(p.nodes),
		Changes: &happenings{p.work.changes(p.nodes)},
		Jobs:    trace.List(p.work.jobs),
		Tariff:  p.tariff,
		Quotas:  h.Quotas,
		Data:    h.Data,
		Cloud:   &sim.Cloud{Offers: p.offers, Reclaims: reclaims(takes)},
		Yard: func(c *yardmaster.Config) {
			c.Keep.MaxIdle = p.idle
			c.Unmetered = len(h.Quotas) == 0
		},
		OnLease: func(l *fleet.Lease) {
			kept := *l
			seen[l.ID] = &kept
		},
		FairShare: true,
		Detect:    time.Minute,
		Keep:      math.MaxInt32,
		OnStep:    step,
		Stop:      stop,
		// Virtual time is that of the period, for deadlines and for limits by month.
		Begin: &sim.Beginning{Now: h.From, State: yardmaster.State{Needs: map[id.Job]job.State{}}},
		OnEnd: func(o *sim.Outcome) {
			if at, ok := p.work.index[o.Job.Name]; ok {
				ends[at] = o
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}

	return p.bill(result, ends, p.leases(seen, result)), result, nil
}

// happenings yields changes of nodes.
type happenings struct{ left []sim.Change }

// Next returns the next change.
func (l *happenings) Next() (sim.Change, error) {
	if len(l.left) == 0 {
		return sim.Change{}, io.EOF
	}

	c := l.left[0]
	l.left = l.left[1:]

	return c, nil
}

// provisioned is a machine that was provisioned.
type provisioned struct {
	number   uint64
	offer    *fleet.Offer
	losses   float64       // true rate of reclaims per hour; its offer has the rate that the yard assumes
	from, to time.Duration // for which it is paid
	ready    time.Duration // from when on it could be reclaimed
}

// leases lists the machines that were provisioned, by number. One that is there at the end
// goes back when it has been idle for long enough.
func (p *play) leases(seen map[id.Lease]*fleet.Lease, r *sim.Result) []provisioned {
	last := map[string]time.Duration{}
	for i := range r.Spans {
		s := &r.Spans[i]
		last[s.Node] = max(last[s.Node], job.Seconds(s.To))
	}

	losses := map[string]float64{}
	for i := range p.offers {
		if p.offers[i].Spot {
			losses[p.offers[i].Name] = p.offers[i].LossRate
		}
	}

	begin := p.work.history.From
	var list []provisioned

	for _, l := range seen {
		if l.Granted.IsZero() {
			continue
		}

		x := provisioned{offer: &l.Offer, losses: losses[l.Offer.Name], from: l.Granted.Sub(begin)}
		x.number, _ = l.ID.Number()
		x.ready = x.from + time.Duration(l.Offer.Boot)
		x.to = l.Ended.Sub(begin)
		if l.Ended.IsZero() {
			x.to = max(x.ready, last[string(l.Node)]) + p.idle
		}

		list = append(list, x)
	}

	slices.SortFunc(list, func(a, b provisioned) int { return cmp.Compare(a.number, b.number) })

	return list
}

// bill is what a replay came to.
type bill struct {
	days         []money.Amount // by day; what came after the period is in the last
	within       money.Amount   // of the period itself
	fixed        money.Amount   // of it what the yard's own nodes cost whether they are used or not
	leases       []provisioned
	hours        float64                   // of provisioned nodes
	onDemandCost money.Amount              // of provisioned nodes
	kinds        map[string]money.Amount   // cost by GPU model
	spotCost     money.Amount              // of it
	completion   map[id.Job]time.Duration  // of counted jobs that ended
	worth        map[id.Job]job.Objective  // what they care about
	unfinished   int                       // counted jobs that were never done
	spotLosses   int                       // spot nodes
	used         map[id.Node]time.Duration // GPU-time of own nodes
	shapes       map[string]*shape         // provisioned nodes by kind and number of GPUs
}

// shape is a kind of node that was provisioned.
type shape struct {
	offer *fleet.Offer // the first of it
	cost  money.Amount
	hours float64
}

// ended returns how many counted jobs ended.
func (b *bill) ended() int { return len(b.completion) }

// total is all money.
func (b *bill) total() money.Amount {
	sum := money.Amount(0)
	for _, d := range b.days {
		sum += d
	}

	return sum
}

// bill adds up what a replay cost: provisioned nodes by their leases, the yard's own for
// the time that they were there, and beyond the period what their use cost.
func (p *play) bill(r *sim.Result, ends []*sim.Outcome, leases []provisioned) *bill {
	h := p.work.history
	b := &bill{
		days:       make([]money.Amount, max(int(math.Ceil(h.span().Hours()/24)), 1)),
		leases:     leases,
		kinds:      map[string]money.Amount{},
		completion: map[id.Job]time.Duration{},
		worth:      map[id.Job]job.Objective{},
		used:       map[id.Node]time.Duration{},
		shapes:     map[string]*shape{},
	}

	for i, o := range ends {
		switch {
		case !p.work.counted[i]:
		case o == nil || o.State != job.Succeeded: // what is lost too often is given up
			b.unfinished++
		default:
			name := id.Job(o.Job.Name)
			b.completion[name], b.worth[name] = o.Completion(), o.Job.Spec.Objective
		}
	}

	for i := range leases {
		b.provision(&leases[i], h.span())
	}

	spans := map[string][]sim.Span{}
	for _, s := range r.Spans {
		spans[s.Node] = append(spans[s.Node], s)
	}

	for i := range p.nodes {
		p.meter(b, &p.nodes[i], spans[string(p.nodes[i].ID)])
	}

	return b
}

// pay puts an amount that is paid evenly over a time onto its days.
func (b *bill) pay(from, to time.Duration, amount money.Amount, span time.Duration) {
	if to <= from {
		b.days[b.dayOf(from)] += amount
		return
	}

	rate := amount.Over(to - from)

	for at := from; at < to; {
		d := b.dayOf(at)
		end := min(to, time.Duration(d+1)*day)
		if d == len(b.days)-1 {
			end = to
		}

		b.days[d] += rate.For(end - at)
		at = end
	}

	if in := min(to, span) - from; in > 0 {
		b.within += rate.For(in)
	}
}

func (b *bill) dayOf(at time.Duration) int {
	return min(max(int(at/day), 0), len(b.days)-1)
}

// provision adds a provisioned machine.
func (b *bill) provision(l *provisioned, span time.Duration) {
	kept := max(l.to-l.from, 0)
	rent := l.offer.Cost(job.Duration(kept))
	b.pay(l.from, l.to, rent, span)
	b.hours += kept.Hours()
	b.onDemandCost += rent
	b.kinds[offerKind(l.offer)] += rent
	if l.offer.Spot {
		b.spotCost += rent
	}

	key := shapeKey(l.offer)
	if b.shapes[key] == nil {
		b.shapes[key] = &shape{offer: l.offer}
	}

	b.shapes[key].cost += rent
	b.shapes[key].hours += kept.Hours()
}

// meter adds one of the yard's own nodes.
func (p *play) meter(b *bill, n *Node, spans []sim.Span) {
	h := p.work.history
	from, to := h.stay(n)

	tariff := p.tariff
	if tariff == nil {
		tariff = &fleet.Tariff{}
	}

	price := tariff.Of(&n.Node)
	if n.price != nil {
		price = n.price
	}

	if idle := tariff.Rate(price, 0); idle > 0 {
		b.fixed += idle.For(to - from)
		b.pay(from, to, idle.For(to-from), h.span())
	}

	type turn struct {
		at   time.Duration
		gpus int
	}

	var turns []turn
	for i := range spans {
		s := &spans[i]
		a, z := job.Seconds(s.From), job.Seconds(s.To)
		turns = append(turns, turn{a, s.GPUs}, turn{z, -s.GPUs})
		b.used[n.ID] += time.Duration(s.GPUs) * (z - a)
	}

	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.gpus, b.gpus)) })

	used, since := 0, time.Duration(0)
	for _, t := range turns {
		if more := tariff.Rate(price, min(used, len(n.Inventory.GPUs))) - tariff.Rate(price, 0); used > 0 && more != 0 &&
			t.at > since {
			b.pay(since, t.at, more.For(t.at-since), h.span())
		}

		used, since = used+t.gpus, t.at
	}
}

// shapeKey says which provisioned nodes are alike: by kind and number of GPUs.
func shapeKey(o *fleet.Offer) string { return nodeText(o.GPUs, offerKind(o)) }

// reclaims are spot nodes that are reclaimed without notice.
func reclaims(at []time.Duration) []sim.Reclaim {
	list := make([]sim.Reclaim, len(at))
	for i := range at {
		list[i].At = at[i]
	}

	return list
}
