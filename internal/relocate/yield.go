package relocate

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// A GPU of the yard that becomes free can start a queued job or bring one home. Home saves the rent of
// that GPU, each hour; the start saves the job's wait, which is worth the same whether it waits for one
// GPU or for eight. So a long and wide job lets those come home that pay more for each GPU, and takes
// what they leave.
//
// How long it waits then is not known: as long as more work arrives than the yard can run, which may be
// for days. So it yields only if it would also be worth it over such a spell, of which a short job could
// have used a part only. And not all of the rent is saved, since the job will need its GPUs later.
const (
	busySpell  = 48 * time.Hour
	savedShare = 0.5
)

// rival is what a queued job is compared with: the jobs away from home.
type rival struct {
	rent     money.PerGPUHour // the least that one of them pays
	priority int              // the lowest of one of them
}

// rivalOf returns the rival that some jobs are.
func rivalOf(list []away) rival {
	r := rival{rent: list[0].rent(), priority: list[0].run.Priority}
	for i := range list {
		r.rent, r.priority = min(r.rent, list[i].rent()), min(r.priority, list[i].run.Priority)
	}

	return r
}

// hourly returns what the nodes cost in an hour that a job leaves when it moves.
func (a *away) hourly() money.PerHour {
	sum := money.PerHour(0)
	for _, l := range a.leases {
		sum += l.Offer.PerHour()
	}

	return sum
}

// rent is the same for each of its GPUs.
func (a *away) rent() money.PerGPUHour { return a.hourly().PerGPU(max(a.run.GPUs, 1)) }

// yields reports whether a queued job lets others come home before it: it is no more urgent than they
// are, they pay more for a GPU than it loses, and it need not wait for ever, since nodes can be
// provisioned for it when its patience ends.
func (h *homeward) yields(it *queue.Item, r rival) bool {
	if r.rent <= 0 || len(h.view.Offers) == 0 {
		return false
	}

	need := &it.Shape.Need
	if it.Priority > r.priority || it.Lasts <= 0 || !fleet.OnDemand.Allows(need.Place) {
		return false
	}

	if o := it.Outlook; o != nil && !o.Deadline.IsZero() {
		return false
	}

	if a := h.view.Allow(it); a.HoldReason != "" || a.NoProvisioning {
		return false
	}

	return h.priceOf(it).PerGPU(max(need.GPUs*need.Nodes, 1)) < r.rent
}

// priceOf returns the rent from which on it pays to let a job wait for it.
func (h *homeward) priceOf(it *queue.Item) money.PerHour {
	uses := min(it.Lasts, busySpell).Hours() / busySpell.Hours()

	return h.policy.terms.valueOf(it).Times(1 / (uses * savedShare))
}

// replace drops starts of queued jobs where it saves more to bring jobs home instead. rest are the moves
// for which there was no room.
func (h *homeward) replace(rest [][]move, r rival) {
	var list []*queue.Item
	for i := range h.plan.Starts {
		if s := &h.plan.Starts[i]; h.atHome(s) && h.yields(s.Item, r) {
			list = append(list, s.Item)
		}
	}

	if len(list) == 0 || len(rest) == 0 {
		return
	}

	slices.SortStableFunc(list, func(a, b *queue.Item) int { return cmp.Compare(h.priceOf(a), h.priceOf(b)) })

	for _, it := range list {
		rest = h.instead(it, rest, r)
	}
}

// atHome reports whether a start is of a queued job, on nodes of the yard that are free already.
func (h *homeward) atHome(s *place.Start) bool {
	if slices.ContainsFunc(h.plan.Stops, func(x place.Stop) bool { return x.Running.Job == s.Item.Job }) {
		return false
	}

	return !slices.ContainsFunc(s.Allocations, func(a place.Allocation) bool {
		at, found := h.find(a.Node)
		return !found || !isHome(h.view.Rooms[at].Node.Class) || a.Share > 0 || a.GPUs&^h.view.Rooms[at].Free != 0
	})
}

// instead brings jobs home where the plan starts a queued one, if they pay more together than it loses.
// It returns the moves that are not made.
func (h *homeward) instead(it *queue.Item, rest [][]move, r rival) [][]move {
	line := h.onLine
	h.without = it
	h.enterBeside(r)

	var chosen []*move

	var stay [][]move

	pay := money.PerHour(0)
	for _, w := range rest {
		m := h.first(w)
		if m == nil {
			stay = append(stay, w)
			continue
		}

		h.occupy(m)
		chosen = append(chosen, m)
		pay += m.away.hourly()
	}

	h.without = nil

	if pay <= h.priceOf(it) {
		h.onLine = line
		return rest
	}

	h.plan.Starts = slices.DeleteFunc(h.plan.Starts, func(s place.Start) bool { return s.Item == it })
	for _, m := range chosen {
		h.add(m, h.reason(m))
	}

	if len(h.plan.Waits) < place.MaxWaits {
		h.plan.Waits = append(h.plan.Waits, place.Wait{Job: it.Job, Reason: whyYield(chosen, pay)})
	}

	return stay
}

// whyYield says why a job waits on although there is room for it.
func whyYield(list []*move, pay money.PerHour) string {
	text := "job " + string(list[0].away.run.Job)
	if more := len(list) - 1; more > 0 {
		text += " and " + humanize.Count(more, "other")
	}

	return text + " moved here from on-demand nodes, which saves " + humanize.Dollars(pay.For(time.Hour)) + " an hour"
}
