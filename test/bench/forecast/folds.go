package main

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"sync"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/quantile"
)

// folds is into how many parts groups are dealt.
const folds = 10

// fold is one part of the groups, with all that may be known when its curves are foretold:
// finished jobs of the other parts, and how well those were foretold from each other.
type fold struct {
	test                 []*sample
	trainingRuns         map[id.Job]*sample // those of the other parts
	library              *forecast.Library
	record               *calibrate.Record // of the blend
	recordWithoutHistory *calibrate.Record // of the same without history
}

// makeFolds divides groups into parts, in the order of their names. Groups never divide.
func makeFolds(list []sample) []*fold {
	names := make([]string, 0, len(list))
	for i := range list {
		names = append(names, list[i].Group)
	}

	slices.Sort(names)
	names = slices.Compact(names)

	part := map[string]int{}
	for i, name := range names {
		part[name] = i % folds
	}

	out := make([]*fold, min(folds, max(len(names), 1)))
	for k := range out {
		out[k] = &fold{}
	}

	for i := range list {
		f := out[part[list[i].Group]]
		f.test = append(f.test, &list[i])
	}

	for k, f := range out {
		f.train(out, k)
	}

	return out
}

// selectHalf leaves one half of the groups to be asked about: first or second, as a hash of their name says; "" keeps
// all.
func selectHalf(parts []*fold, half string) error {
	if half == "" {
		return nil
	}

	odd := map[string]uint32{"first": 0, "second": 1}
	want, ok := odd[half]
	if !ok {
		return fmt.Errorf("there is no half %q; there are first and second", half)
	}

	for _, f := range parts {
		f.test = slices.DeleteFunc(f.test, func(s *sample) bool {
			h := fnv.New32a()
			_, _ = h.Write([]byte(s.Group)) // it cannot fail
			return h.Sum32()%2 != want
		})
	}

	return nil
}

// train prepares what the other parts teach.
func (f *fold) train(all []*fold, own int) {
	f.trainingRuns = map[id.Job]*sample{}
	var others []*sample

	var past []history.Past
	for k, o := range all {
		if k == own {
			continue
		}

		for _, s := range o.test {
			others = append(others, s)
			f.trainingRuns[s.Job] = s
			past = append(past, s.Past)
		}
	}

	f.library = forecast.NewLibrary(past, nil)
	scored := make([][2]calibrate.JobScore, len(others))
	parallel(len(others), func(i int) {
		s := others[i]
		scored[i][0] = forecast.Score(&s.Past, f.seen(s), nil)
		scored[i][1] = forecast.Score(&s.Past, nil, nil)
	})

	blend, alone := make([]calibrate.JobScore, len(others)), make([]calibrate.JobScore, len(others))
	for i := range scored {
		blend[i], alone[i] = scored[i][0], scored[i][1]
	}

	f.record, f.recordWithoutHistory = &calibrate.Record{}, &calibrate.Record{}
	f.record.Add(blend...)
	f.recordWithoutHistory.Add(alone...)
}

// seen is the library without the curve's own group and without runs on its system.
func (f *fold) seen(s *sample) *forecast.Library {
	return f.library.Without(func(p *history.Past) bool {
		o := f.trainingRuns[p.Job]
		return o.Group == s.Group || s.excludedSystem != "" && o.excludedSystem == s.excludedSystem
	})
}

// parallel calls f for each number below n, on all cores.
func parallel(n int, f func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), max(n, 1)) {
		wait.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}

	for i := range n {
		next <- i
	}

	close(next)
	wait.Wait()
}

// quantileOf returns a quantile of values in any order, NaN of none.
func quantileOf(values []float64, p float64) float64 {
	return quantile.Linear(slices.Sorted(slices.Values(values)), p)
}
