package fidelity

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/test/yardtest"
)

// probes are what the probe may say on slow and on fast machines.
var probes = []probe{
	{
		overhead: 40 * time.Millisecond, startup: 50 * time.Millisecond, stepsRate: pace,
		boot:   3050 * time.Millisecond,
		resume: 30 * time.Millisecond, save: 100 * time.Millisecond, restore: 20 * time.Millisecond, suspends: true,
	},
	{
		overhead: 100 * time.Millisecond, startup: 200 * time.Millisecond, stepsRate: pace,
		boot:   3150 * time.Millisecond,
		resume: 60 * time.Millisecond, save: 250 * time.Millisecond, restore: 60 * time.Millisecond,
	},
	{
		overhead: 160 * time.Millisecond, startup: 400 * time.Millisecond, stepsRate: pace,
		boot:   3100 * time.Millisecond,
		resume: 100 * time.Millisecond, save: 400 * time.Millisecond, restore: 100 * time.Millisecond,
	},
}

func TestEveryStreamRunsInTheSimulator(t *testing.T) {
	t.Parallel()

	for _, s := range streams(false) {
		for _, text := range s.policies {
			policy, err := catalogue.All(nil).Make(text)
			if err != nil {
				t.Fatal(err)
			}

			o, err := simulate(policy, &s, &probes[1])
			if err != nil {
				t.Fatalf("%s under %s: %v", s.name, text, err)
			}

			can, err := simulate(policy, &s, &probes[0])
			if err != nil {
				t.Fatalf("%s under %s: %v", s.name, text, err)
			}
			if text == preempting && (o.suspended > 0 || can.suspended == 0) {
				t.Errorf("%s under %s: %d suspensions where nodes cannot suspend jobs, %d where they can",
					s.name, text, o.suspended, can.suspended)
			}

			if o.cost <= 0 || o.energyCost <= 0 || o.completion <= 0 || o.p95 < o.completion || o.makespan < o.p95 {
				t.Errorf("%s under %s: %+v", s.name, text, *o)
			}

			if (o.nodes > 0) != s.cloud {
				t.Errorf("%s under %s: %d nodes provisioned", s.name, text, o.nodes)
			}

			// Without checkpoints nothing may move: a moved job would begin anew on a real yard.
			if o.stops > 0 && !s.saves || o.seen()+o.suspended == 0 && s.saves {
				t.Errorf("%s under %s: %d runs were stopped, %d jobs moved or resized", s.name, text, o.stops, o.seen())
			}
		}
	}
}

// build builds the binary into a folder for real yards.
func build(t *testing.T) (binary, folder string) {
	t.Helper()

	folder, err := yardtest.NewFolder("fidelity-test-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := errors.Join(yardtest.KillAll(folder), os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})

	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		t.Fatal(err)
	}

	return filepath.Join(folder, "trainyard"), folder
}

func TestALiveStreamIsMeasured(t *testing.T) {
	t.Parallel()

	binary, folder := build(t)

	s := &stream{name: "two", machines: []machine{{"v100-1", "1xV100:16GB"}}, tasks: []task{
		{name: "first", gpus: 1, work: 0.5, objective: job.ObjectiveTime, place: job.PlaceAny, deadline: time.Hour},
		{name: "second", gpus: 1, work: 0.5, objective: job.ObjectiveTime, place: job.PlaceAny},
	}}

	o, err := runLive(t.Context(), binary, folder, "fifo", s, &probes[1])
	if err != nil {
		t.Fatal(err)
	}

	// One after the other on the one GPU: however slow the machine is, both take at least their work.
	if o.makespan < 1 || o.completion < 0.75 || o.lateness != 0 || o.cost <= 0 || o.stops != 0 {
		t.Errorf("measured %+v", *o)
	}
}

func TestTheProbeMovesAJob(t *testing.T) {
	t.Parallel()

	s := &stream{name: "probe", machines: trainingNodes(2), saves: true}
	binary, folder := build(t)

	l, err := open(t.Context(), binary, folder, "fifo", s, &probes[1])
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})

	// It fails unless the job runs on the other node after that.
	save, restore, err := l.move(t.Context(), s, &probes[1], task{name: "save", work: 10})
	if err != nil || save <= 0 || restore < 0 {
		t.Fatalf("stopped within %s, continued after %s more than a start takes: %v", save, restore, err)
	}

	saved, err := l.client.Checkpoints(t.Context(), "j1", true)
	if err != nil {
		t.Fatal(err)
	}

	steps := map[id.Run][]int64{}
	for _, c := range saved.Checkpoints {
		steps[c.Run] = append(steps[c.Run], *c.Step)
	}

	first, second := steps["j1.1"], steps["j1.2"]
	if len(first) == 0 || len(second) == 0 || slices.Min(second) <= slices.Max(first) {
		t.Errorf("the steps of its first run are %v, of its second %v: it has not continued", first, second)
	}
}

func TestMovesAreCounted(t *testing.T) {
	t.Parallel()

	on := func(node id.Node, gpus ...int) api.Run { return api.Run{Ranks: []api.Rank{{Node: node, GPUs: gpus}}} }
	got := movementOf([]api.Run{on("a", 0), on("a", 0), on("a", 0, 1), on("b", 0, 1), on("b", 0, 2), on("b", 2)})

	if want := (movement{moves: 2, resizes: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestStreamsAreChosenByName(t *testing.T) {
	t.Parallel()

	list, err := chosen(streams(false), "home,steady")
	if err != nil || len(list) != 2 || list[0].name != "home" || list[1].name != "steady" {
		t.Errorf("%d streams chosen, %v", len(list), err)
	}

	if _, err := chosen(streams(false), "home,away"); err == nil || !strings.Contains(err.Error(), `"away" not found`) {
		t.Errorf("an unknown stream: %v", err)
	}
}

func TestFiguresOfMovesAreTheirOwn(t *testing.T) {
	t.Parallel()

	cells := []cell{
		{
			stream: &stream{name: "steady", tasks: make([]task, 2)}, policy: "fifo",
			live: &outcome{cost: 2, completion: 10}, simulated: &outcome{cost: 2, completion: 10.1},
		},
		{
			stream: &stream{name: "home", saves: true, tasks: make([]task, 2)}, policy: "fifo",
			live:      &outcome{cost: 2, completion: 10, stops: 3, movement: movement{moves: 2, resizes: 1}},
			simulated: &outcome{cost: 2.2, completion: 9.5, stops: 1, movement: movement{moves: 1}},
		},
	}

	figures, err := report(io.Discard, cells)
	if err != nil {
		t.Fatal(err)
	}

	for key, want := range map[string]float64{
		"worst_cost_dev_pct": 0, "worst_completion_dev_pct": 1, "worst_moves_cost_dev_pct": 10,
		"worst_moves_completion_dev_pct": 5, "moves_seen": 3, "home_fifo_moves": 3, "home_fifo_stops": 3,
	} {
		if got := figures[key]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s is %g, want %g", key, got, want)
		}
	}

	if err := unmoved(cells); err != nil {
		t.Errorf("refused: %v", err)
	}

	cells[1].live.movement = movement{}
	if err := unmoved(cells); err == nil || !strings.Contains(err.Error(), "in home under fifo") {
		t.Errorf("figures of a stream in which nothing moved: %v", err)
	}
}

func TestDeviationsAreOfWhatReallyHappened(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer

	figures, err := report(&b, []cell{
		{
			stream: &stream{name: "steady", tasks: make([]task, 20)}, policy: "fifo",
			live: &outcome{cost: 2, completion: 10, p95: 20}, simulated: &outcome{cost: 1.9, completion: 10.2, p95: 21},
		},
		{
			stream: &stream{name: "bursts", tasks: make([]task, 20)}, policy: "fifo",
			live: &outcome{cost: 1, completion: 10, lateness: 40}, simulated: &outcome{cost: 1.02, completion: 10, lateness: 30},
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	for key, want := range map[string]float64{
		"worst_cost_dev_pct": 5, "worst_completion_dev_pct": 2, "worst_p95_dev_pct": 5, "worst_lateness_dev_pct": 25,
		"steady_fifo_cost_dev_pct": -5,
	} {
		if got := figures[key]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s is %g, want %g", key, got, want)
		}
	}

	if !strings.Contains(b.String(), "worst: cost 5.0 %") {
		t.Errorf("printed:\n%s", &b)
	}
}

// Two runs of the same stream on real processes differ by fractions of a second. If that decided the outcome, a
// comparison with the simulator would be one of chances.
func TestNoStreamHangsOnAFractionOfASecond(t *testing.T) {
	t.Parallel()

	for _, s := range streams(false) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()

			for _, text := range s.policies {
				policy, err := catalogue.All(nil).Make(text)
				if err != nil {
					t.Fatal(err)
				}

				for i := range probes {
					got, err := spreadOf(policy, &s, &probes[i])
					if err != nil {
						t.Fatal(err)
					}

					if got.cost > maxSpread || got.completion > maxSpread {
						t.Errorf("%s, probe %d: cost within %.1f %%, mean completion within %.1f %%, want %g %%",
							text, i, got.cost, got.completion, maxSpread)
					}
				}
			}
		})
	}
}

// maxSpread is how far the outcome of a stream may change by chance, in percent: well below the 5 % that are aimed at.
const maxSpread = 2.0

func TestOthersWorkIsWhatTheBenchmarkDidNotDo(t *testing.T) {
	t.Parallel()

	from, err := parseProcessorTimes("cpu  100 10 50 1000 5 1 2 3 0 0\ncpu0 1 2 3\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (processorTimes{busy: 163, steal: 3, total: 1171}); from != want {
		t.Errorf("read %+v, want %+v", from, want)
	}

	var a account
	worker, later := process{pid: 7, start: 1}, process{pid: 7, start: 9}
	a.seen = map[process]uint64{worker: 50}
	a.look(map[process]uint64{worker: 60})
	a.look(map[process]uint64{later: 5}) // another process with the number of one that has ended
	a.look(map[process]uint64{later: 25})

	to := processorTimes{busy: from.busy + 65, steal: from.steal + 10, total: from.total + 500}

	// 35 of the 65 ticks are the benchmark's own: 10 of the first process, 25 of the other.
	d := a.since("steady", from, to)
	if d.others != 30.0/500 || d.steal != 10.0/500 {
		t.Errorf("measured %+v", d)
	}
}

func TestAProcessIsReadWhateverItsName(t *testing.T) {
	t.Parallel()

	p, ticks, err := parseProcess(7, "7 (a) (b c) S 1 7 7 0 -1 4194560 1 2 3 4 30 12 9 9 20 0 1 0 4711 1000 100")
	if err != nil || p != (process{7, 4711}) || ticks != 42 {
		t.Errorf("read %+v with %d ticks, %v; want start 4711 and 42 ticks", p, ticks, err)
	}

	if _, _, err := parseProcess(7, "7"); err == nil {
		t.Error("a line without figures was read")
	}
}

func TestFiguresOfABusyMachineAreRefused(t *testing.T) {
	t.Parallel()

	quiet := disturbance{stretch: "probe", others: 0.2, steal: 0.01}
	for _, c := range []struct {
		name     string
		all      []disturbance
		slowdown float64
		drifts   []float64
		reason   string // "" if the figures may be quoted
	}{
		{"quiet", []disturbance{quiet, quiet}, 0.01, []float64{0.01, -0.02}, ""},
		{"other work", []disturbance{quiet, {stretch: "training", others: 0.3}}, 0, nil, "training: other work 30.0 %"},
		{"the host", []disturbance{quiet, {stretch: "training", steal: 0.3}}, 0, nil, "steal 30.0 %"},
		{"both together", []disturbance{{stretch: "probe", others: 0.13, steal: 0.14}}, 0, nil, "probe: other work 13.0 %"},
		{"another speed", []disturbance{quiet}, 0, []float64{0, -0.1}, "-10.0 %"},
		{"too slow for the pace", []disturbance{quiet}, 0.2, nil, "+20.0 % longer"},
	} {
		err := refusal(c.all, c.slowdown, c.drifts)
		if (err != nil) != (c.reason != "") || err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want %q", c.name, err, c.reason)
		}
	}
}

func TestAWatchedStretchFailsAsItWould(t *testing.T) {
	t.Parallel()

	w := &watcher{folder: t.TempDir(), foreign: map[int]bool{}}
	own, err := w.ours()
	if err != nil || len(own) != 1 {
		t.Errorf("%d processes belong to a folder that nobody uses, want this one alone; %v", len(own), err)
	}

	broken := errors.New("broken")
	if _, err := watched(t.Context(), w.folder, "test", func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want that of the stretch", err)
	}

	d, err := watched(t.Context(), w.folder, "test", func() error { return nil })
	if err != nil || d.stretch != "test" || d.others < 0 || d.others > 1 || d.steal < 0 || d.steal > 1 {
		t.Errorf("measured %+v, %v", d, err)
	}
}

// Of several attempts the calmest counts, and one in which the machine kept its speed before any in which it did not.
func TestTheCalmestAttemptCounts(t *testing.T) {
	t.Parallel()

	try := func(steal, drift float64) attempt {
		return attempt{drift: drift, disturbance: disturbance{steal: steal}}
	}

	got := slices.MinFunc([]attempt{try(0.3, 0), try(0.12, 0.01), try(0.01, 2*maxDrift), try(0.2, 0)}, calmer)
	if got.taken() != 0.12 {
		t.Errorf("the attempt with %v of the processors taken counts, want that with 0.12", got.taken())
	}
}
