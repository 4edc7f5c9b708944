package forecast

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/job"
	"trainyard/internal/quantile"
)

const (
	// Enough is how many finished jobs an interval needs behind it; with fewer it is a guess.
	Enough = 20
	// The interval holds in four of five cases: a tenth of the jobs ends before it, a tenth after.
	tail = 0.1
)

// replay is a mark as it is reckoned with.
type replay struct {
	job     int // which of the record
	class   int
	quarter int // by the first beliefs
	part    float64
	logs    logs
	blind   [count]bool
	few     bool
	wide    float64
}

// tally counts how often something held.
type tally struct{ n, held int }

func (t tally) share() float64 {
	if t.n == 0 {
		return 0
	}
	return float64(t.held) / float64(t.n)
}

// spread is how wrong the blend was in cases of one sort.
type spread struct {
	errors []weighed // for each doubt, sorted
	jobs   int
	last   int // number, from 1, of the job that was added last
}

// weighed is an error and what it counts.
type weighed struct{ err, weight float64 }

// spreads are the errors of a class, and of the quarters of the way in it. Those of jobs
// that had hardly begun stand apart: they would make all others look worse than they are.
type spreads struct {
	all spread
	by  [quarters + 1]spread
}

// begun stands behind the quarters, for jobs that have hardly begun.
const begun = quarters

// sortOf is a kind of job in a class.
type sortOf struct {
	kind  string
	class int
}

// rule is what follows from a record. It does not change.
type rule struct {
	beliefs *beliefs
	classes [len(classes)]spreads
	kinds   map[sortOf]*spreads
	held    [len(classes) + 1]tally // intervals shown at the time, by class; the last is all
	marks   []replay
	blends  []float64 // error of the blend at each mark
	errors  logs      // median relative error of each method; negative if it has none
}

// newRule works out what the replays of finished jobs teach. The blend's own errors are
// those that it makes with weights learned from the other folds: with weights that had seen
// the job they would be too small.
func newRule(jobs []Scored) *rule {
	r := &rule{marks: replays(jobs)}
	r.beliefs = learn(r.marks)
	r.blends = make([]float64, len(r.marks))
	fold := make([]int, len(jobs))
	for i := range jobs {
		fold[i] = foldOf(&jobs[i])
	}
	for f := range folds {
		others := slices.DeleteFunc(slices.Clone(r.marks), func(m replay) bool { return fold[m.job] == f })
		b := learn(others)
		for i := range r.marks {
			if m := &r.marks[i]; fold[m.job] == f {
				w := b.weights(m.class, m.quarter, &m.logs)
				r.blends[i] = mix(&w, &m.logs)
			}
		}
	}
	r.gather(jobs)
	for m := range methods {
		r.errors[m] = -1
		if lines := r.linesOf(m); len(lines) > 0 {
			r.errors[m] = lines[0].Median
		}
	}
	return r
}

// errorOf returns the median relative error of a method, negative if it has no record.
func (r *rule) errorOf(method int) float64 { return r.errors[method] }

// replays turns the marks of jobs into what is reckoned with. A mark at which no
// method answered teaches nothing about the blend.
func replays(jobs []Scored) []replay {
	first := firstBeliefs()
	var all []replay
	for i := range jobs {
		for _, mark := range jobs[i].Marks {
			m := replay{job: i, class: classAt(mark.Class), part: mark.Part, logs: noLogs(), few: mark.Few, wide: mark.Wide}
			for name, v := range mark.Logs {
				if at := methodAt(name); at >= 0 && !math.IsNaN(v) && !math.IsInf(v, 0) {
					m.logs[at] = v
				}
			}
			for _, name := range mark.Blind {
				if at := methodAt(name); at >= 0 {
					m.blind[at] = true
				}
			}
			w := first.weights(m.class, 0, &m.logs)
			if sum(w[:]) > 0 {
				m.quarter = quarterOf(m.part, mix(&w, &m.logs))
				all = append(all, m)
			}
		}
	}
	return all
}

// gather sorts the blend's errors by class and by quarter, over all kinds of jobs and for
// each. Over all, a kind of which there are many counts no more than one of which there
// are just enough: the next job that is like none of them may be of any kind.
func (r *rule) gather(jobs []Scored) {
	r.kinds = map[sortOf]*spreads{}
	seen := map[sortOf]float64{}
	for i := range r.marks {
		seen[sortOf{jobs[r.marks[i].job].Kind, r.marks[i].class}]++
	}
	for i := range r.marks {
		m := &r.marks[i]
		sort := sortOf{jobs[m.job].Kind, m.class}
		if r.kinds[sort] == nil {
			r.kinds[sort] = &spreads{}
		}
		err, q := r.blends[i]/doubt(m.wide), quarterOf(m.part, r.blends[i])
		if m.few {
			q = begun
		}
		r.kinds[sort].take(weighed{err, 1}, m.job, q)
		r.classes[m.class].take(weighed{err, min(1, float64(Enough*len(Parts))/seen[sort])}, m.job, q)
	}
	for c := range r.classes {
		r.classes[c].sort()
	}
	for _, s := range r.kinds {
		s.sort()
	}
	for i := range jobs {
		for _, mark := range jobs[i].Marks {
			if mark.Held != nil {
				r.held[classAt(mark.Class)].add(*mark.Held)
				r.held[len(classes)].add(*mark.Held)
			}
		}
	}
}

func (t *tally) add(held bool) {
	t.n++
	if held {
		t.held++
	}
}

// take adds an error of a job. Jobs come one after the other.
func (s *spread) take(w weighed, job int) {
	s.errors = append(s.errors, w)
	if s.last != job+1 {
		s.last = job + 1
		s.jobs++
	}
}

func (s *spreads) take(w weighed, job, quarter int) {
	if quarter != begun {
		s.all.take(w, job)
	}
	s.by[quarter].take(w, job)
}

func (s *spreads) sort() {
	byError := func(a, b weighed) int { return cmp.Compare(a.err, b.err) }
	slices.SortFunc(s.all.errors, byError)
	for q := range s.by {
		slices.SortFunc(s.by[q].errors, byError)
	}
}

// bounds are how far the truth is from what the blend says, as logarithms.
type bounds struct {
	low, mid, high float64
	guess          bool
	records        int
}

// doubt returns how unsure an answer is to begin with, by how far apart the past jobs are
// that it goes by: errors grow with that. An interval is so many doubts wide, and thus narrow
// where all past jobs say the same. Where they do not tell, all answers are alike.
func doubt(wide float64) float64 { return methods[1].error + wide }

// bounds returns the interval for a job of a class and kind of which so much is predicted to
// be done, and whose doubt is so great. It is taken from finished jobs of its kind if there
// are enough, else from all of its class; from those in the same quarter of the way if
// there are enough. Other classes are wrong in other ways and do not stand in.
func (r *rule) bounds(class int, kind string, quarter int, doubt float64) bounds {
	from := &r.classes[class]
	if from.all.jobs < Enough {
		half := math.Log(classes[class].width) / 2
		return bounds{low: -half, high: half, guess: true, records: from.all.jobs}
	}
	if own := r.kinds[sortOf{kind, class}]; own != nil && own.all.jobs >= Enough {
		from = own
	}
	s := &from.all
	if by := &from.by[quarter]; by.jobs >= Enough {
		s = by
	}
	low, mid, high := conformal(s.errors, r.tail(class))
	mid *= float64(s.jobs) / float64(s.jobs+Enough)
	return bounds{low: doubt * low, mid: doubt * min(max(mid, low), high), high: doubt * high, records: len(s.errors)}
}

// tail returns the part of the errors that an interval of a class leaves out at each end.
// Errors of long ago may have been greater than today's, when there is more to compare a
// job with. So intervals that have held too often are drawn in, and others let out, by as
// much as they missed four of five.
func (r *rule) tail(class int) float64 {
	held := r.held[class]
	n := float64(held.n)
	return min(max(tail+(held.share()-(1-2*tail))*n/(n+Enough*float64(len(Parts))), tail/2), 2*tail)
}

// conformal returns the bounds between which the next error falls if it comes from where
// these sorted ones came from, but for a part of the cases at each end, and the
// middle. With n of them that count the same, the bounds are those that are (n+1)·part-th from each end.
func conformal(sorted []weighed, part float64) (low, mid, high float64) {
	all := 0.0
	for _, w := range sorted {
		all += w.weight
	}
	n := float64(len(sorted))
	from := func(at func(i int) int, part float64) float64 {
		below := 0.0
		for i := range sorted {
			below += sorted[at(i)].weight
			if below > part*(1+1e-9) {
				return sorted[at(max(i-1, 0))].err
			}
		}
		return sorted[at(len(sorted)-1)].err
	}
	up := func(i int) int { return i }
	down := func(i int) int { return len(sorted) - 1 - i }
	ends := part * all * (n + 1) / n
	return from(up, ends), (from(up, all/2) + from(down, all/2)) / 2, from(down, ends)
}

// table returns the errors of each method and of the blend.
func (r *rule) table() []Line {
	var lines []Line
	for m := range methods {
		lines = append(lines, r.linesOf(m)...)
	}
	return append(lines, r.lines(MethodBlend, func(i int) (float64, bool) { return r.blends[i], false })...)
}

func (r *rule) linesOf(m int) []Line {
	return r.lines(methods[m].name, func(i int) (float64, bool) { return r.marks[i].logs[m], r.marks[i].blind[m] })
}

// lines returns the errors of one method, over all and by quarter. How wrong it was is
// relative to what was left.
func (r *rule) lines(name string, of func(i int) (err float64, blind bool)) []Line {
	var found [quarters + 1][]float64
	var failed [quarters + 1]int
	for i := range r.marks {
		err, blind := of(i)
		q := r.marks[i].quarter + 1
		switch {
		case blind:
			failed[0]++
			failed[q]++
		case !math.IsNaN(err):
			wrong := math.Abs(math.Exp(-err) - 1)
			found[0], found[q] = append(found[0], wrong), append(found[q], wrong)
		}
	}
	var lines []Line
	for q, errors := range found {
		if len(errors)+failed[q] == 0 {
			continue
		}
		l := Line{Method: name, Quarter: q, Failed: failed[q], Forecast: len(errors) + failed[q]}
		for range failed[q] {
			errors = append(errors, math.Exp(blindLog))
		}
		slices.Sort(errors)
		l.Median, l.P80 = quantile.Linear(errors, 0.5), quantile.Linear(errors, 0.8)
		lines = append(lines, l)
	}
	return lines
}

// apply returns the band around what the blend says is left.
func (b bounds) apply(left float64) job.Band {
	return job.Band{Low: left * math.Exp(b.low), Mid: left * math.Exp(b.mid), High: left * math.Exp(b.high)}
}
