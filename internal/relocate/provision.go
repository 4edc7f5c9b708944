package relocate

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/provision"
	"trainyard/internal/tenant"
)

// Nodes for running jobs that are too slow. A job for which nodes are provisioned continues where it is. When they are
// ready the next plan moves it there; nobody else may use them meanwhile. If the job no longer gains by the move they
// are released.

// offering is a way to provision nodes for a running job.
type offering struct {
	offer *fleet.Offer
	name  string // of the offer, with its GPUs
	nodes int
	gpus  int           // on each node
	pause pause         // of the move
	ends  time.Duration // from now, with boot, save, transfer and restore
	price money.Amount
}

// provision provisions nodes for a job that is too slow, and reports whether there is an offer that is worth it.
func (h *homeward) provision(a *away) bool {
	best, ok := h.bestOffering(a)
	if !ok {
		return false
	}

	if until := a.run.Hurried.Add(h.policy.terms.Stay); !a.run.Hurried.IsZero() && until.After(h.view.Now) {
		wake(h.plan, h.view.Now, until)
		return false
	}

	h.plan.Provisions = append(h.plan.Provisions, place.Provision{
		Item: a.run.Item, Running: a.run, Offer: best.offer.Name, Count: best.nodes, GPUs: best.gpus * best.nodes,
		Cost: best.price, Reason: h.whyProvision(a, &best),
	})

	return true
}

// bestOffering returns the offer that is worth most to a job that is too slow, as it is expected to turn out, and
// whether there is one that is worth it also if no more is left than the lower bound of the forecast.
func (h *homeward) bestOffering(a *away) (offering, bool) {
	var best offering
	if !h.policy.movable(a.run) {
		return best, false
	}

	found, most := false, money.Amount(0)
	claims := h.claims()
	allowed := claims.Allow(a.run.Item)

	for _, gpus := range h.counts(a.run) {
		expected := map[string]offering{}
		for _, o := range h.offerings(a, gpus, a.left.mid) {
			expected[o.offer.Name] = o
		}

		for _, o := range h.offerings(a, gpus, a.left.low) {
			mid, both := expected[o.offer.Name]
			gains, ok := h.gainOf(a, &o)

			if !ok || !both || found && gains <= most || h.barred(a, claims, &allowed, &mid) != "" {
				continue
			}

			best, found, most = mid, true, gains
		}
	}

	return best, found
}

// gainOf returns what an offering is worth to a job beyond what it costs, by the lower bound of the forecast, and
// whether the job ends earlier by a margin and that is worth its cost.
func (h *homeward) gainOf(a *away, o *offering) (money.Amount, bool) {
	gain := a.left.low - o.ends
	if gain.Seconds() <= h.policy.terms.Margin*a.left.low.Seconds() {
		return 0, false
	}

	now := h.view.Now
	worth := h.worthOf(a.run.Item, now.Add(a.left.low), now.Add(o.ends))
	cost := o.price + o.pause.cost - h.leftCost(a, a.left.low, time.Duration(o.offer.Boot)+o.pause.leaves)

	return worth - cost, worth > cost
}

// leftCost returns what the nodes cost that a job leaves after a while, from then until it would have ended there.
func (h *homeward) leftCost(a *away, remaining, leaves time.Duration) money.Amount {
	if leaves >= remaining {
		return 0
	}

	now := h.view.Now
	energy := ondemand.EnergyRate(h.view.Tariff, h.node(a.run.Allocations[0].Node)).Of(float64(max(a.run.GPUs, 1)))
	cost := energy.For(remaining - leaves)

	for _, l := range h.vacated(a.run, h.activeLeases()) {
		cost += l.Offer.PerHour().For(billed(l, now.Add(remaining)) - billed(l, now.Add(leaves)))
	}

	return cost
}

// activeLeases returns the leases of nodes that have joined, by node.
func (h *homeward) activeLeases() map[id.Node]*fleet.Lease {
	leases := map[id.Node]*fleet.Lease{}
	for _, l := range h.view.Leases {
		if l.State == fleet.LeaseActive {
			leases[l.Node] = l
		}
	}

	return leases
}

// barred says which quota, budget or limit on nodes forbids an offering, "" if none does. Of its quota of GPUs a job
// needs only what it gets more.
func (h *homeward) barred(a *away, c *place.Claims, allowed *tenant.Allowance, o *offering) string {
	if allowed.HoldReason != "" {
		return allowed.HoldReason
	}

	more := fleet.Need{Nodes: 1, GPUs: max(o.gpus*o.nodes-a.run.GPUs, 0)}
	option := provision.Option{Offer: o.offer, Nodes: o.nodes}

	return ondemand.Barred(c, allowed, &more, &option, o.price)
}

// offerings lists the ways to provision nodes with so many GPUs each on which a job is faster, if so much is left of it
// where it is.
func (h *homeward) offerings(a *away, gpus int, remaining time.Duration) []offering {
	r := a.run
	if len(h.view.Offers) == 0 || !fleet.OnDemand.Allows(r.Shape.Need.Place) {
		return nil
	}

	if h.catalogue == nil {
		h.catalogue = ondemand.NewCatalogue(h.view.Offers)
	}

	need := needOf(r, gpus)
	need.MaxNodes = need.Nodes
	from := h.node(r.Allocations[0].Node)
	setup := ondemand.Standard().Setup
	pauses := map[*fleet.Offer]pause{}

	query := ondemand.Query(h.view, r.Item, ondemand.Length{
		Lasts: remaining, HourValue: h.policy.terms.valueOf(r.Item), Setup: setup,
	})
	query.Stage = nil // part of the pause
	query.RunTime = func(o *fleet.Offer, nodes, gpus int) (time.Duration, bool) {
		n := o.Node()
		for i := range n.Inventory.GPUs {
			n.Inventory.GPUs[i].Achievable = o.TFLOPS // a catalogue has what is reached
		}

		on := slices.Repeat([]place.Allocation{{Node: n.ID, GPUs: 1<<gpus - 1}}, nodes)

		ratio := speedup(r, on, func(id.Node) *fleet.Node { return n })
		if ratio <= 1 {
			return 0, false
		}

		p := pauseOf(h.view, r, from, n)
		pauses[o] = p
		works := max(remaining-time.Duration(o.Boot)-setup, 0)

		return p.total() + scaled(works, ratio), true
	}

	var list []offering
	for _, o := range h.catalogue.Fit(&need).Options(query) {
		list = append(list, offering{
			offer: o.Offer, name: ondemand.Describe(&o), nodes: o.Nodes, gpus: o.GPUs, pause: pauses[o.Offer],
			ends: o.Finish.Sub(h.view.Now), price: o.Money,
		})
	}

	return list
}

// claims returns what the plan takes of quotas, budgets and limits on nodes.
func (h *homeward) claims() *place.Claims {
	c := place.NewClaims(h.view)

	for i := range h.plan.Starts {
		c.Start(h.plan.Starts[i].Item, h.plan.Starts[i].GPUs())
	}

	for i := range h.plan.Provisions {
		c.Provision(&h.plan.Provisions[i])
	}

	return c
}

// awaiting is a running job for which nodes were provisioned.
type awaiting struct {
	away
	nodes []*fleet.Lease // for which it waits
}

// awaiting lists the running jobs that wait for faster nodes and that the plan leaves alone.
func (h *homeward) awaiting() []awaiting {
	var leases []*fleet.Lease
	for _, l := range h.view.Leases {
		if l.Faster {
			leases = append(leases, l)
		}
	}

	if len(leases) == 0 {
		return nil
	}

	var list []awaiting

	for _, r := range h.view.Running {
		if r.Stopping || h.planned(r) {
			continue
		}

		w := awaiting{away: away{run: r}}
		for _, l := range leases {
			if r.Awaits(l) {
				w.nodes = append(w.nodes, l)
			}
		}

		if len(w.nodes) > 0 {
			list = append(list, w)
		}
	}

	return list
}

// attend decides what becomes of the nodes that were provisioned for a running job: it moves there, waits for them, or
// they are released.
func (h *homeward) attend(w *awaiting) {
	r := w.run

	var known bool
	w.left, known = leftOf(h.view.Now, r)
	accepted := w.nodes[0].By != "" // its owner has decided that it moves

	switch {
	case r.Outlook.Slow <= -place.SlowForecasts && !accepted:
		h.release(w, "no longer too slow on "+h.describe(r.Allocations))
		return
	case r.Stays:
		h.release(w, "its checkpoints could not be stored")
		return
	case !h.policy.movable(r):
		h.release(w, "it has no checkpoint that could be restored elsewhere")
		return
	case !known:
		h.release(w, "its remaining time is unknown")
		return
	case len(w.nodes) < len(r.Allocations):
		h.release(w, "other nodes that it needs are gone")
		return
	}

	if !accepted {
		if m, ok := h.fastest(&w.away); ok {
			h.take(&m, h.whyFaster(&m))
			h.release(w, "it moves to "+h.describe(m.start)+" instead")

			return
		}
	}

	m, ok := h.onLeases(w, accepted)

	switch {
	case !ok:
		h.release(w, fmt.Sprintf("it would not gain enough there any more: %s left", humanize.Duration(w.left.mid)))
	case len(m.start) > 0:
		h.take(&m, h.whyFaster(&m))
	}
}

// release releases the nodes that a job waited for.
func (h *homeward) release(w *awaiting, why string) {
	for _, l := range w.nodes {
		h.plan.Releases = append(h.plan.Releases, place.Release{
			Lease: l.ID, Reason: fmt.Sprintf("job %s does not need it: %s", w.run.Job, why),
		})
	}
}

// onLeases returns how a job moves to the nodes that were provisioned for it, without a start if they are not ready
// yet, and whether it still gains by it. What was paid for them is spent either way. By the estimate, not by its lower
// bound: forecasts vary, and the nodes were not provisioned to be released with the next one.
func (h *homeward) onLeases(w *awaiting, accepted bool) (move, bool) {
	var best move
	found := false

	rooms, ready := h.readyRooms(w)

	for _, gpus := range h.counts(w.run) {
		on, node, fits := h.allocate(w, rooms, ready, gpus)
		ratio := speedup(w.run, on, node)

		if !fits || ratio <= 1 {
			continue
		}

		m := move{away: &w.away, pause: pauseOf(h.view, w.run, h.node(w.run.Allocations[0].Node), node(on[0].Node))}
		boots := h.bootsFor(w)
		m.left = scaled(max(w.left.mid-boots, 0), ratio)
		m.delay = boots + m.pause.total() + m.left - w.left.mid

		if m.delay >= 0 || !accepted && !h.pays(w, &m, boots) || found && m.delay >= best.delay {
			continue
		}

		if ready {
			m.start = on
		}

		best, found = m, true
	}

	return best, found
}

// pays reports whether the move of a job to the nodes that were provisioned for it is worth what they will cost.
func (h *homeward) pays(w *awaiting, m *move, boots time.Duration) bool {
	now := h.view.Now
	stays, ends := now.Add(w.left.mid), now.Add(w.left.mid+m.delay)
	cost := m.pause.cost - h.leftCost(&w.away, w.left.mid, boots+m.pause.leaves)

	for _, l := range w.nodes {
		if l.Granted.IsZero() {
			cost += l.Offer.Cost(job.Duration(ends.Sub(now)))
			continue
		}

		cost += l.Offer.PerHour().For(billed(l, ends) - billed(l, now))
	}

	return h.worthOf(w.run.Item, stays, ends) > cost
}

// bootsFor returns how long it takes until the last of the nodes that a job waits for has joined.
func (h *homeward) bootsFor(w *awaiting) time.Duration {
	longest := time.Duration(0)

	for _, l := range w.nodes {
		if l.State != fleet.LeaseActive {
			longest = max(longest, l.Requested.Add(time.Duration(l.Offer.Boot)).Sub(h.view.Now))
		}
	}

	return longest
}

// readyRooms returns the rooms of the nodes that a job waits for, and whether all of them are ready.
func (h *homeward) readyRooms(w *awaiting) ([]*fleet.Room, bool) {
	rooms := make([]*fleet.Room, 0, len(w.nodes))

	for _, l := range w.nodes {
		at, found := h.find(l.Node)
		if !found || l.State != fleet.LeaseActive || !h.view.Rooms[at].Open || len(h.view.Rooms[at].Holds) > 0 {
			return nil, false
		}

		rooms = append(rooms, &h.view.Rooms[at])
	}

	slices.SortFunc(rooms, func(a, b *fleet.Room) int { return cmp.Compare(a.Node.ID, b.Node.ID) })

	return rooms[:min(len(rooms), len(w.run.Allocations))], true
}

// allocate returns so many GPUs of each of the nodes that a job waits for, and whether it fits there. Nodes that are
// not ready are as their offer says.
func (h *homeward) allocate(
	w *awaiting, rooms []*fleet.Room, ready bool, gpus int,
) ([]place.Allocation, func(id.Node) *fleet.Node, bool) {
	if !ready {
		n := w.nodes[0].Offer.Node()
		on := slices.Repeat([]place.Allocation{{Node: n.ID, GPUs: 1<<gpus - 1}}, len(w.run.Allocations))

		return on, func(id.Node) *fleet.Node { return n }, gpus <= w.nodes[0].Offer.GPUs
	}

	match := fleet.NewMatcher(needOf(w.run, gpus))
	on := make([]place.Allocation, 0, len(rooms))

	for _, r := range rooms {
		fits, ok := match.Fits(r)
		if !ok || bits.OnesCount64(fits) < gpus {
			return nil, h.node, false
		}

		on = append(on, place.Allocation{Node: r.Node.ID, GPUs: fleet.LowestGPUs(fits, gpus)})
	}

	return on, h.node, true
}

// whyProvision says why nodes are provisioned for a running job, in money and minutes.
func (h *homeward) whyProvision(a *away, o *offering) string {
	return fmt.Sprintf("too slow on %s: %s left; provisions %s, est. finish %s, %s earlier, est. cost %s; "+
		"no idle node of the yard helps",
		h.describe(a.run.Allocations), humanize.Duration(a.left.mid), o.name,
		humanize.Time(h.view.Now.Add(o.ends), h.view.Now.UTC()), humanize.Duration(a.left.mid-o.ends),
		humanize.Dollars(o.price))
}
