package calibrate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/quantile"
)

// Quality is how good forecasts of some finished jobs were: the error of the blend relative to what was left, and how
// often intervals contained the outcome.
type Quality struct {
	Median, P80 float64
	Forecasts   int
	Covered     float64 // share of the intervals
	Intervals   int     // without guesses
}

// sample collects replays whose quality is asked for.
type sample struct {
	errors  []float64
	covered tally
}

func (s *sample) add(residual float64, covered *bool) {
	s.errors = append(s.errors, math.Abs(math.Exp(-residual)-1))
	if covered != nil {
		s.covered.add(*covered)
	}
}

func (s *sample) quality() Quality {
	slices.Sort(s.errors)

	return Quality{
		Median: quantile.Linear(s.errors, 0.5), P80: quantile.Linear(s.errors, 0.8), Forecasts: len(s.errors),
		Covered: s.covered.rate(), Intervals: s.covered.n,
	}
}

// ClassQuality is the quality of forecasts with the same kind of evidence.
type ClassQuality struct {
	Class Class
	Quality
}

// ByClass returns the quality by class, without classes that there was no forecast of.
func (r *Record) ByClass() []ClassQuality {
	c := r.Calibration()
	var samples [len(classes)]sample

	for i := range c.replays {
		samples[c.replays[i].class].add(c.residuals[i], c.replays[i].covered)
	}

	var list []ClassQuality
	for i := range samples {
		if len(samples[i].errors) > 0 {
			list = append(list, ClassQuality{classes[i].class, samples[i].quality()})
		}
	}

	return list
}

// TrendQuality is the quality of forecasts of jobs that finished in a day or week.
type TrendQuality struct {
	Start time.Time
	Quality
}

const (
	day        = 24 * time.Hour
	maxDays    = 62 // longer periods are divided into weeks
	maxStretch = 60 // days or weeks that are returned
)

// OverTime returns the quality by day, or by week from Monday if jobs finished over more than two months, in UTC; the
// newest ones. Jobs without a time are left out.
func (r *Record) OverTime() []TrendQuality {
	c := r.Calibration()
	begin := func(at time.Time) time.Time { return at.UTC().Truncate(day) }

	if first, last, ok := r.span(); ok && last.Sub(first) > maxDays*day {
		begin = func(at time.Time) time.Time {
			at = at.UTC().Truncate(day)
			return at.AddDate(0, 0, -(int(at.Weekday())+6)%7)
		}
	}

	samples := map[time.Time]*sample{}
	var starts []time.Time

	for i := range c.replays {
		at := r.jobs[c.replays[i].job].Finished
		if at.IsZero() {
			continue
		}

		start := begin(at)
		if samples[start] == nil {
			samples[start] = &sample{}
			starts = append(starts, start) // in order, as jobs are
		}

		samples[start].add(c.residuals[i], c.replays[i].covered)
	}

	starts = starts[max(0, len(starts)-maxStretch):]

	list := make([]TrendQuality, len(starts))
	for i, start := range starts {
		list[i] = TrendQuality{start, samples[start].quality()}
	}

	return list
}

// span returns when the first and the last job finished of which that is known.
func (r *Record) span() (first, last time.Time, ok bool) {
	if r.Jobs() == 0 {
		return first, last, false
	}

	i := slices.IndexFunc(r.jobs, func(s JobScore) bool { return !s.Finished.IsZero() })
	if i < 0 {
		return first, last, false
	}

	return r.jobs[i].Finished, r.jobs[len(r.jobs)-1].Finished, true
}

// Level is how often outcomes were at most what was said with a probability.
type Level struct {
	Expected, Observed float64
	Forecasts          int
}

// levels is how many probabilities are compared: 10 %, 20 % … 90 %.
const levels = 9

// Reliability compares probabilities with frequencies. Each job is judged by those that had finished before it, as it
// was when its forecasts were made; judged by all others, forecasts would look right however much jobs have changed.
// Jobs before which fewer than MinJobs of their class had finished had guesses for intervals and do not count.
func (r *Record) Reliability() []Level {
	c := r.Calibration()
	var before [len(classes)]struct {
		residuals []float64 // sorted
		jobs      int
	}

	hits := [levels]int{}
	n := 0

	for i := 0; i < len(c.replays); {
		end := i
		for end < len(c.replays) && c.replays[end].job == c.replays[i].job {
			end++
		}

		for k := i; k < end; k++ {
			past := &before[c.replays[k].class]
			if past.jobs < MinJobs || r.jobs[c.replays[k].job].Finished.IsZero() {
				continue
			}

			n++

			p := rank(past.residuals, c.normalised(k))
			for level := range hits {
				if p <= float64(level+1)/(levels+1) {
					hits[level]++
				}
			}
		}

		seen := [len(classes)]bool{}

		for k := i; k < end; k++ {
			past := &before[c.replays[k].class]
			residual := c.normalised(k)
			at, _ := slices.BinarySearch(past.residuals, residual)
			past.residuals = slices.Insert(past.residuals, at, residual)

			if class := c.replays[k].class; !seen[class] {
				seen[class] = true
				past.jobs++
			}
		}

		i = end
	}

	if n == 0 {
		return nil
	}

	list := make([]Level, levels)
	for level := range list {
		list[level] = Level{float64(level+1) / (levels + 1), float64(hits[level]) / float64(n), n}
	}

	return list
}

// normalised returns the residual of the blend at a replay, in units of its difficulty.
func (c *Calibration) normalised(i int) float64 {
	return c.residuals[i] / difficulty(c.replays[i].spread)
}

// rank returns which part of sorted residuals is below one; of those equal to it half.
func rank(sorted []float64, residual float64) float64 {
	below, _ := slices.BinarySearch(sorted, residual)

	equal := 0
	for below+equal < len(sorted) && sorted[below+equal] == residual {
		equal++
	}

	return (float64(below) + float64(equal)/2 + 0.5) / float64(len(sorted)+1)
}

// Miss is a forecast of a finished job and how far off it was.
type Miss struct {
	Job      id.Job
	Finished time.Time
	Progress float64 // part of its work that was done
	Class    Class
	Ratio    float64 // what was left, divided by the estimate
	Covered  *bool   // whether the interval contained the outcome; nil if it was a guess
}

// Worst returns the forecasts that were farthest off, the worst first: one for each of the newest jobs, so many.
func (r *Record) Worst(newest int) []Miss {
	c := r.Calibration()
	worst := map[int]int{} // replay by job

	for i := range c.replays {
		at := c.replays[i].job
		if at < r.Jobs()-newest {
			continue
		}

		if known, ok := worst[at]; !ok || math.Abs(c.residuals[i]) > math.Abs(c.residuals[known]) {
			worst[at] = i
		}
	}

	list := make([]Miss, 0, len(worst))
	for at, i := range worst {
		m := &c.replays[i]
		list = append(list, Miss{
			Job: r.jobs[at].Job, Finished: r.jobs[at].Finished, Progress: m.progress, Class: classes[m.class].class,
			Ratio: math.Exp(c.residuals[i]), Covered: m.covered,
		})
	}

	slices.SortFunc(list, func(a, b Miss) int {
		return cmp.Or(cmp.Compare(math.Abs(math.Log(b.Ratio)), math.Abs(math.Log(a.Ratio))), cmp.Compare(a.Job, b.Job))
	})

	return list
}
