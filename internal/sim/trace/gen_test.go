package trace_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// near fails if a measured value is further from the wanted one than a share of it.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()

	if math.Abs(got-want) > share*math.Abs(want) {
		t.Errorf("%s is %.4g, want %.4g within %.0f %%", what, got, want, 100*share)
	}
}

func collect(t *testing.T, jobs sim.Jobs, err error) []*sim.Job {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}

	all, err := trace.Collect(jobs)
	if err != nil {
		t.Fatal(err)
	}

	return all
}

func TestPoissonArrivalsAreIndependent(t *testing.T) {
	next := trace.Poisson(trace.NewRand(1, 0), 30*s)
	const n = 20000
	var sum, squares float64

	last := time.Duration(0)
	for range n {
		at := next()
		gap := (at - last).Seconds()
		sum, squares, last = sum+gap, squares+gap*gap, at
	}

	mean := sum / n
	near(t, "the mean gap", mean, 30, 0.03)
	near(t, "its coefficient of variation", math.Sqrt(squares/n-mean*mean)/mean, 1, 0.05)
}

func TestBurstyArrivalsHaveTheMeanAndComeInBursts(t *testing.T) {
	b := trace.Burst{Calm: 10 * time.Minute, Busy: 5 * s, CalmFor: time.Hour, BusyFor: 10 * time.Minute}
	for name, b := range map[string]trace.Burst{"both": b, "silent while calm": {Busy: b.Busy, CalmFor: b.CalmFor, BusyFor: b.BusyFor}} {
		t.Run(name, func(t *testing.T) {
			next := trace.Bursty(trace.NewRand(2, 0), b)
			const n = 60000
			var squares float64

			last := time.Duration(0)
			for range n {
				at := next()
				if at < last {
					t.Fatal("time goes back")
				}

				squares += (at - last).Seconds() * (at - last).Seconds()
				last = at
			}

			mean := last.Seconds() / n
			near(t, "the mean gap", mean, b.Mean().Seconds(), 0.1)

			if cv := math.Sqrt(squares/n-mean*mean) / mean; cv < 2 {
				t.Errorf("the coefficient of variation is %.2f; bursts have more than 2", cv)
			}
		})
	}
}

func TestRigidJobs(t *testing.T) {
	g := trace.Rigid{
		GPUs:    []int{1, 8, 16},
		Shares:  []float64{0.7, 0.2, 0.1},
		Median:  20 * time.Minute,
		Sigma:   1.5,
		Users:   4,
		PerNode: 8,
	}

	r := trace.NewRand(3, 0)
	jobs := collect(t, trace.Generate(8000, trace.Poisson(r, s), g.Maker(r)), nil)
	ones, owners := 0, map[string]int{}

	var lasts []time.Duration
	for _, j := range jobs {
		if j.Spec.Resources.Nodes.Min*j.Spec.Resources.GPUs.Min == 1 {
			ones++
		}

		owners[string(j.Owner)]++
		lasts = append(lasts, j.Duration)
	}

	slices.Sort(lasts)
	near(t, "the share of one GPU", float64(ones)/float64(len(jobs)), 0.7, 0.03)
	near(t, "the median", lasts[len(lasts)/2].Seconds(), 1200, 0.08)

	if len(owners) != 4 || owners["user1"] < 1800 {
		t.Errorf("got owners %v", owners)
	}
}

func TestAndreasJobsFollowTheirLaw(t *testing.T) {
	const nodes, k = 10, 10.0
	o := trace.Andreas(nodes, 5000*s, k, 1)
	o.Jobs, o.Start = 20000, time.Minute
	opened, err := o.Generate()
	jobs := collect(t, opened, err)
	if len(jobs) != 20001 || jobs[0].At != 0 {
		t.Fatalf("got %d jobs, the first at %v; want one more than asked, at 0", len(jobs), jobs[0].At)
	}

	near(t, "the mean gap", jobs[len(jobs)-1].At.Seconds()/20000, 500, 0.03)

	spans := map[string][2]time.Duration{}
	for _, task := range trace.AndreasJobs() {
		fast, slow := task.Span()
		spans[task.Name] = [2]time.Duration{fast, slow}
	}

	least, most := trace.AndreasWeights()
	var weight, slack float64
	types := map[string]int{}

	for _, j := range jobs {
		name := "J" + j.Spec.Name[1:]
		types[name]++

		due := j.Spec.Deadline.Sub(sim.Epoch()) - j.At
		if span := spans[name]; due < span[0]-s || due > span[1]+s {
			t.Fatalf("%s is due after %v, want between %v and %v", name, due, span[0], span[1])
		}

		slack += (due - spans[name][0]).Seconds() / (spans[name][1] - spans[name][0]).Seconds()

		cost := j.Spec.LateCost.PerHour()
		if cost < k*least-1e-6 || cost > k*most {
			t.Fatalf("late costs %g an hour, want %g to %g", cost, k*least, k*most)
		}

		weight += float64(cost)

		if j.Spec.Speed.Start == 0 || j.Spec.Resources.GPUs.Max != 2 || len(j.Spec.Resources.GPU) != 2 {
			t.Fatalf("got %+v", j.Spec)
		}
	}

	near(t, "the mean slack", slack/float64(len(jobs)), 0.5, 0.03)
	near(t, "the mean weight", weight/float64(len(jobs)), float64(k*(least+most)/2), 0.02)

	for name, n := range types {
		near(t, "the share of "+name, float64(n)/float64(len(jobs)), 0.1, 0.1)
	}
}

func TestAndreasLawsHighLowMixed(t *testing.T) {
	span := map[string]float64{}

	for _, law := range []string{trace.LawHigh, trace.LawLow, trace.LawMixed} {
		o := trace.Andreas(30, 0, 10, 4)
		o.Law, o.Jobs = law, 3000
		opened, err := o.Generate()
		jobs := collect(t, opened, err)
		span[law] = jobs[len(jobs)-1].At.Seconds()

		if law == trace.LawHigh {
			// The mean over jobs of N × 2 / fastest single time, divided by 2.5.
			rate := 0.0
			for _, task := range trace.AndreasJobs() {
				rate += 30 * 2 / task.Single().Seconds() / 2.5 / 10
			}

			near(t, "the mean gap", span[law]/3000, 1/rate, 0.06)
		}
	}

	near(t, "low against high", span[trace.LawLow]/span[trace.LawHigh], 4, 0.08)
	near(t, "mixed against high", span[trace.LawMixed]/span[trace.LawHigh], 2.5, 0.1)
}

func TestDatacenterJobsMayBeTight(t *testing.T) {
	o := trace.Datacenter(10, 50000*s, 2)
	o.Slack = 3
	opened, err := o.Generate()
	for _, j := range collect(t, opened, err) {
		speed := j.Spec.Speed
		fastest := speed.Work / max(speed.On("K80", 0).MaxRate(), speed.On("M60", 0).MaxRate())
		if due := (j.Spec.Deadline.Sub(sim.Epoch()) - j.At).Seconds(); due < fastest-1 || due > 3*fastest+1 {
			t.Fatalf("due after %g s, the fastest run takes %g s", due, fastest)
		}

		if late := float64(j.Spec.LateCost) / 1e6 / 3600; late < 0.0063-1e-9 || late > 0.0111 {
			t.Fatalf("late costs %g a second", late)
		}
	}

	for name, o := range map[string]trace.TaskOptions{
		"no tasks": {Nodes: 1, Lambda: s}, "no nodes": {Tasks: trace.AndreasJobs(), Lambda: s}, "no lambda": {Tasks: trace.AndreasJobs(), Nodes: 1},
		"no law": {Tasks: trace.AndreasJobs(), Nodes: 1, Lambda: s, Law: "often"}, "weights": {Tasks: trace.AndreasJobs(), Nodes: 1, Lambda: s, LateLeast: 2, LateMost: 1},
	} {
		if _, err := o.Generate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFreeTrainJobs(t *testing.T) {
	jobs := collect(t, trace.HPO(trace.FreeTrainOptions{Jobs: 3, First: 10 * s}), nil)
	if len(jobs) != 3 || jobs[2].At != 82*s || jobs[0].Spec != jobs[2].Spec || jobs[0].MaxLoss != 12*s ||
		time.Duration(jobs[0].Spec.Speed.Start) != 18*s {
		t.Errorf("got %+v", jobs[2])
	}

	if c := jobs[0].Spec.Speed.On("V100", 0); c.Rate(64, 64) != 145081.5 || c.MinGPUs() != 1 ||
		jobs[0].Spec.Resources.Nodes.Max != 64 {
		t.Errorf("got %+v", jobs[0].Spec)
	}

	mix := collect(
		t,
		trace.ImageNetMix(trace.FreeTrainOptions{Jobs: 701, Every: s, Save: 3 * s, Seed: 5, MaxNodes: 8}),
		nil,
	)

	var start, lost float64
	for i, j := range mix {
		if want := trace.FreeTrainModels()[i%7].Name; j.Name[:len(want)] != want {
			t.Fatalf("job %d is %s, want %s", i, j.Name, want)
		}

		start, lost = start+time.Duration(j.Spec.Speed.Start).Seconds(), lost+j.MaxLoss.Seconds()
	}

	near(t, "the mean start", start/701, 18, 0.01)
	near(t, "the mean loss", lost/701, 12, 0.01)

	free := collect(t, trace.ImageNetMix(trace.FreeTrainOptions{Jobs: 1, Save: s, Free: true}), nil)[0]
	if free.Spec.Speed.Start != 0 || free.Spec.Speed.Save != 0 || free.MaxLoss > time.Microsecond || free.MaxLoss <= 0 {
		t.Errorf("got %+v, lost %v", free.Spec.Speed, free.MaxLoss)
	}
}

// The log lublin_256 of the RLScheduler data was made by the authors' program with
// these sizes; its statistics are the reference here.
func TestLublinFitsTheAuthorsLog(t *testing.T) {
	const n = 10000
	jobs := collect(t, trace.Lublin(trace.LublinOptions{Jobs: n, Procs: 256, Seed: 1}), nil)
	var serial, pow2, run float64
	var runs []float64
	hours := [24]int{}

	for _, j := range jobs {
		procs := int(j.Spec.Resources.CPUs / 1000)
		switch {
		case procs == 1:
			serial++
		case procs&(procs-1) == 0:
			pow2++
		}

		if procs < 1 || procs > 256 {
			t.Fatalf("a job of %d processors", procs)
		}

		run += j.Duration.Seconds()
		runs = append(runs, j.Duration.Seconds())
		hours[int(j.At.Hours())%24]++

		if time.Duration(j.Spec.Expect) != j.Duration {
			t.Fatal("owners expect what comes true")
		}
	}

	slices.Sort(runs)
	near(t, "the share of serial jobs", serial/n, 0.2493, 0.05)
	near(t, "the share of powers of two", pow2/n, 0.612, 0.03)
	near(t, "the mean run time", run/n, 4863, 0.06)
	near(t, "the median run time", runs[n/2], 137, 0.15)
	near(t, "the 90th percentile", runs[n*9/10], 15590, 0.06)
	near(t, "the mean gap", jobs[n-1].At.Seconds()/n, 770.7, 0.05)

	if day, night := hours[13], hours[3]; day < 4*night {
		t.Errorf("%d jobs at one o'clock, %d at three in the night: there is no daily cycle", day, night)
	}
}

func TestLublinWithTypesGapsAndGPUs(t *testing.T) {
	plain := collect(t, trace.Lublin(trace.LublinOptions{Jobs: 4000, Types: true, Seed: 2}), nil)
	wide := collect(
		t,
		trace.Lublin(trace.LublinOptions{Jobs: 4000, Types: true, Seed: 2, Gap: 2, GPUs: true, PerNode: 4, Hour: 8}),
		nil,
	)

	near(t, "the stretched span", wide[3999].At.Seconds()/plain[3999].At.Seconds(), 2, 0.1)

	for _, j := range wide {
		if r := j.Spec.Resources; r.CPUs != 0 || r.GPUs.Min < 1 || r.GPUs.Min > 4 || r.GPUs.Min*r.Nodes.Min > 128 {
			t.Fatalf("got %+v", r)
		}
	}

	if !slices.IsSortedFunc(wide, func(a, b *sim.Job) int { return int(a.At - b.At) }) {
		t.Error("the two streams are not in order")
	}
}

func TestGeneratorsGiveTheSameJobsForTheSameSeed(t *testing.T) {
	makers := map[string]func(seed uint64) sim.Jobs{
		"andreas": func(seed uint64) sim.Jobs {
			jobs, err := trace.Andreas(3, time.Hour, 10, seed).Generate()
			if err != nil {
				t.Fatal(err)
			}

			return jobs
		},
		"lublin": func(seed uint64) sim.Jobs {
			return trace.Lublin(trace.LublinOptions{Jobs: 50, Types: true, Seed: seed})
		},
		"mix": func(seed uint64) sim.Jobs { return trace.ImageNetMix(trace.FreeTrainOptions{Jobs: 20, Seed: seed}) },
		"bursty": func(seed uint64) sim.Jobs {
			r := trace.NewRand(seed, 9)
			b := trace.Burst{Calm: time.Hour, Busy: s, CalmFor: time.Hour, BusyFor: time.Minute}
			return trace.Generate(50, trace.Bursty(r, b), trace.Rigid{GPUs: []int{1, 2}, Median: time.Hour, Sigma: 1}.Maker(r))
		},
	}

	for name, maker := range makers {
		t.Run(name, func(t *testing.T) {
			text := func(seed uint64) string {
				raw, err := json.Marshal(collect(t, maker(seed), nil))
				if err != nil {
					t.Fatal(err)
				}

				return string(raw)
			}

			first, again := text(7), text(7)
			if first != again {
				t.Error("two runs with one seed differ")
			}

			if first == text(8) {
				t.Error("two seeds give the same jobs")
			}
		})
	}
}

func TestListsAreInOrderAndLeaveTheirJobsAlone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		times := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(r, "times")
		var jobs []*sim.Job
		for _, at := range times {
			jobs = append(jobs, &sim.Job{At: time.Duration(at) * s})
		}

		before := slices.Clone(jobs)
		n := rapid.IntRange(0, 30).Draw(r, "n")
		got, err := trace.Collect(trace.First(trace.List(jobs), n))
		if err != nil || len(got) != min(n, len(jobs)) {
			r.Fatalf("got %d jobs of %d, %v", len(got), n, err)
		}

		if !slices.IsSortedFunc(got, func(a, b *sim.Job) int { return int(a.At - b.At) }) || !slices.Equal(jobs, before) {
			r.Fatal("they are out of order, or the list was changed")
		}
	})
}
