package goodput

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/seats"
)

// plan chooses who has what and finds the seats.
func (m *market) plan() place.Plan {
	for i := range m.tasks {
		m.tasks[i].appraise()
	}
	keep := m.present()
	keep.fill()
	best := keep
	for _, c := range []*choice{m.priced(), m.present()} {
		c.fill()
		c.improve(m.view.Enough)
		c.fill()
		if c.total > best.total {
			best = c
		}
	}
	wants, given := m.deal(best, true)
	most := m.realised(given)
	for _, c := range []struct {
		*choice
		move bool
	}{{best, false}, {keep, false}, {keep, true}} {
		if c.choice == keep && best == keep && !c.move {
			continue
		}
		if _, g := m.deal(c.choice, c.move); m.realised(g) > most {
			given, most = g, m.realised(g)
		}
	}
	return m.words(wants, given)
}

// realised is what seats are worth a second, as they are.
func (m *market) realised(given []seats.Given) float64 {
	sum := 0.0
	for i := range m.tasks {
		t, g := &m.tasks[i], &given[i]
		switch {
		case len(g.Seats) == 0:
		case g.Stays:
			sum += t.worth[t.held+1]
		default:
			rate := 1.0
			if s := t.item.Outlook.Speed; s != nil {
				rate = place.RateOn(s, g.Seats, m.node)
			}
			sum += t.after(rate)
		}
	}
	return sum
}

func (m *market) node(n id.Node) *fleet.Node {
	at, found := slices.BinarySearchFunc(m.view.Rooms, n, func(r fleet.Room, n id.Node) int { return cmp.Compare(r.Node.ID, n) })
	if !found {
		return nil
	}
	return m.view.Rooms[at].Node
}

// deal finds the seats of a choice.
func (m *market) deal(c *choice, move bool) ([]seats.Want, []seats.Given) {
	wants := make([]seats.Want, 0, len(m.tasks))
	for i := range m.tasks {
		t := &m.tasks[i]
		w := seats.Want{Item: t.item, Running: t.run}
		if p := c.picks[i]; p >= 0 {
			o := &t.opts[p]
			w.GPUs, w.Kinds = o.gpus, []int32{m.kinds[o.kind].ID}
		}
		wants = append(wants, w)
	}
	for _, it := range m.plain {
		wants = append(wants, seats.Want{Item: it, GPUs: it.Shape.Need.Nodes})
	}
	return wants, seats.Deal(m.view, wants, seats.Options{Move: move})
}

// words turns seats into a plan, with a reason for each change.
func (m *market) words(wants []seats.Want, given []seats.Given) place.Plan {
	p := seats.Plan(wants, given, func(i int) string {
		if i >= len(m.tasks) {
			return "it asks for no GPU, and there is room for it"
		}
		return m.why(&m.tasks[i], &given[i])
	})
	p.Again = m.again()
	return p
}

func (m *market) why(t *task, g *seats.Given) string {
	if len(g.Seats) == 0 {
		return fmt.Sprintf("its %d GPUs do more for shorter jobs", t.run.GPUs)
	}
	return fmt.Sprintf("%d GPUs %s", g.GPUs, job.Duration(0))
}

// again is when to look once more if nothing happens: ever later the longer
// nothing was changed, and never if all have the best they could have.
func (m *market) again() time.Time {
	last, content := time.Time{}, true
	for i := range m.tasks {
		t := &m.tasks[i]
		content = content && t.content()
		if t.run != nil && t.run.Ordered.After(last) {
			last = t.run.Ordered
		}
	}
	if content {
		return time.Time{}
	}
	return m.view.Now.Add(max(m.policy.gap(), m.view.Now.Sub(last)/2))
}

// content reports whether a job has the fastest there is for it.
func (t *task) content() bool {
	if t.held < 0 {
		return false
	}
	for i := range t.opts {
		if t.opts[i].rate > t.opts[t.held].rate {
			return false
		}
	}
	return true
}
