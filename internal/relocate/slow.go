package relocate

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// hurry moves jobs that are too slow to faster nodes of the yard, or to more GPUs within their range, that are idle and
// that no queued job waits for. Where none helps, nodes are provisioned for a job that is worth it (provision.go). It
// notes those of which no move is worth it.
func (p *Policy) hurry(v *place.View, plan *place.Plan) {
	h := &homeward{policy: p, view: v, plan: plan}

	waits := h.awaiting()
	list := h.slow(waits)

	if len(list) == 0 && len(waits) == 0 {
		return
	}

	h.enter()
	defer p.timeline.Forget()

	for i := range waits {
		h.attend(&waits[i])
	}

	for i := range list {
		if m, ok := h.fastest(&list[i]); ok {
			h.take(&m, h.whyFaster(&m))
			continue
		}

		if h.provision(&list[i]) {
			continue
		}

		plan.Slow = append(plan.Slow, place.Slow{Running: list[i].run, Reason: h.whySlow(&list[i])})
	}
}

// slow lists the jobs that are too slow, that wait for no faster nodes already and that the plan leaves alone. A
// cost-sensitive job without a deadline may take as long as it does.
func (h *homeward) slow(waits []awaiting) []away {
	if h.view.NoneSlow {
		return nil
	}

	var list []away

	for _, r := range h.view.Running {
		if r.Outlook.Slow < place.SlowForecasts || r.Stopping || h.planned(r) {
			continue
		}
		if slices.ContainsFunc(waits, func(w awaiting) bool { return w.run == r }) {
			continue
		}
		if r.Outlook.Deadline.IsZero() && r.Spec != nil && r.Spec.Objective == job.ObjectiveCost {
			continue
		}

		if until := h.policy.staysUntil(r); until.After(h.view.Now) {
			wake(h.plan, h.view.Now, until)
			continue
		}

		if l, known := leftOf(h.view.Now, r); known {
			list = append(list, away{run: r, left: l})
		}
	}

	return list
}

// planned reports whether the plan stops a job already.
func (h *homeward) planned(r *place.Running) bool {
	return slices.ContainsFunc(h.plan.Stops, func(s place.Stop) bool { return s.Running.Job == r.Job })
}

// fastest returns the move to nodes of the yard by which a job ends first, and whether there is one that is worth it.
func (h *homeward) fastest(a *away) (move, bool) {
	var best move
	if !h.policy.movable(a.run) {
		return best, false
	}

	found := false

	for _, gpus := range h.counts(a.run) {
		shape := h.shapeOf(a.run, gpus)
		for _, pool := range shape.Able {
			if !isHome(pool.Class) {
				continue
			}

			m, ok := h.faster(a, shape, pool)
			if ok && (!found || m.delay < best.delay) {
				best, found = m, true
			}
		}
	}

	return best, found
}

// counts lists the numbers of GPUs on each node with which a job could run: as many as it has, and more within its
// range and what the plan leaves of its quota.
func (h *homeward) counts(r *place.Running) []int {
	list := []int{gpusOf(r)}
	if list[0] == 0 {
		return list
	}

	a := h.claims().Allow(r.Item)
	for gpus := 2 * list[0]; gpus <= r.Shape.Need.MaxGPUs; gpus *= 2 {
		if a.HoldReason != "" || (gpus-list[0])*len(r.Allocations) > a.GPUs {
			break
		}

		list = append(list, gpus)
	}

	return list
}

// faster returns how a job would run on nodes of a pool, and whether it ends so much earlier there, also if no more is
// left than the lower bound of its forecast, that it is worth the move.
func (h *homeward) faster(a *away, shape *timeline.Shape, pool *timeline.Pool) (move, bool) {
	m, ratio := h.moved(a, shape, pool)
	if ratio <= 1 {
		return m, false
	}

	t, it := &h.policy.terms, a.run.Item
	moved := m.pause.total() + scaled(a.left.low, ratio)
	gain := a.left.low - moved

	if gain.Seconds() <= t.Margin*a.left.low.Seconds() {
		return m, false
	}

	now := h.view.Now
	worth := h.worthOf(it, now.Add(a.left.low), now.Add(moved))

	if worth <= m.pause.cost+h.extraEnergy(a, pool, shape.Match.Need.GPUs*shape.Match.Need.Nodes, ratio) {
		return m, false
	}

	return m, h.fit(&m, shape, pool)
}

// worthOf returns what it is worth to a job to end at one time instead of another.
func (h *homeward) worthOf(it *queue.Item, instead, end time.Time) money.Amount {
	value := h.policy.terms.valueOf(it)

	return value.For(instead.Sub(end)) + ondemand.LateCost(it, value, instead) - ondemand.LateCost(it, value, end)
}

// extraEnergy returns what the energy of a job costs more on so many GPUs of a pool than where it is.
func (h *homeward) extraEnergy(a *away, pool *timeline.Pool, gpus int, ratio float64) money.Amount {
	here := ondemand.EnergyRate(h.view.Tariff, h.node(a.run.Allocations[0].Node)).Of(float64(max(a.run.GPUs, 1)))
	there := ondemand.EnergyRate(h.view.Tariff, pool.Sample.Node).Of(float64(max(gpus, 1)))

	return there.For(scaled(a.left.mid, ratio)) - here.For(a.left.mid)
}

// whyFaster says why a job moves to faster nodes, in minutes.
func (h *homeward) whyFaster(m *move) string {
	return fmt.Sprintf("too slow on %s: %s left; moves to %s, %s for save, transfer and restore, est. finish %s",
		h.describe(m.away.run.Allocations), humanize.Duration(m.away.left.mid), h.describe(m.start),
		humanize.Duration(m.pause.total()), h.finish(m))
}

// whySlow says that a job is too slow and what could be done.
func (h *homeward) whySlow(a *away) string {
	why := "no faster node that it may use is idle"
	if !h.policy.movable(a.run) {
		why = "it is not moved because it has no checkpoint that could be restored elsewhere"
	}

	text := fmt.Sprintf("too slow on %s: %s left, est. finish %s; %s", h.describe(a.run.Allocations),
		humanize.Duration(a.left.mid), humanize.Time(h.view.Now.Add(a.left.mid), h.view.Now.UTC()), why)

	if offer := h.offered(a); offer != "" {
		text += "; " + offer
	}

	return text
}

// offered names the offer on which a job would end first, with its price; "" if none is faster.
func (h *homeward) offered(a *away) string {
	o, ok := h.soonestOffering(a)
	if !ok {
		return ""
	}

	return fmt.Sprintf("option: %s, est. finish %s, est. cost %s", o.name,
		humanize.Time(h.view.Now.Add(o.ends), h.view.Now.UTC()), humanize.Dollars(o.price))
}

// moved describes the move of a job to nodes of a pool, and returns how many times as fast it is there; 0 if it is not
// known to run there.
func (h *homeward) moved(a *away, shape *timeline.Shape, pool *timeline.Pool) (move, float64) {
	r, need := a.run, &shape.Match.Need
	from := h.node(r.Allocations[0].Node)
	m := move{away: a, shape: shape, pool: pool, pause: pauseOf(h.view, r, from, pool.Sample.Node)}

	gpus := fleet.LowestGPUs(shape.Match.MatchingGPUs(pool.Sample), need.GPUs)
	sample := slices.Repeat([]place.Allocation{{Node: pool.Sample.Node.ID, GPUs: gpus}}, need.Nodes)

	ratio := speedup(r, sample, h.node)
	if ratio <= 0 {
		return m, 0
	}

	m.left = scaled(a.left.mid, ratio)
	m.delay = m.pause.total() + m.left - a.left.mid

	return m, ratio
}

// speedup returns how many times as fast a job is on other nodes; 0 if it is not known to run there.
func speedup(r *place.Running, on []place.Allocation, node func(id.Node) *fleet.Node) float64 {
	if r.Outlook.DeclaredSpeed() != nil && place.ExpectedRate(r.Outlook, on, node) <= 0 {
		return 0
	}

	return max(r.Speedup(on, node), 0)
}

// fit finds the nodes of a pool for a move, and reports whether there is room.
func (h *homeward) fit(m *move, shape *timeline.Shape, pool *timeline.Pool) bool {
	need := &shape.Match.Need

	m.rooms = h.policy.timeline.FitNow(&timeline.Request{
		Shape: shape, Job: m.away.run.Job, Lasts: m.pause.total() + m.left,
	}, pool)

	for _, at := range m.rooms {
		room := h.policy.timeline.Room(at)
		gpus := fleet.LowestGPUs(shape.Match.MatchingGPUs(&room)&room.Free, need.GPUs)
		m.start = append(m.start, place.Allocation{Node: room.Node.ID, GPUs: gpus})
	}

	return len(m.rooms) > 0
}
