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
	asked   []*sample
	by      map[id.Job]*sample // those of the other parts
	library *forecast.Library
	record  *calibrate.Record // of the blend
	alone   *calibrate.Record // of the same without history
}

// deal divides groups into parts, in the order of their names. Groups never divide.
func deal(list []sample) []*fold {
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
		f.asked = append(f.asked, &list[i])
	}
	for k, f := range out {
		f.learn(out, k)
	}
	return out
}

// keep leaves one half of the groups to be asked about: first or second, as a hash of their name says; "" keeps all.
func keep(parts []*fold, half string) error {
	if half == "" {
		return nil
	}
	odd := map[string]uint32{"first": 0, "second": 1}
	want, ok := odd[half]
	if !ok {
		return fmt.Errorf("there is no half %q; there are first and second", half)
	}
	for _, f := range parts {
		f.asked = slices.DeleteFunc(f.asked, func(s *sample) bool {
			h := fnv.New32a()
			_, _ = h.Write([]byte(s.Group)) // it cannot fail
			return h.Sum32()%2 != want
		})
	}
	return nil
}

// learn prepares what the other parts teach.
func (f *fold) learn(all []*fold, own int) {
	f.by = map[id.Job]*sample{}
	var others []*sample
	var past []history.Past
	for k, o := range all {
		if k == own {
			continue
		}
		for _, s := range o.asked {
			others = append(others, s)
			f.by[s.Job] = s
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
	f.record, f.alone = &calibrate.Record{}, &calibrate.Record{}
	f.record.Add(blend...)
	f.alone.Add(alone...)
}

// seen is the library without the curve's own group and without runs on its system.
func (f *fold) seen(s *sample) *forecast.Library {
	return f.library.Without(func(p *history.Past) bool {
		o := f.by[p.Job]
		return o.Group == s.Group || s.shut != "" && o.shut == s.shut
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
