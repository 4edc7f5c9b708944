package goodput

import (
	"fmt"
	"time"

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
	wants, given := m.deal(best)
	return m.words(wants, given)
}

// deal finds the seats of a choice.
func (m *market) deal(c *choice) ([]seats.Want, []seats.Given) {
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
	return wants, seats.Deal(m.view, wants, seats.Options{Move: true})
}

// words turns seats into a plan, with a reason for each change.
func (m *market) words(wants []seats.Want, given []seats.Given) place.Plan {
	p := seats.Plan(wants, given, func(i int) string {
		if i >= len(m.tasks) {
			return "it asks for no GPU, and there is room for it"
		}
		return m.why(&m.tasks[i], &given[i])
	})
	p.Again = m.view.Now.Add(time.Minute)
	if X[3] != 0 {
		p.Again = m.view.Now.Add(job.Seconds(X[3]))
	}
	return p
}

func (m *market) why(t *task, g *seats.Given) string {
	if len(g.Seats) == 0 {
		return fmt.Sprintf("its %d GPUs do more for shorter jobs", t.run.GPUs)
	}
	return fmt.Sprintf("%d GPUs %s", g.GPUs, job.Duration(0))
}
