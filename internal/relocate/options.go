package relocate

import (
	"trainyard/internal/place"
)

// Faster lists where a running job that is too slow would end noticeably earlier. It may be called while a plan is
// being made.
func (p *Policy) Faster(v *place.View, r *place.Running) []place.Faster {
	h := &homeward{policy: &Policy{terms: p.terms}, view: v, plan: &place.Plan{}}
	a := &away{run: r}

	var known bool

	a.left, known = leftOf(v.Now, r)
	if !known || !p.movable(r) {
		return nil
	}

	h.enter()

	var list []place.Faster

	if m, ok := h.soonest(a); ok {
		gpu := place.FirstGPU(h.node(m.start[0].Node), m.start[0].GPUs)
		f := place.Faster{
			Allocations: m.start, What: "node " + h.describe(m.start), EndsIn: a.left.mid + m.delay, Left: m.left,
			Cost: m.pause.cost,
		}

		if gpu != nil {
			f.GPU = gpu.Model
		}

		list = append(list, f)
	}

	if o, ok := h.soonestOffering(a); ok {
		list = append(list, place.Faster{
			Offer: o.offer.Name, Count: o.nodes, GPUs: o.gpus * o.nodes, What: "on-demand node " + o.name, GPU: o.offer.GPU,
			EndsIn: o.ends, Left: o.ends - o.pause.total(), Cost: o.price + o.pause.cost,
		})
	}

	return list
}

// soonest returns the move to idle nodes of the yard by which a job ends first, if that is noticeably earlier.
func (h *homeward) soonest(a *away) (move, bool) {
	var best move
	found := false

	for _, gpus := range h.counts(a.run) {
		shape := h.shapeOf(a.run, gpus)
		for _, pool := range shape.Able {
			m, ratio := h.moved(a, shape, pool)
			if !isHome(pool.Class) || ratio <= 1 || !h.noticeable(a, -m.delay.Seconds()) || !h.fit(&m, shape, pool) {
				continue
			}

			if !found || m.delay < best.delay {
				best, found = m, true
			}
		}
	}

	return best, found
}

// soonestOffering returns the offer on which a job ends first, if that is noticeably earlier.
func (h *homeward) soonestOffering(a *away) (offering, bool) {
	var best offering
	found := false
	claims := h.claims()
	allowed := claims.Allow(a.run.Item)

	for _, gpus := range h.counts(a.run) {
		for _, o := range h.offerings(a, gpus, a.left.mid) {
			if !h.noticeable(a, (a.left.mid-o.ends).Seconds()) || found && o.ends >= best.ends ||
				h.barred(a, claims, &allowed, &o) != "" {
				continue
			}

			best, found = o, true
		}
	}

	return best, found
}

// noticeable reports whether a job ends so many seconds earlier that it is worth the trouble.
func (h *homeward) noticeable(a *away, seconds float64) bool {
	return seconds > h.policy.terms.Margin*a.left.mid.Seconds()
}
