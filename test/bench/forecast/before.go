package main

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"time"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/history"
	"trainyard/internal/job"
)

const (
	streamJobs    = 6000 // of the trace: those of the days with most jobs
	streamHistory = 2000 // finished jobs that a server keeps
	streamRenew   = 100  // ended jobs after which it forgets older ones
	streamSeed    = 1
	streamWait    = 30 * time.Second // in the queue
)

// beforeForecast is what was said of a job of the stream before it started.
type beforeForecast struct {
	submitted     time.Time
	relativeError float64
	covered       bool
	guess         bool
	refused       bool
}

// reportBefore measures forecasts of ordinary jobs before they start, each from the jobs that had ended by then.
func reportBefore(w io.Writer, dir string, figures map[string]float64) error {
	trace, err := readCluster(dir)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(w, "ordinary jobs are left out: %v\n", err)
		return err
	}

	if err != nil {
		return err
	}

	all := forecastStream(ordinaryJobs(busiest(trace, streamJobs), streamSeed))
	stream := tally(all)
	figures["before_err_median"], figures["before_coverage80"] = stream.err, stream.coverage
	figures["before_refused_pct"], figures["before_guess_pct"] = stream.refused, stream.guesses

	first := all[0].submitted.Add(24 * time.Hour)
	day := tally(slices.DeleteFunc(slices.Clone(all), func(f beforeForecast) bool {
		return f.submitted.Before(first) || !f.submitted.Before(first.Add(24*time.Hour))
	}))
	figures["day_coverage80"], figures["day_refused_pct"] = day.coverage, day.refused

	for _, row := range []struct {
		name string
		of   streamTally
	}{{"all days", stream}, {"the day after the first", day}} {
		_, err := fmt.Fprintf(
			w,
			"Ordinary jobs before they start, %s: %d forecasts, median error %.1f %%, coverage %.1f %% (with guesses %.1f %%), "+
				"guesses %.1f %%, refused %.1f %%\n",
			row.name, row.of.count, row.of.err, row.of.coverage, row.of.coverageAll, row.of.guesses, row.of.refused,
		)
		if err != nil {
			return err
		}
	}

	return nil
}

// streamTally is what forecasts before the start come to.
type streamTally struct {
	count                                        int
	err, coverage, coverageAll, guesses, refused float64
}

// tally sums up: the error is over all that had a forecast, the coverage over those that were no guess.
func tally(list []beforeForecast) streamTally {
	t := streamTally{count: len(list)}

	var errs []float64

	var guesses, refused, covered, guessesCovered int
	for _, f := range list {
		if f.refused {
			refused++
			continue
		}

		errs = append(errs, 100*f.relativeError)

		switch {
		case f.guess && f.covered:
			guesses++
			guessesCovered++
		case f.guess:
			guesses++
		case f.covered:
			covered++
		}
	}

	percent := func(part, of int) float64 { return 100 * float64(part) / float64(max(of, 1)) }
	t.err = quantileOf(errs, 0.5)
	t.coverage = percent(covered, len(errs)-guesses)
	t.coverageAll = percent(covered+guessesCovered, len(errs))
	t.guesses, t.refused = percent(guesses, len(list)), percent(refused, len(list))

	return t
}

// busiest returns so many jobs in a row that were submitted within the shortest time.
func busiest(trace []clusterJob, n int) []clusterJob {
	if len(trace) <= n {
		return trace
	}

	best, least := 0, time.Duration(math.MaxInt64)
	for i := 0; i+n <= len(trace); i += n / 20 {
		if d := trace[i+n-1].submitted.Sub(trace[i].submitted); d < least {
			best, least = i, d
		}
	}

	return trace[best : best+n]
}

// ending is a job that ends at some time.
type ending struct {
	at  time.Time
	job *ordinaryJob
}

// endings are jobs by the time of their end.
type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, k int) bool { return e[i].at.Before(e[k].at) }
func (e endings) Swap(i, k int)      { e[i], e[k] = e[k], e[i] }
func (e *endings) Push(v any)        { *e = append(*e, v.(ending)) } //nolint:forcetypeassert // of heap.Push below
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]

	return last
}

// forecastStream forecasts each job when it is submitted, as a server does, from the jobs that have ended by then.
func forecastStream(jobs []ordinaryJob) []beforeForecast {
	library := forecast.NewLibrary(nil, nil)

	var past, fresh []history.Past

	var running endings

	list := make([]beforeForecast, 0, len(jobs))

	for i := range jobs {
		o := &jobs[i]

		for len(running) > 0 && running[0].at.Before(o.submitted) {
			ended := heap.Pop(&running).(ending) //nolint:forcetypeassert // of heap.Push below
			if p, ok := forecast.Finished(ended.input()); ok {
				past, fresh = append(past, p), append(fresh, p)
			}
		}

		switch {
		case len(fresh) >= streamRenew:
			past = past[max(len(past)-streamHistory, 0):]
			library, fresh = forecast.NewLibrary(past, nil), nil
		default:
			library = library.With(fresh)
		}

		list = append(list, o.judge(forecast.Make(&forecast.Input{Job: &o.job, Now: o.submitted, Library: library})))
		heap.Push(&running, ending{o.submitted.Add(streamWait + job.Seconds(o.seconds)), o})
	}

	return list
}

// input is what is known of a job of the stream when it has ended.
func (e *ending) input() *forecast.Input {
	gpus := e.job.job.Spec.Resources.GPUs.Min

	return &forecast.Input{Job: &e.job.job, Now: e.at, Runs: []forecast.Stretch{{
		Epoch: 1, GPU: "P100", GPUs: gpus, Nodes: 1, From: e.job.submitted.Add(streamWait), To: e.at,
	}}}
}

// judge compares a forecast with what came.
func (o *ordinaryJob) judge(f *job.Forecast) beforeForecast {
	return beforeForecast{
		submitted:     o.submitted,
		relativeError: math.Abs(f.Remaining.Mid-o.seconds) / o.seconds,
		covered:       f.Remaining.Low <= o.seconds && o.seconds <= f.Remaining.High,
		guess:         f.Guess,
		refused:       f.Basis == job.BasisNone,
	}
}
