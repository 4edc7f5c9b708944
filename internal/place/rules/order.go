package rules

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// inOrder returns the jobs in the order in which they are considered, with one more
// if there is one that is not in line.
func (e *engine) inOrder(more *queue.Item) []*wait {
	l := e.line
	l.users.Weigh(e.view.Usage)
	l.projects.Weigh(e.view.ProjectUsage)
	order := l.order[:0]
	for _, w := range l.order {
		if !w.gone {
			w.weigh(e.view.Now)
			order = append(order, w)
		}
	}
	clear(l.order[len(order):])
	l.order = order
	if more != nil && l.jobs[more.Job] == nil {
		w := e.more(more)
		w.weigh(e.view.Now)
		order = append(slices.Clone(order), w)
	}
	arrange(order)
	return order
}

// more describes a job that is not in line.
func (e *engine) more(it *queue.Item) *wait {
	l := e.line
	w := newWait(it, &shape{of: it.Shape}, l.users.Of(it.User))
	if it.Project != "" {
		w.project = l.projects.Of(it.Project)
	}
	for _, x := range e.view.Leases {
		if x.Live() && x.Job == it.Job && it.Job != "" {
			w.hired = append(w.hired, x)
		}
	}
	e.describe(w)
	return w
}

// arrange sorts the jobs. They are as they were in the last round, with a few new ones
// at the end, so most of them stand where they belong already.
func arrange(order []*wait) {
	moved := 0
	for i := 1; i < len(order); i++ {
		w := order[i]
		if compareWaits(order[i-1], w) < 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(order[:i], w, compareWaits)
		copy(order[at+1:i+1], order[at:i])
		order[at] = w
		if moved += i - at; moved > 64*len(order) { // it is not as it was
			slices.SortFunc(order, compareWaits)
			return
		}
	}
}

// compareWaits tells who is considered first. Numbers decide last: no two are equal.
func compareWaits(a, b *wait) int {
	switch {
	case a.priority != b.priority:
		return cmp.Compare(b.priority, a.priority)
	case a.aged != b.aged:
		if a.aged {
			return -1
		}
		return 1
	case a.aged:
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number))
	}
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
}

// weigh says how far in front a job stands, by its age and by what its owner and its
// project have had. It has to stand back if that was more than their share, and may come
// forward if it was less: between a quarter and four times. The fair share is the mean of
// all who have a job here; each doubles what it counts for each share that was had beyond
// one's own.
func (w *wait) weigh(now time.Time) {
	over := w.user.Over
	if w.project != nil {
		over += w.project.Over
	}
	if over != w.over || w.excess == 0 {
		w.over, w.excess = over, math.Exp2(min(max(over, -2), 2))
	}
	w.key = w.base * w.excess
	w.aged = !w.due.After(now)
}

// describe says what a job's time is worth, how long it will take, and how urgent that
// makes it. It reports whether that may be otherwise in the next round.
func (e *engine) describe(w *wait) (open bool) {
	it := w.it
	w.value = e.cfg.Value[job.ObjectiveBalanced]
	if it.Spec != nil {
		if v, ok := e.cfg.Value[it.Spec.Objective]; ok {
			w.value = v
		}
	}
	lasts := w.lasts
	w.lasts, w.basis, w.of, w.low, w.high = it.Lasts, expected, 0, 0, 0
	switch {
	case it.Outlook != nil && it.Outlook.Speed != nil && (it.Spec == nil || it.Spec.Expect == 0 && it.Spec.MaxDuration == 0) && it.Lasts > 0:
		w.basis = told
	case it.Lasts > 0 && it.Spec != nil && it.Spec.Expect == 0 && it.Spec.MaxDuration == 0 && it.Outlook != nil && it.Outlook.Forecast != nil:
		r := &it.Outlook.Forecast.Remaining
		w.basis, w.low, w.high = foreseen, job.Seconds(r.Low), job.Seconds(r.High)
	case it.Lasts == 0:
		open = true
		w.lasts, w.basis = e.cfg.Guess, guessed
		if mean, of := e.view.Past.Expect(it.User, it.Shape.Need.GPUs*it.Shape.Need.Nodes); of > 0 {
			w.lasts, w.basis, w.of = mean, learned, of
			w.low, w.high = e.view.Past.Span(it.User, it.Shape.Need.GPUs*it.Shape.Need.Nodes)
		}
	}
	if w.lasts != lasts {
		w.hire = nil
	}
	w.since = it.Since
	if it.Outlook != nil && !it.Outlook.Submitted.IsZero() && it.Outlook.Stops == 0 && it.Outlook.Ran == 0 {
		w.since = it.Outlook.Submitted
	}
	if w.since.IsZero() {
		w.since, open = e.view.Now, true
	}
	w.due = w.since.Add(e.cfg.Ageing)
	w.wait = patience{}
	if len(e.view.Offers) > 0 && !w.patient {
		p, settled := e.patienceOf(w)
		if w.wait = p; p.share > 0 && p.lasts < e.cfg.Ageing {
			w.due = w.since.Add(p.lasts)
		}
		open = open || !settled
	}
	need := &it.Shape.Need
	wide := math.Pow(float64(max(need.GPUs*need.Nodes, 1)), e.cfg.Width)
	w.base = w.lasts.Hours() / wide / max(w.value, 1e-9)
	return open
}

// spent reports whether the round has looked at as much as it may.
func (e *engine) spent() bool {
	return !e.unlimited && e.timeline.Visits()+e.hostVisits > e.cfg.Visits
}

// takes returns how long a job takes on GPUs of a stock, so many of them on so many nodes.
func (e *engine) takes(w *wait, st *timeline.Pool, gpus, nodes int, s *shape) time.Duration {
	if !w.plain {
		o := w.it.Outlook
		var model string
		var memory job.Bytes
		if len(st.Sample.Node.Inventory.GPUs) > 0 {
			g := &st.Sample.Node.Inventory.GPUs[0]
			model, memory = g.Model, g.Memory
		}
		if d, known := o.Takes(o.Speed.On(model, memory).Rate(gpus*nodes, nodes)); known {
			return d
		}
	}
	if s.Match.Need.MaxGPUs == 0 {
		return w.lasts // GPUs that it does not use make it no faster
	}
	reference := s.base
	if !s.based {
		reference = e.reference(s)
	}
	return scaled(w.lasts, reference, st.TFLOPS, s.Match.Need.GPUs*s.Match.Need.Nodes, gpus*nodes)
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
	if s.based {
		return s.base
	}
	weakest := 0.0
	for _, st := range s.Able {
		if st.Class != fleet.OnDemand && st.TFLOPS > 0 && (weakest == 0 || st.TFLOPS < weakest) {
			weakest = st.TFLOPS
		}
	}
	if weakest == 0 && len(e.view.Offers) > 0 {
		weakest = e.policy.offers.fit(&s.Match.Need).Slowest() / float64(max(s.Match.Need.GPUs, 1))
	}
	s.base, s.based = weakest, true
	return weakest
}
