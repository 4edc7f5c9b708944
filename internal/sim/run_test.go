package sim_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
)

// list is a workload in memory.
type list struct {
	jobs []*sim.Job
	at   int
}

func (l *list) Next() (*sim.Job, error) {
	if l.at == len(l.jobs) {
		return nil, io.EOF
	}

	l.at++

	return l.jobs[l.at-1], nil
}

// happenings are changes of nodes in memory.
type happenings struct {
	list []sim.Change
	at   int
}

func (h *happenings) Next() (sim.Change, error) {
	if h.at == len(h.list) {
		return sim.Change{}, io.EOF
	}

	h.at++

	return h.list[h.at-1], nil
}

func box(name string, gpus int) fleet.Node {
	n := fleet.Node{ID: id.Node(name), Class: fleet.Local, Inventory: fleet.Inventory{CPUs: 1 << 30, Memory: 1 << 50}}
	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "V100", Memory: 16 << 30})
	}

	return n
}

// lasting is a job that only lasts.
func lasting(at, lasts time.Duration, gpus int) *sim.Job {
	return &sim.Job{At: at, Duration: lasts, Spec: &job.Spec{
		Run: "simulated", Place: job.PlaceAny, Resources: job.Resources{GPUs: job.Range{Min: gpus, Max: gpus}},
		Checkpoint: &job.Checkpoint{Dir: "c"},
	}}
}

// working is a job of 1,000 units that does so many a second on each GPU.
func working(at time.Duration, work, perGPU float64, start, save time.Duration) *sim.Job {
	rates := []job.Rate{}
	for n := 1; n <= 8; n++ {
		rates = append(rates, job.Rate{GPUs: n, PerSecond: perGPU * float64(n)})
	}

	return &sim.Job{At: at, Spec: &job.Spec{
		Run:       "simulated",
		Place:     job.PlaceAny,
		Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 8}},
		Checkpoint: &job.Checkpoint{
			Dir:   "c",
			Every: job.Duration(10 * time.Second),
		},
		Speed: job.NewSpeed(work, start, save, rates...),
	}}
}

func run(t *testing.T, cfg sim.Config) *sim.Result {
	t.Helper()
	r, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return r
}

func TestJobsTakeTurnsOnOneNode(t *testing.T) {
	t.Parallel()
	var ends []time.Duration
	r := run(t, sim.Config{
		Policy: ordered.FIFO{},
		Nodes:  []fleet.Node{box("a", 2)},
		Jobs: &list{
			jobs: []*sim.Job{
				lasting(0, 100*time.Second, 2),
				lasting(10*time.Second, 50*time.Second, 1),
				lasting(20*time.Second, 70*time.Second, 1),
			},
		},
		OnEnd: func(o *sim.Outcome) { ends = append(ends, o.Ended) },
	})

	if want := []time.Duration{100 * time.Second, 150 * time.Second, 170 * time.Second}; !slices.Equal(ends, want) {
		t.Errorf("jobs ended at %v, want %v", ends, want)
	}

	if want := (100.0 + 140 + 150) / 3; math.Abs(r.Completion.Mean-want) > 1e-9 || r.Succeeded != 3 ||
		r.Makespan != 170*time.Second {
		t.Errorf("mean completion %v, want %v; %d succeeded, makespan %v", r.Completion.Mean, want, r.Succeeded, r.Makespan)
	}

	if want := (200.0 + 50 + 70) / 340; math.Abs(r.Utilisation-want) > 1e-9 {
		t.Errorf("utilisation %v, want %v", r.Utilisation, want)
	}
}

func TestSpeedDecidesHowLongAJobTakes(t *testing.T) {
	t.Parallel()
	var end time.Duration
	run(t, sim.Config{
		Policy: ordered.FIFO{}, Nodes: []fleet.Node{box("a", 4)},
		Jobs:  &list{jobs: []*sim.Job{working(0, 1000, 2, 30*time.Second, 0)}}, // takes all four GPUs: 8 a second
		OnEnd: func(o *sim.Outcome) { end = o.Ended },
	})

	if want := 155 * time.Second; end != want {
		t.Errorf("ended at %v, want %v: 30 s of start and 1,000 units at 8 a second", end, want)
	}
}

// shifter starts every job on one GPU of the first node, and at a set time moves it to another node.
type shifter struct {
	to id.Node
	at time.Time
}

func (shifter) Name() string  { return "shifter" }
func (shifter) Revises() bool { return true }

func (p shifter) Plan(v *place.View) place.Plan {
	plan := place.Plan{WakeAt: p.at}
	for _, it := range v.Queue.Items() {
		plan.Starts = append(
			plan.Starts,
			place.Start{Item: it, Allocations: []place.Allocation{{Node: v.Rooms[0].Node.ID, GPUs: 1}}, Reason: "first"},
		)
	}

	if v.Now.Before(p.at) {
		return plan
	}

	plan.WakeAt = time.Time{}
	for _, r := range v.Running {
		if r.Allocations[0].Node != p.to && !r.Stopping {
			plan.Stops = append(plan.Stops, place.Stop{Running: r, Reason: "moves"})
			plan.Starts = append(
				plan.Starts,
				place.Start{Item: r.Item, Allocations: []place.Allocation{{Node: p.to, GPUs: 3}}, Reason: "twice as fast there"},
			)
		}
	}

	return plan
}

func TestAMovedJobPaysForSavingAndStartingAndLosesNothing(t *testing.T) {
	t.Parallel()
	var out sim.Outcome
	r := run(t, sim.Config{
		Policy: shifter{to: "b", at: sim.Epoch().Add(110 * time.Second)}, Nodes: []fleet.Node{box("a", 1), box("b", 2)},
		Jobs:  &list{jobs: []*sim.Job{working(0, 1000, 2, 10*time.Second, 5*time.Second)}},
		OnEnd: func(o *sim.Outcome) { out = *o },
	})

	// 10 s start, 100 s at 2 a second = 200 units; 5 s save; 10 s start; 800 units at 4 a second = 200 s.
	if want := 325 * time.Second; out.Ended != want || out.Runs != 2 || out.Stops != 1 || r.Rescales != 1 {
		t.Errorf(
			"ended at %v after %d runs, %d stops and %d rescales; want %v after 2 runs, 1 stop, 1 rescale",
			out.Ended,
			out.Runs,
			out.Stops,
			r.Rescales,
			want,
		)
	}
}

func TestANodeThatIsTakenCostsTheWorkSinceTheLastCheckpoint(t *testing.T) {
	t.Parallel()
	var out sim.Outcome
	r := run(t, sim.Config{
		Policy: ordered.FIFO{},
		Nodes:  []fleet.Node{box("a", 1)},
		Jobs:   &list{jobs: []*sim.Job{working(0, 1000, 10, 0, 0)}},
		Changes: &happenings{
			list: []sim.Change{
				{At: 27 * time.Second, Kind: sim.NodeReclaimed, ID: "a"},
				{At: 100 * time.Second, Kind: sim.NodeUncordoned, ID: "a"},
			},
		},
		OnEnd: func(o *sim.Outcome) { out = *o },
	})

	// 200 units are saved at 20 s; the other 800 take 80 s from 100 s on.
	if want := 180 * time.Second; out.Ended != want || math.Abs(r.LostWork-70) > 1e-6 {
		t.Errorf("ended at %v with %v units lost, want %v and 70", out.Ended, r.LostWork, want)
	}
}

func TestACheckpointThatStaysOnItsNodeIsFoundThereAlone(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		stay bool
		back bool // node a comes back, and b is taken after that
		want time.Duration
		lost float64
	}{
		// 200 of 1000 units, ten a second, are saved when a is taken at 27 s.
		"it travels":      {false, false, 107 * time.Second, 70},
		"it stays":        {true, false, 127 * time.Second, 270},
		"and back":        {false, true, 112 * time.Second, 70 + 50},
		"it stays, found": {true, true, 142 * time.Second, 270 + 50 + 100},
	} {
		changes := []sim.Change{{At: 27 * time.Second, Kind: sim.NodeReclaimed, ID: "a"}}
		if c.back {
			changes = append(changes,
				sim.Change{At: 50 * time.Second, Kind: sim.NodeUncordoned, ID: "a"},
				sim.Change{At: 62 * time.Second, Kind: sim.NodeReclaimed, ID: "b"},
			)
		}

		var out sim.Outcome
		r := run(t, sim.Config{
			Policy: ordered.FIFO{}, Nodes: []fleet.Node{box("a", 1), box("b", 1)}, CheckpointsStay: c.stay,
			Jobs: &list{jobs: []*sim.Job{working(0, 1000, 10, 0, 0)}}, Changes: &happenings{list: changes},
			OnEnd: func(o *sim.Outcome) { out = *o },
		})

		if out.Ended != c.want || math.Abs(r.LostWork-c.lost) > 1e-6 || math.Abs(r.Work-1000) > 1e-6 {
			t.Errorf(
				"%s: ended at %v with %v units lost of %v, want %v and %v", name, out.Ended, r.LostWork, r.Work, c.want, c.lost,
			)
		}
	}
}

func TestADeadNodeIsNoticedLaterAndItsJobGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	var out sim.Outcome
	run(t, sim.Config{
		Policy: ordered.FIFO{}, Nodes: []fleet.Node{box("a", 1), box("b", 1)}, Detect: time.Minute,
		Jobs:    &list{jobs: []*sim.Job{working(0, 1000, 10, 0, 0)}},
		Changes: &happenings{list: []sim.Change{{At: 27 * time.Second, Kind: sim.NodeFails, ID: "a"}}},
		OnEnd:   func(o *sim.Outcome) { out = *o },
	})

	// Given up at 87 s, tried again after 5 s of back-off with 200 units saved.
	if want := 172 * time.Second; out.Ended != want || out.State != job.Succeeded {
		t.Errorf("%s at %v, want it to succeed at %v", out.State, out.Ended, want)
	}
}

func TestEnergyIsPaidByThoseWhoUseTheNode(t *testing.T) {
	t.Parallel()
	costs := map[id.Job]money.Amount{}
	r := run(t, sim.Config{
		Policy: ordered.FIFO{},
		Nodes:  []fleet.Node{box("a", 2)},
		Tariff: &fleet.Tariff{Energy: 0.5, PUE: 2, Nodes: []fleet.NodePrice{{GPU: "V100", Watts: []float64{100, 400, 600}}}},
		Jobs: &list{
			jobs: []*sim.Job{lasting(0, 2*time.Hour, 1), lasting(time.Hour, time.Hour, 1), lasting(3*time.Hour, time.Hour, 1)},
		},
		OnEnd: func(o *sim.Outcome) { costs[o.ID] = o.Cost },
	})

	// One GPU: 400 W × 2 × 0.5 = 0.4 an hour. Two: 0.6 an hour, half for each. Unused: 0.1 an hour.
	want := map[id.Job]money.Amount{"j1": 0.7, "j2": 0.3, "j3": 0.4}
	for j, c := range want {
		if math.Abs(float64(costs[j]-c)) > 1e-9 {
			t.Errorf("job %s cost %v, want %v", j, costs[j], c)
		}
	}

	if math.Abs(r.Money-1.4) > 1e-9 || math.Abs(r.IdleMoney-0.1) > 1e-9 || math.Abs(r.Energy-2.8) > 1e-9 {
		t.Errorf("money %v, idle %v, energy %v; want 1.4, 0.1 and 2.8 kWh", r.Money, r.IdleMoney, r.Energy)
	}
}

// mixed is a workload in which much happens.
func mixed(n int) *list {
	l := &list{}
	for i := range n {
		at := time.Duration(i*i%97+i*11) * time.Second
		if i%3 == 0 {
			l.jobs = append(l.jobs, working(at, float64(200+i*37%900), 1+float64(i%4), 7*time.Second, 3*time.Second))
		} else {
			l.jobs = append(l.jobs, lasting(at, time.Duration(20+i*53%400)*time.Second, 1+i%4))
		}
	}

	slices.SortStableFunc(l.jobs, func(a, b *sim.Job) int { return int(a.At - b.At) })

	return l
}

func mixedConfig(log io.Writer) sim.Config {
	return sim.Config{
		Policy: ordered.FIFO{},
		Nodes:  []fleet.Node{box("a", 4), box("b", 8), box("c", 2)},
		Jobs:   mixed(300),
		Log:    log,
		Detect: time.Minute,
		Changes: &happenings{list: []sim.Change{
			{At: 5 * time.Minute, Kind: sim.NodeReclaimed, ID: "b"}, {At: 9 * time.Minute, Kind: sim.NodeUncordoned, ID: "b"},
			{At: 20 * time.Minute, Kind: sim.NodeFails, ID: "a"}, {At: 40 * time.Minute, Kind: sim.NodeHeals, ID: "a"},
		}},
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	var first bytes.Buffer
	run(t, mixedConfig(&first))

	if first.Len() == 0 {
		t.Fatal("nothing was decided")
	}

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	for _, procs := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(procs)

		for range 17 {
			var again bytes.Buffer
			run(t, mixedConfig(&again))

			if !bytes.Equal(first.Bytes(), again.Bytes()) {
				t.Fatalf("with GOMAXPROCS=%d two runs differ", procs)
			}
		}
	}
}

func BenchmarkFIFO(b *testing.B) {
	jobs := 20000
	l := &list{}
	for i := range jobs {
		l.jobs = append(l.jobs, lasting(time.Duration(i)*10*time.Second, time.Duration(100+i*7919%3000)*time.Second, 1+i%3))
	}

	var nodes []fleet.Node
	for i := range 100 {
		nodes = append(nodes, box(fmt.Sprintf("n%03d", i), 8))
	}

	b.ReportAllocs()

	for range b.N {
		l.at = 0
		r, err := sim.Run(sim.Config{Policy: ordered.FIFO{}, Nodes: nodes, Jobs: l})
		if err != nil || r.Succeeded != jobs {
			b.Fatal(err, r)
		}
	}

	b.ReportMetric(float64(jobs*b.N)/b.Elapsed().Seconds(), "jobs/s")
}
