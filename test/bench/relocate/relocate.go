// Package relocate measures what it saves to bring running jobs home from provisioned nodes, on the stretches of
// bench-burst.
//
// It is the production path: yardmaster, policy rules and the moves around it in the simulator, in which saves,
// transfers and restores of checkpoints take time and cost money. The moves go by forecasts that are perfect, as wrong
// as ours were measured to be, and twice as wrong. Beside them stand a yard that never moves a job, one that moves jobs
// whenever there is room, and one that knows how long each job still takes and moves whenever that pays. The benchmark
// prints tables and returns the figures by name; it asserts nothing. `make bench-relocate` calls it. Without the public
// trace all of it is left out, and said to be.
package relocate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"trainyard/test/bench/burst"
	"trainyard/test/bench/target"
	"trainyard/test/bench/together"
)

// Run simulates, prints the tables and returns the figures.
func Run(w io.Writer, o target.Options) (map[string]float64, error) {
	s := newStudy(o.Quick)

	for _, part := range s.stretches {
		err := part.load(o.Data)
		if errors.Is(err, fs.ErrNotExist) {
			_, err = fmt.Fprintf(w, "left out: %v\n", err)
			return map[string]float64{}, err
		}

		if err != nil {
			return nil, err
		}
	}

	if err := s.measure(max(o.Parallel, 1)); err != nil {
		return nil, err
	}
	if err := s.print(w); err != nil {
		return nil, err
	}

	return s.figures(), nil
}

// study is all that is measured.
type study struct {
	stretches []*stretch // the first is that of bench-burst
	rows      []*trial   // of all stretches, at one value of waiting
	curve     []*trial   // of the first, at several
	climbs    int        // of the bound
	bound     float64    // of the cloud for the first, at the mean of the point of comparison
}

// worth is the value of an hour of waiting at which all ways are compared: that at which bench-burst, without moves,
// comes to about the mean completion of the point of comparison.
const worth = 5

func newStudy(quick bool) *study {
	s := &study{stretches: []*stretch{
		{name: "2017-10-09 + 14 d", from: "2017-10-09", to: "2017-10-23", nodes: 32},
		{name: "2017-09-25 + 14 d", from: "2017-09-25", to: "2017-10-09", nodes: 33},
		{name: "2017-10-23 + 14 d", from: "2017-10-23", to: "2017-11-06", nodes: 34},
	}, climbs: 700}
	worths := []float64{12, 8, 6, 5.5, 4, 2}

	if quick {
		s.stretches = []*stretch{
			{name: "2017-10-09 + 2 d", from: "2017-10-09", to: "2017-10-11", nodes: 12},
			{name: "2017-11-06 + 2 d", from: "2017-11-06", to: "2017-11-08", nodes: 6},
		}
		worths = []float64{8}
		s.climbs = 50
	}

	for _, part := range s.stretches {
		add := func(m mover, f forecasts) {
			s.rows = append(s.rows, &trial{stretch: part, worth: worth, bare: true, mover: m, errors: f})
		}

		add(always, ours)
		add(pays, perfect)
		add(moves, perfect)
		add(moves, ours)
		add(moves, worse)
		add(stays, perfect)
	}

	for _, v := range worths {
		s.curve = append(s.curve, &trial{stretch: s.stretches[0], worth: v, bare: true, mover: moves, errors: ours})
	}

	return s
}

// measure runs the trials, so many at once.
func (s *study) measure(parallel int) error {
	all := append(append([]*trial(nil), s.rows...), s.curve...)

	if err := together.Each(len(all), parallel, func(i int) error { return all[i].run() }); err != nil {
		return err
	}

	first := s.stretches[0]
	s.bound = burst.LeastCloud(first.jobs, first.nodes, burst.ComparedMean, s.climbs)

	for _, t := range s.rows {
		t.compare(s.row(t.stretch, stays, perfect))
	}

	return nil
}

// row returns the trial of a stretch.
func (s *study) row(part *stretch, m mover, f forecasts) *trial {
	for _, t := range s.rows {
		if t.stretch == part && t.mover == m && (t.errors == f || m == stays || m == always || m == pays) {
			return t
		}
	}

	return nil
}

// total is what a way comes to over all stretches.
type total struct {
	saved, savedWithTime       float64 // dollars
	jobs, moved, useless, late int
	later, earlier             int // jobs, than if none is moved
}

// totals adds up, over all stretches, what a way saves and how its moves went.
func (s *study) totals(m mover, f forecasts) total {
	var sum total
	for _, part := range s.stretches {
		t, never := s.row(part, m, f), s.row(part, stays, perfect)
		sum.saved += never.money() - t.money()
		sum.savedWithTime += t.savedWithTime(never)
		sum.jobs += len(part.jobs)
		sum.moved += t.moved
		sum.useless += t.useless
		sum.late += t.late
		sum.later += t.later
		sum.earlier += t.earlier
	}

	return sum
}

// frontier lists what the first stretch comes to with our forecasts.
func (s *study) frontier() []burst.Point {
	list := []burst.Point{s.row(s.stretches[0], moves, ours).point()}
	for _, t := range s.curve {
		list = append(list, t.point())
	}

	return list
}
