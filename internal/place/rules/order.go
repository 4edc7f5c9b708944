package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// inOrder returns the jobs in the order in which they are considered, with one more
// if there is one that is not in line.
func (e *engine) inOrder(more *queue.Item) []*wait {
	items := e.view.Line.Items()
	e.policy.seen.forget(items)
	list := make([]wait, 0, len(items)+1)
	for _, it := range items {
		list = append(list, e.describe(it))
	}
	if more != nil && !slices.ContainsFunc(items, func(it *queue.Item) bool { return it.Job == more.Job }) {
		list = append(list, e.describe(more))
	}
	excess := e.excess()
	order := make([]*wait, len(list))
	for i := range list {
		w := &list[i]
		w.key *= excess(w.it.User)
		order[i] = w
	}
	slices.SortStableFunc(order, func(a, b *wait) int {
		switch {
		case a.it.Priority != b.it.Priority:
			return cmp.Compare(b.it.Priority, a.it.Priority)
		case a.aged != b.aged:
			if a.aged {
				return -1
			}
			return 1
		case a.aged:
			return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.it.Number, b.it.Number))
		}
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.it.Number, b.it.Number))
	})
	return order
}

// describe says what a job's time is worth, how long it will take, and how urgent that makes it.
func (e *engine) describe(it *queue.Item) wait {
	w := wait{it: it, value: e.cfg.Value[job.ObjectiveBalanced]}
	if it.Spec != nil {
		if v, ok := e.cfg.Value[it.Spec.Objective]; ok {
			w.value = v
		}
	}
	w.lasts, w.basis = it.Lasts, "what its owner expects"
	switch {
	case it.Outlook != nil && it.Outlook.Speed != nil && (it.Spec == nil || it.Spec.Expect == 0 && it.Spec.MaxDuration == 0) && it.Lasts > 0:
		w.basis = "its speed as it was told"
	case it.Lasts == 0:
		w.lasts, w.basis = e.cfg.Guess, "a guess, for nobody said how long it takes"
		if mean, of := e.view.Past.Expect(it.User, it.Shape.Need.GPUs*it.Shape.Need.Nodes); of > 0 {
			w.lasts, w.basis = mean, fmt.Sprintf("%d earlier jobs like it", of)
			w.low, w.high = e.view.Past.Span(it.User, it.Shape.Need.GPUs*it.Shape.Need.Nodes)
		}
	}
	w.since = it.Since
	if it.Outlook != nil && !it.Outlook.Submitted.IsZero() && it.Outlook.Stops == 0 && it.Outlook.Ran == 0 {
		w.since = it.Outlook.Submitted
	}
	if w.since.IsZero() {
		w.since = e.view.Now
	}
	w.due = w.since.Add(e.cfg.Ageing)
	if len(e.view.Offers) > 0 && !e.patient(&w) {
		if w.wait = e.patienceOf(&w); w.wait.share > 0 && w.wait.lasts < e.cfg.Ageing {
			w.due = w.since.Add(w.wait.lasts)
		}
	}
	w.aged = !w.due.After(e.view.Now)
	need := &it.Shape.Need
	wide := math.Pow(float64(max(need.GPUs*need.Nodes, 1)), e.cfg.Width)
	w.key = w.lasts.Hours() / wide / max(w.value, 1e-9)
	return w
}

// excess returns by how much the jobs of a user have to stand back, because they had
// more than their share, or may come forward because they had less: between a
// quarter and four times.
func (e *engine) excess() func(id.User) float64 {
	if e.view.Usage == nil {
		return func(id.User) float64 { return 1 }
	}
	known := map[id.User]float64{}
	sum := 0.0
	for _, r := range e.view.Running {
		if _, ok := known[r.User]; !ok {
			known[r.User] = e.view.Usage(r.User)
			sum += known[r.User]
		}
	}
	for _, it := range e.view.Line.Items() {
		if _, ok := known[it.User]; !ok {
			known[it.User] = e.view.Usage(it.User)
			sum += known[it.User]
		}
	}
	if len(known) < 2 || sum <= 0 {
		return func(id.User) float64 { return 1 }
	}
	fair := sum / float64(len(known))
	return func(u id.User) float64 { return math.Exp2(min(max(known[u]/fair-1, -2), 2)) }
}

// spent reports whether the round has looked at as much as it may.
func (e *engine) spent() bool {
	return e.visits > e.cfg.Visits || e.view.Enough != nil && e.view.Enough()
}

// takes returns how long a job takes on GPUs of a stock, so many of them on so many nodes.
func (e *engine) takes(w *wait, st *stock, gpus, nodes int, s *shape) time.Duration {
	if o := w.it.Outlook; o != nil && o.Speed != nil {
		var model string
		var memory job.Bytes
		if len(st.sample.Node.Inventory.GPUs) > 0 {
			g := &st.sample.Node.Inventory.GPUs[0]
			model, memory = g.Model, g.Memory
		}
		if d, known := o.Takes(o.Speed.On(model, memory).Rate(gpus*nodes, nodes)); known {
			return d
		}
	}
	return scaled(w.lasts, e.reference(s), st.tflops, s.match.Need.GPUs*s.match.Need.Nodes, gpus*nodes)
}

// scaled returns how long something takes at another speed, with more GPUs than it
// asked for. Twice the GPUs are not quite twice as fast.
func scaled(d time.Duration, reference, speed float64, asked, gets int) time.Duration {
	seconds := d.Seconds()
	if reference > 0 && speed > 0 {
		seconds *= reference / speed
	}
	if asked > 0 && gets > asked {
		seconds *= math.Pow(float64(asked)/float64(gets), 0.9)
	}
	return job.Seconds(seconds)
}

// reference returns the speed on which the time that an owner expects is based: that
// of the weakest GPU of the yard's own nodes that would do, or else of the weakest
// that could be hired.
func (e *engine) reference(s *shape) float64 {
	weakest := 0.0
	for _, st := range s.able {
		if st.class != fleet.OnDemand && st.tflops > 0 && (weakest == 0 || st.tflops < weakest) {
			weakest = st.tflops
		}
	}
	if weakest == 0 && len(e.view.Offers) > 0 {
		weakest = e.offers().fit(&s.match.Need).Slowest() / float64(max(s.match.Need.GPUs, 1))
	}
	return weakest
}
