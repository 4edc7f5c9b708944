package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/match"
	"trainyard/internal/forecast/repeat"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/quantile"
)

// Library is the finished jobs that forecasts are based on: their curves, the duration model, and how long they
// waited and
// were set up. It is immutable and safe for concurrent use. A nil Library has no jobs.
type Library struct {
	past  []history.Past
	named map[string][]int // past jobs by their name, the newest first
	pool  *match.Pool
	runs  *repeat.Index
	model *duration.Model
	skip  func(*history.Past) bool
}

// NewLibrary prepares finished jobs. The model may be nil.
func NewLibrary(past []history.Past, model *duration.Model) *Library {
	l := &Library{pool: match.NewPool(past), runs: repeat.New(past), model: model}
	l.index(slices.Clone(past))

	return l
}

// index prepares what is looked up by name.
func (l *Library) index(past []history.Past) {
	l.past, l.named = past, map[string][]int{}
	slices.SortStableFunc(l.past, func(a, b history.Past) int {
		return cmp.Or(b.Finished.Compare(a.Finished), cmp.Compare(a.Job, b.Job))
	})
	for i := range l.past {
		if name := history.PlainName(l.past[i].Features.Name); name != "" {
			l.named[name] = append(l.named[name], i)
		}
	}
}

// With returns a library with further finished jobs, of which only the durations count: their curves have not arrived
// in full. That costs little, so that a job which has just ended counts for the next one like it.
func (l *Library) With(ended []history.Past) *Library {
	known := make(map[id.Job]bool, len(l.past))
	for i := range l.past {
		known[l.past[i].Job] = true
	}

	fresh := slices.DeleteFunc(slices.Clone(ended), func(p history.Past) bool { return known[p.Job] })
	if len(fresh) == 0 {
		return l
	}

	c := *l
	c.index(slices.Concat(l.past, fresh))
	c.runs = l.runs.With(fresh)

	return &c
}

// Without returns a library that leaves finished jobs out. What the model has learned of
// them it keeps.
func (l *Library) Without(skip func(*history.Past) bool) *Library {
	if l == nil {
		return nil
	}

	c := *l
	if before := l.skip; before != nil {
		c.skip = func(p *history.Past) bool { return before(p) || skip(p) }
	} else {
		c.skip = skip
	}

	return &c
}

// Len returns how many finished jobs there are.
func (l *Library) Len() int {
	if l == nil {
		return 0
	}

	return len(l.past)
}

// match predicts from the curves of similar jobs that finished before a time, zero for all. It returns nil if there are
// none.
func (l *Library) match(c *Case, before time.Time) *match.Match {
	if l == nil || len(c.Curve.X) == 0 {
		return nil
	}

	m, err := l.pool.Match(match.Query{Curve: &c.Curve, Features: c.Features, Job: c.Job, Before: before, Skip: l.skip})
	if err != nil {
		return nil // no similar job is a valid answer
	}

	return &m
}

// duration returns the prediction of the duration model, and an error if it has none.
func (l *Library) duration(f history.Features, p duration.Progress) (duration.Duration, error) {
	if l == nil || l.model == nil {
		return duration.Duration{}, errNoModel
	}

	return l.model.PredictAt(f, p)
}

// repeated returns the prediction from earlier runs of the same job or program, and false if there is none.
func (l *Library) repeated(c *Case, before time.Time) (repeat.Prediction, bool) {
	if l == nil {
		return repeat.Prediction{}, false
	}

	return l.runs.Predict(&repeat.Query{
		Job: c.Job, Features: c.Features, Elapsed: c.Elapsed, Before: before, Skip: l.skip,
	})
}

// namesakes returns the newest finished jobs of a job's name, its owner's before others'.
func (l *Library) namesakes(f *history.Features, self id.Job) []*history.Past {
	if l == nil {
		return nil
	}

	var own, others []*history.Past
	for _, i := range l.named[history.PlainName(f.Name)] {
		switch p := &l.past[i]; {
		case p.Job == self || l.skip != nil && l.skip(p):
		case p.Features.Owner == f.Owner:
			own = append(own, p)
		default:
			others = append(others, p)
		}
	}

	if len(own) == 0 {
		own = others
	}

	return own[:min(len(own), maxRecent)]
}

// maxRecent is how many of the newest finished jobs tell how long something takes.
const maxRecent = 25

// quantileBand returns the 10 %, 50 % and 90 % quantiles.
func quantileBand(amounts []float64) job.Band {
	slices.Sort(amounts)
	if len(amounts) == 0 {
		return job.Band{}
	}

	return job.Band{
		Low:  quantile.Linear(amounts, calibrate.TailProbability),
		Mid:  quantile.Linear(amounts, 0.5),
		High: quantile.Linear(amounts, 1-calibrate.TailProbability),
	}
}

// start returns how long jobs like one are set up: those of its name, or all.
func (l *Library) start(f *history.Features, self id.Job) (job.Band, bool) {
	return l.recentAmounts(f, self, func(p *history.Past) float64 { return p.Start })
}

// wait returns how long similar jobs were queued.
func (l *Library) wait(f *history.Features, self id.Job) (job.Band, bool) {
	return l.recentAmounts(f, self, func(p *history.Past) float64 { return p.Wait })
}

func (l *Library) recentAmounts(f *history.Features, self id.Job, of func(*history.Past) float64) (job.Band, bool) {
	if l.Len() == 0 {
		return job.Band{}, false
	}

	like := l.namesakes(f, self)
	if len(like) < 3 {
		like = nil
		for i := range l.past[:min(len(l.past), maxRecent)] {
			like = append(like, &l.past[i])
		}
	}

	var amounts []float64
	for _, p := range like {
		if v := of(p); v >= 0 && !math.IsInf(v, 0) {
			amounts = append(amounts, v)
		}
	}

	return quantileBand(amounts), len(amounts) > 0
}
