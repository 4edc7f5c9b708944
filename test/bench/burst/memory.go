package burst

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
)

// runTimes is how the yard comes to know how long jobs run.
type runTimes int

const (
	declared runTimes = iota // each job states its own
	forecast                 // from the jobs that ended before, in the window and in the trace before it
	learned                  // from the jobs that have ended in the window
	unknown                  // nothing: every job is expected to take as long as any other
)

// ended is a run of the trace before a window.
type ended struct {
	at   time.Duration // since 1970
	row  *row
	gpus int
}

// remember takes down what had ended when a window begins, in order of the ends. The trace does not say how long jobs
// waited, so they end as if none had.
func (w *window) remember(list []row, begin time.Duration) {
	for i := range list {
		r := &list[i]
		if r.at+r.duration < begin && r.gpus <= mostGPUs {
			w.before = append(w.before, ended{r.at + r.duration, r, r.gpus})
		}
	}

	slices.SortStableFunc(w.before, func(a, b ended) int { return cmp.Compare(a.at, b.at) })
}

// withMemory is the policy rules with another memory of earlier runs than the yard's own, which begins with none.
type withMemory struct {
	*rules.Policy
	past *queue.Past
}

// remembering gives a policy the memory of a yard that has run the trace before the window, or for ever none.
func remembering(p place.Policy, w *window, knows runTimes) (*withMemory, error) {
	if w, wrapped := p.(interface{ Unwrap() place.Policy }); wrapped { // nothing is moved
		p = w.Unwrap()
	}

	own, ok := p.(*rules.Policy)
	if !ok {
		return nil, fmt.Errorf("policy %s has no memory that could be set", p.Name())
	}

	m := &withMemory{own, &queue.Past{}}
	if knows == forecast {
		for i := range w.before {
			kin := queue.Kin{User: id.User(w.before[i].row.owner), GPUs: w.before[i].gpus}
			m.past.Add(kin, w.before[i].row.duration)
		}
	}

	return m, nil
}

// Plan plans with this memory.
func (m *withMemory) Plan(v *place.View) place.Plan { return m.Search(v, nil) }

// Search plans with this memory.
func (m *withMemory) Search(v *place.View, enough func() bool) place.Plan {
	own := *v
	own.Past = m.past

	return m.Policy.Search(&own, enough)
}

// Options are those with this memory.
func (m *withMemory) Options(v *place.View, it *queue.Item) []place.Option {
	own := *v
	own.Past = m.past

	return m.Policy.Options(&own, it)
}
