package goodput

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
)

// plan chooses who has what and finds the seats. The choice is made in counts;
// on the nodes some job may be spread or moved that was not meant to be. So what
// is chosen is allocated with and without moves, and what only adds to the present
// too, and the seats decide which of them is worth most.
func (m *market) plan() place.Plan {
	m.appraise()
	keep := m.currentChoice()
	keep.fill()

	best := keep
	for _, c := range []*choice{m.pricedChoice(), m.currentChoice()} {
		c.fill()
		c.improve()
		c.fill()

		if c.total > best.total {
			best = c
		}
	}

	wants, given := m.allocate(best, true)
	most := m.worthOf(given)
	for _, c := range []*choice{best, keep} {
		w, g := m.allocate(c, false)
		if worth := m.worthOf(g); worth > most {
			wants, given, most = w, g, worth
		}
	}

	m.topUp(wants, given)

	p := allocate.Plan(wants, given, func(i int, takers []id.Job) string {
		if i >= len(m.tasks) {
			return "fits (needs no GPU)"
		}

		return m.why(&m.tasks[i], &given[i], takers)
	})

	p.WakeAt = m.wakeAt()

	return p
}

// allocate finds the seats of a choice.
func (m *market) allocate(c *choice, move bool) ([]allocate.Request, []allocate.Allocation) {
	wants := make([]allocate.Request, 0, len(m.tasks)+len(m.withoutGPUs))
	for i := range m.tasks {
		t := &m.tasks[i]
		w := allocate.Request{Item: t.item, Running: t.run}
		if p := c.picks[i]; p >= 0 {
			o := &t.options[p]
			w.GPUs, w.Kinds = o.gpus, []int32{m.kinds[o.kind].ID}
		}

		wants = append(wants, w)
	}

	for _, it := range m.withoutGPUs {
		wants = append(wants, allocate.Request{Item: it, GPUs: it.Shape.Need.Nodes})
	}

	return wants, allocate.Assign(m.view, wants, allocate.Options{Move: move})
}

// worthOf is what seats are worth a second.
func (m *market) worthOf(given []allocate.Allocation) float64 {
	sum := 0.0
	for i := range m.tasks {
		t, g := &m.tasks[i], &given[i]
		switch {
		case g.Unchanged:
			sum += t.worth[t.current+1]
		case len(g.Seats) > 0:
			sum += t.worthOfStart(m.rate(t, g.Seats), m.policy.patience())
		default:
			sum += t.worth[0]
		}
	}

	return sum
}

// rate is how fast a job is on seats.
func (m *market) rate(t *task, list []place.Allocation) float64 {
	switch {
	case t.takesTurns:
		return m.rateInTurn(t, list)
	case !t.item.Outlook.HasRates():
		return 1
	}

	return place.ExpectedRate(t.item.Outlook, list, func(n id.Node) *fleet.Node {
		at, found := m.room(n)
		if !found {
			return nil
		}

		return m.view.Rooms[at].Node
	})
}

// why says why a job gets what it gets. takers are the jobs that get GPUs which it holds now.
func (m *market) why(t *task, g *allocate.Allocation, takers []id.Job) string {
	if t.run == nil {
		return m.whyStarts(t, g)
	}

	had := m.amount(t.run.Allocations, t.run.GPUs)
	switch {
	case len(g.Seats) == 0 && len(takers) > 0:
		return fmt.Sprintf("preempted: released GPUs go to %s in %s", place.JobNames(takers), m.aim())
	case len(g.Seats) == 0:
		return fmt.Sprintf("preempted: no GPUs are left for it in %s", m.aim())
	}

	text := fmt.Sprintf("resized from %s to %s", had, m.amount(g.Seats, g.GPUs))
	if g.GPUs == t.run.GPUs {
		text = "moved to " + m.amount(g.Seats, g.GPUs)
	}

	if _, known := t.item.Outlook.RemainingWork(); known && t.item.Outlook.HasRates() {
		text += fmt.Sprintf(": est. finish in %s instead of %s", humanize.Seconds(m.ends(t, m.rate(t, g.Seats))),
			humanize.Seconds(t.remaining/t.options[t.current].rate))
	}

	if len(takers) > 0 {
		text += "; released GPUs go to " + place.JobNames(takers)
	}

	return text
}

// aim names the choice that is looked for.
func (m *market) aim() string {
	switch m.policy.Aim {
	case Completion:
		return "the choice with the shortest mean completion time found"
	case Makespan:
		return "the choice with the shortest makespan found"
	case Fairness:
	}

	return "the fairest choice found"
}

// whyStarts says what a queued job starts on and when it will be done.
func (m *market) whyStarts(t *task, g *allocate.Allocation) string {
	what := m.amount(g.Seats, g.GPUs)
	if !t.item.Outlook.HasRates() {
		return fmt.Sprintf("%s, as requested", what)
	}

	if _, known := t.item.Outlook.RemainingWork(); !known {
		return what
	}

	rate := m.rate(t, g.Seats)
	text := fmt.Sprintf("%s, est. finish in %s", what, humanize.Seconds(m.ends(t, rate)))

	fastest := slices.MaxFunc(t.options, func(a, b option) int { return cmp.Compare(a.rate, b.rate) })
	if gpu := m.kinds[fastest.kind].GPU; fastest.rate > rate && gpu != nil {
		text += fmt.Sprintf("; fastest option: %s, est. finish in %s",
			humanize.GPUs(fastest.gpus, gpu.Model, gpu.Memory), humanize.Seconds(m.ends(t, fastest.rate)))
	}

	return text
}

// ends returns in how many seconds a job would be done that starts now at a rate.
func (m *market) ends(t *task, rate float64) float64 {
	_, start := t.item.Outlook.RestartCost()

	return t.remaining/rate + start.Seconds()
}

// amount is a number of GPUs of the kind of the first seat, in words.
func (m *market) amount(list []place.Allocation, gpus int) string {
	if at, found := m.room(list[0].Node); found && len(m.view.Rooms[at].Node.Inventory.GPUs) > 0 {
		gpu := &m.view.Rooms[at].Node.Inventory.GPUs[0]

		return humanize.GPUs(gpus, gpu.Model, gpu.Memory)
	}

	return humanize.Count(gpus, "GPU")
}

// wakeAt returns when to plan again if nothing happens: the longer nothing has changed,
// the later, and when the kinds change on which jobs take turns; zero if every job has the fastest
// option there is for it.
func (m *market) wakeAt() time.Time {
	last, content := time.Time{}, true

	for i := range m.tasks {
		t := &m.tasks[i]
		content = content && t.hasFastest()

		at := t.item.Outlook.Submitted
		if t.run != nil {
			at = t.run.Ordered
		}

		if at.After(last) {
			last = at
		}
	}

	var at time.Time
	if !content {
		at = m.view.Now.Add(max(m.policy.gap(), m.view.Now.Sub(last)/2))
	}

	if next := m.view.Now.Truncate(turn).Add(turn); m.takeTurns() && (at.IsZero() || next.Before(at)) {
		return next
	}

	return at
}
