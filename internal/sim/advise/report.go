package advise

import (
	"fmt"
	"math"
	"slices"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/quantile"
)

// Report holds the recommendations for a period.
type Report struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Policy string    `json:"policy"`
	Jobs   int       `json:"jobs"` // that were replayed and are counted
	Base   Figures   `json:"as_it_was"`
	Trust  Trust     `json:"trust"`
	Advice []Advice  `json:"advice"`
	// LeftOut says what was not looked at, Gaps what was replayed other than it was.
	LeftOut []string `json:"left_out,omitempty"`
	Gaps    []string `json:"gaps,omitempty"`
}

// Figures is what the replay of the yard as it was came to, in a month of 30 days.
type Figures struct {
	Cost         float64 `json:"cost_usd"`
	OnDemandCost float64 `json:"on_demand_usd"`
	OnDemand     float64 `json:"on_demand_hours"`
	Mean         float64 `json:"completion_mean_s"`
	P95          float64 `json:"completion_p95_s"`
}

// Trust compares the baseline replay with the real period. The shares are relative to
// the real figures, negative if the replay came to less.
type Trust struct {
	Cost           float64  `json:"cost_usd"` // of the period, replayed
	RealCost       float64  `json:"real_cost_usd"`
	CostOff        *float64 `json:"cost_off,omitempty"` // absent if nothing was paid
	Completion     float64  `json:"completion_mean_s"`
	RealCompletion float64  `json:"real_completion_mean_s"`
	CompletionOff  *float64 `json:"completion_off,omitempty"`
	Compared       int      `json:"jobs_compared"`
	Sentence       string   `json:"sentence"`
}

// maxDeviation is the share by which the baseline may deviate from the real period without a warning.
const maxDeviation = 0.25

// newReport says what the replay of the yard as it was came to.
func newReport(q *Question, w *workload, b *bill) *Report {
	h := q.History
	scale := month.Hours() / h.span().Hours()

	took := make([]float64, 0, len(b.completion))
	for _, d := range b.completion {
		took = append(took, d.Seconds())
	}

	slices.Sort(took)
	r := &Report{
		From:    h.From,
		To:      h.To,
		Policy:  h.Policy,
		Jobs:    h.counted(),
		Trust:   trust(h, b),
		LeftOut: slices.Clone(h.LeftOut),
		Gaps:    slices.Clone(h.Gaps),
		Base: Figures{
			Cost:         cents(b.total().Times(scale)),
			OnDemandCost: cents(b.onDemandCost.Times(scale)),
			OnDemand:     round(b.hours*scale, 1),
			Mean:         round(mean(took), 0),
			P95:          round(quantile.NearestRank(took, 0.95), 0),
		},
	}

	if b.unfinished > 0 {
		r.Gaps = append(
			r.Gaps,
			fmt.Sprintf(
				"never finished in the replay and not compared because no node has the resources: %s",
				humanize.Count(b.unfinished, "job"),
			),
		)
	}

	if w.bound > 0 {
		r.Gaps = append(
			r.Gaps,
			fmt.Sprintf(
				"assumed to take equally long on every GPU model (no GPU, a shared GPU, or one of unknown speed): %s",
				humanize.Count(w.bound, "job"),
			),
		)
	}

	return r
}

// trust compares the replay with what happened.
func trust(h *History, b *bill) Trust {
	was, is := completedInBoth(h.completions(), b.completion)
	t := Trust{
		Cost:           cents(b.within),
		RealCost:       cents(h.Cost),
		Completion:     round(mean(is), 0),
		RealCompletion: round(mean(was), 0),
		Compared:       len(was),
	}

	t.CostOff, t.CompletionOff = off(float64(b.within), h.Cost), off(mean(is), mean(was))
	switch {
	case t.CostOff != nil && t.CompletionOff != nil:
		t.Sentence = fmt.Sprintf(
			"the baseline replay differs from what happened by %s in cost and %s in completion time",
			percent(*t.CostOff),
			percent(*t.CompletionOff),
		)
	case t.CompletionOff != nil:
		t.Sentence = fmt.Sprintf(
			"the baseline replay differs from what happened by %s in completion time; nothing was paid, so cost cannot be "+
				"compared",
			percent(*t.CompletionOff),
		)
	default:
		t.Sentence = "the baseline replay cannot be compared with what happened: no job finished in both"
	}

	for _, f := range []*float64{t.CostOff, t.CompletionOff} {
		if f != nil && math.Abs(*f) > maxDeviation {
			t.Sentence += "; treat the recommendations with caution"
			break
		}
	}

	return t
}

// off returns by which share a value is off, nil if there is nothing to compare with.
func off(is, was float64) *float64 {
	if was <= 0 {
		return nil
	}

	return new(round(is/was-1, 4))
}
