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
	items := e.items
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
		w.key *= excess(w.it)
		order[i] = w
	}
	slices.SortFunc(order, func(a, b *wait) int { // numbers decide last: no two are equal
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

// excess returns by how much a job has to stand back because its owner and its
// project had more than their share, or may come forward because they had less:
// between a quarter and four times. The fair share is the mean of all who have a job
// here; each doubles what it counts for each share that was had beyond one's own.
func (e *engine) excess() func(*queue.Item) float64 {
	users, projects := portions[id.User]{}, portions[id.Project]{}
	note := func(it *queue.Item) {
		users.note(it.User, e.view.Usage)
		if it.Project != "" {
			projects.note(it.Project, e.view.ProjectUsage)
		}
	}
	for _, r := range e.view.Running {
		note(r.Item)
	}
	for _, it := range e.items {
		note(it)
	}
	return func(it *queue.Item) float64 {
		over := users.over(it.User)
		if it.Project != "" {
			over += projects.over(it.Project)
		}
		if over == 0 {
			return 1
		}
		return math.Exp2(min(max(over, -2), 2))
	}
}

// portions is what each of those who have a job here has used.
type portions[K comparable] struct {
	of  map[K]float64
	sum float64
}

func (p *portions[K]) note(k K, usage func(K) float64) {
	if _, ok := p.of[k]; ok || usage == nil {
		return
	}
	if p.of == nil {
		p.of = map[K]float64{}
	}
	p.of[k] = usage(k)
	p.sum += p.of[k]
}

// over is how many fair shares someone has had beyond one, -1 for nothing at all.
func (p *portions[K]) over(k K) float64 {
	if len(p.of) < 2 || p.sum <= 0 {
		return 0
	}
	return p.of[k]*float64(len(p.of))/p.sum - 1
}

// spent reports whether the round has looked at as much as it may.
func (e *engine) spent() bool {
	return e.visits > e.cfg.Visits
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
	if s.match.Need.MaxGPUs == 0 {
		return w.lasts // GPUs that it does not use make it no faster
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
