package whatif_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"sync"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/sim/whatif"
)

func source(t *testing.T, name, text string) whatif.Source {
	t.Helper()
	s, err := scenario.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}

	return whatif.Source{Name: s.Name, Jobs: s.Total(), Seed: s.Seed, Config: s.Config, Run: s.Simulate}
}

func fifo() whatif.Policy {
	return whatif.Policy{Name: "fifo", New: func() place.Policy { return ordered.FIFO{} }}
}

// other is FIFO under another name.
type other struct{ ordered.FIFO }

func (other) Name() string { return "other" }

func matrix(t *testing.T) whatif.Matrix {
	t.Helper()
	const world = "seed %d\nnode a,b 4x V100\nworkload poisson jobs 60 every 12m gpus 1,2,4 median 30m\n"

	return whatif.Matrix{
		Sources:  []whatif.Source{source(t, "one", fmt.Sprintf(world, 7)), source(t, "two", fmt.Sprintf(world, 30))},
		Policies: []whatif.Policy{fifo(), {Name: "other", New: func() place.Policy { return other{} }}},
		Loads:    []float64{0.5, 2}, Seeds: 3, Parallel: 1,
	}
}

func TestResultsComeInTheOrderOfTheMatrixWhateverTheCores(t *testing.T) {
	t.Parallel()
	var first string

	for _, parallel := range []int{1, 3, 16} {
		m := matrix(t)
		m.Parallel = parallel
		cells, err := whatif.Run(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}

		text := ""
		for _, c := range cells {
			text += fmt.Sprintf("%s %v %v %v\n", c, c.Result.Completion, c.Result.Makespan, c.Result.Policy)
		}

		if first == "" {
			first = text
		}

		if text != first {
			t.Fatalf("with %d at once:\n%s\nwith one:\n%s", parallel, text, first)
		}

		if len(cells) != 24 || cells[0].String() != "one with fifo at load 0.5, seed 7" || cells[3].Policy != "other" ||
			cells[6].Load != 2 ||
			cells[23].Seed != 32 {
			t.Fatalf("not by source, load, policy and seed:\n%s", text)
		}
	}
}

func TestEachSimulationHasItsOwnLog(t *testing.T) {
	t.Parallel()
	m := matrix(t)
	m.Parallel = 4
	var mu sync.Mutex
	logs := map[string]*bytes.Buffer{}
	m.Log = func(c whatif.Cell) (io.WriteCloser, error) {
		mu.Lock()
		defer mu.Unlock()

		b := &bytes.Buffer{}
		logs[c.String()] = b

		return closer{b}, nil
	}

	if _, err := whatif.Run(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	if len(logs) != 24 ||
		!bytes.Equal(logs["one with fifo at load 2, seed 8"].Bytes(), logs["one with other at load 2, seed 8"].Bytes()) ||
		bytes.Equal(logs["one with fifo at load 2, seed 8"].Bytes(), logs["one with fifo at load 2, seed 9"].Bytes()) {
		t.Error("a log is of one simulation alone")
	}
}

type closer struct{ *bytes.Buffer }

func (closer) Close() error { return nil }

// ticks is a clock that goes on by a second with every look.
type ticks struct {
	mu sync.Mutex
	at time.Time
}

func (c *ticks) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.at = c.at.Add(time.Second)

	return c.at
}

func TestProgressTellsWhatIsDoneAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	m := matrix(t)
	m.Parallel, m.Clock = 2, &ticks{}
	var told []whatif.Progress
	m.Progress = func(p whatif.Progress) { told = append(told, p) }
	if _, err := whatif.Run(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	last := told[len(told)-1]
	if last.Done != 24*60 || last.Jobs != 24*60 || last.Cells != 24 || last.Total != 24 || last.Remaining != 0 {
		t.Errorf("at the end: %+v", last)
	}

	for i, p := range told[1:] {
		if p.Done < told[i].Done || p.Cells < told[i].Cells {
			t.Fatalf("it went back from %+v to %+v", told[i], p)
		}

		if p.Done < p.Jobs && p.Rate > 0 && math.Abs(p.Remaining.Seconds()-float64(p.Jobs-p.Done)/p.Rate) > 1 {
			t.Fatalf("what is left does not follow from the rate: %+v", p)
		}
	}
}

func TestAFailureEndsAllAndSaysWhoseItWas(t *testing.T) {
	t.Parallel()
	m := matrix(t)
	m.Parallel = 4
	broken := errors.New("it broke")
	m.Sources[1].Config = func(float64, uint64) (sim.Config, error) {
		return sim.Config{Jobs: failing{broken}, Nodes: []fleet.Node{}}, nil
	}
	_, err := whatif.Run(t.Context(), m)

	// Several run at once, and whoever breaks first ends all.
	if !errors.Is(err, broken) ||
		!regexp.MustCompile(`^simulate two with \w+ at load [0-9.]+, seed \d+: it broke$`).MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Next() (*sim.Job, error) { return nil, f.err }

func TestGivingUpReturnsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m := matrix(t)
	m.Clock = &ticks{}
	m.Progress = func(whatif.Progress) { cancel() }
	if _, err := whatif.Run(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was given up", err)
	}
}

func TestTheIntervalIsStudents(t *testing.T) {
	t.Parallel()
	var cells []whatif.Cell
	for i, v := range []float64{10, 12, 14, 16} {
		cells = append(
			cells,
			whatif.Cell{
				Source: "s",
				Policy: "p",
				Load:   1,
				Seed:   uint64(i),
				Result: &sim.Result{Completion: sim.Summary{Mean: v}, Makespan: time.Hour},
			},
		)
	}

	cells = append(
		cells,
		whatif.Cell{Source: "s", Policy: "q", Load: 1, Result: &sim.Result{Completion: sim.Summary{Mean: 5}}},
	)

	rows := whatif.Summarise(cells)
	if len(rows) != 2 || rows[0].Seeds != 4 || rows[1].Seeds != 1 {
		t.Fatalf("%+v", rows)
	}

	for i, m := range whatif.Measures() {
		e := rows[0].Estimates[i]

		switch m.Key {
		case "completion_mean_s":
			// Deviation 2.582, of four values: 3.182 × 2.582 / 2.
			if e.Mean != 13 || math.Abs(e.Half-4.108) > 0.001 {
				t.Errorf("got %v ± %v, want 13 ± 4.108", e.Mean, e.Half)
			}

			if one := rows[1].Estimates[i]; one.Mean != 5 || one.Half != 0 {
				t.Errorf("one seed gives %v ± %v", one.Mean, one.Half)
			}
		case "makespan_s":
			if e.Mean != 3600 || e.Half != 0 {
				t.Errorf("the same value each time gives %v ± %v", e.Mean, e.Half)
			}
		}
	}
}
