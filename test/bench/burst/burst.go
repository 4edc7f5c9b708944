// Package burst measures when the yard provisions: how much cloud it needs for how short
// completion times, on public workloads that do not fit the yard's own nodes.
//
// The yard's rows are the production path: yardmaster and policy rules in the
// simulator, with offers to provision from, all settings but the value of waiting as they are by default. A labelled
// table has the rule alone, without ageing, patience and nodes that are kept. Beside them stand the published waiting
// rule of Starburst by our rendering of it, a plan by someone who knows the future, and a bound
// that no policy passes. Nothing that runs is moved or stopped. The benchmark prints
// tables and returns the figures by name; it asserts nothing. `make bench-burst` calls
// it. Without the public trace all of it is left out, and said to be.
package burst

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"trainyard/test/bench/target"
	"trainyard/test/bench/together"
)

// Options are those of every benchmark.
type Options = target.Options

// trial is one way to run a window.
type trial struct {
	rule  string
	w     *window
	yard  *yardRun                // ours
	their *published              // theirs
	plan  func() (outcome, error) // neither
	outcome
	slots []slot
}

func (t *trial) run() (err error) {
	switch {
	case t.yard != nil:
		t.outcome, t.slots, err = t.yard.run(t.w)
	case t.their != nil:
		t.outcome = t.their.run(t.w)
	default:
		t.outcome, err = t.plan()
	}

	if err != nil {
		err = fmt.Errorf("%s under %s: %w", t.w.name, t.rule, err)
	}

	return err
}

// Run simulates, prints the tables and returns the figures.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	list, err := load(o.Data)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(w, "left out: %v\n", err)
		return map[string]float64{}, err
	}

	if err != nil {
		return nil, err
	}

	s := newStudy(o.Quick)
	for _, win := range s.windows() {
		if err := win.cut(list); err != nil {
			return nil, err
		}
	}

	s.lay(o.Quick)

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
	// The yard as it is by default, with run times declared, forecast and unknown; the bare yard with declared and
	// learned ones, as it was measured before; and the others.
	standard, forecast, untold, main, blind []*trial
	theirs, unknowing, seer, others         []*trial
	window                                  *window
	other                                   []*window
	worths                                  []float64 // of the bound
	rounds, climbs                          int       // of the clairvoyant, of the bound
	bound                                   *bound
}

func newStudy(quick bool) *study {
	s := &study{
		window: &window{name: "2017-10-09 + 14 d", from: "2017-10-09", to: "2017-10-23", nodes: 32},
		other: []*window{
			{name: "2017-09-25 + 14 d", from: "2017-09-25", to: "2017-10-09", nodes: 33},
			{name: "2017-10-23 + 14 d", from: "2017-10-23", to: "2017-11-06", nodes: 34},
			{name: "2017-11-06 + 14 d", from: "2017-11-06", to: "2017-11-20", nodes: 21},
		},
		worths: boundWorths(), rounds: 40_000, climbs: 700,
	}

	if quick {
		s.window = &window{name: "2017-10-09 + 2 d", from: "2017-10-09", to: "2017-10-11", nodes: 12}
		s.other = []*window{{name: "2017-11-06 + 2 d", from: "2017-11-06", to: "2017-11-08", nodes: 6}}
		s.rounds, s.climbs = 200, 50
	}

	return s
}

func (s *study) windows() []*window { return append([]*window{s.window}, s.other...) }

// lay writes down the trials, the long ones first.
func (s *study) lay(quick bool) {
	for _, w := range s.other {
		for _, worth := range []float64{25, 8, 3, 1} {
			s.others = append(s.others, ours(w, yardRun{worth: worth}))
		}

		s.others = append(s.others, theirs(w, byCost(0.076), true, 30))
	}

	knobs := []float64{1e9, 10_000, 1000, 100, 40, 25, 12, 8, 6, 5, 4.5, 4, 2, 0.5, 0.15}
	if quick {
		knobs = []float64{1e9, 1000, 100, 40, 25, 8, 4, 2, 0.5}
	}

	for _, worth := range knobs {
		s.main = append(s.main, ours(s.window, yardRun{worth: worth, bare: true}))
		s.standard = append(s.standard, ours(s.window, yardRun{worth: worth}))
	}

	s.main = append(s.main, ours(s.window, yardRun{never: true, worth: 4, bare: true}))
	s.standard = append(s.standard, ours(s.window, yardRun{never: true, worth: 4}))

	for _, worth := range []float64{40, 15, 6, 2.5, 1.2, 0.4, 0.1} {
		s.forecast = append(s.forecast, ours(s.window, yardRun{worth: worth, knows: forecast}))
		s.untold = append(s.untold, ours(s.window, yardRun{worth: worth, knows: unknown}))
		s.blind = append(s.blind, ours(s.window, yardRun{worth: worth, knows: learned, bare: true}))
	}

	s.theirs = []*trial{
		theirs(s.window, never, false, -1), theirs(s.window, zero, false, -1), theirs(s.window, constant(1), false, -1),
	}
	for _, k := range []float64{0.01, 0.02, 0.04, 0.076, 0.15, 0.3} {
		s.theirs = append(s.theirs, theirs(s.window, byCost(k), true, 30))
	}

	for _, k := range []float64{0.076, 0.15, 0.3, 0.8} {
		s.theirs = append(s.theirs, theirs(s.window, byCost(k), true, -1))
	}

	for _, k := range []float64{0.2, 0.77, 1.5} {
		s.unknowing = append(s.unknowing, theirs(s.window, byGPUs(k), true, 30))
	}
}

// ours is a run of the yard.
func ours(w *window, y yardRun) *trial {
	rule := fmt.Sprintf("worth %v", y.worth)
	switch {
	case y.never:
		rule = "nothing to provision"
	case y.worth >= 1e9:
		rule = "nobody waits"
	}

	return &trial{rule: rule, w: w, yard: &y}
}

// waiting is a rule for how long jobs wait, by the name it has in the other simulator.
type waiting struct {
	name  string
	hours func(*task) float64
}

var (
	never = waiting{"never", func(*task) float64 { return math.Inf(1) }}
	zero  = waiting{"zero", func(*task) float64 { return 0 }}
)

func constant(k float64) waiting {
	return waiting{fmt.Sprintf("constant-%v", k), func(*task) float64 { return k }}
}

func byCost(k float64) waiting {
	return waiting{fmt.Sprintf("linear_cost-%v", k), func(t *task) float64 { return k * t.cost() }}
}

func byGPUs(k float64) waiting {
	return waiting{fmt.Sprintf("linear_capacity-%v", k), func(t *task) float64 { return k * float64(t.gpus) }}
}

// theirs is a run of the published rule.
func theirs(w *window, wait waiting, loop bool, most int) *trial {
	rule := wait.name
	if loop {
		rule += " + loop"
	}

	if most >= 0 {
		rule += fmt.Sprintf(" + queue %d", most)
	}

	return &trial{rule: rule, w: w, their: &published{wait.hours, loop, most}}
}

// measure runs the trials, so many at once, and then the clairvoyant from what the yard did.
func (s *study) measure(parallel int) error {
	proof := &trial{rule: "bound", w: s.window, plan: func() (outcome, error) {
		s.bound = bounds(s.window, s.worths, s.climbs)
		return outcome{}, nil
	}}

	all := []*trial{proof}
	for _, list := range [][]*trial{s.others, s.main, s.standard, s.forecast, s.untold, s.blind, s.theirs, s.unknowing} {
		all = append(all, list...)
	}

	if err := simulate(all, parallel); err != nil {
		return err
	}

	for _, t := range s.main {
		if t.yard.never || t.yard.worth < 2 || t.yard.worth > 8 {
			continue
		}

		s.seer = append(
			s.seer,
			&trial{rule: fmt.Sprintf("clairvoyant, from worth %v", t.yard.worth), w: s.window, plan: func() (outcome, error) {
				return clairvoyant(s.window, t.slots, t.yard.worth, s.rounds)
			}},
		)
	}

	return simulate(s.seer, parallel)
}

// simulate runs trials, so many at once.
func simulate(list []*trial, parallel int) error {
	return together.Each(len(list), parallel, func(i int) error { return list[i].run() })
}
