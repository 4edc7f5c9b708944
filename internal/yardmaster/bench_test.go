package yardmaster_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// benchSpecs are 40 different needs, as a team's jobs have them.
func benchSpecs() []*job.Spec {
	var specs []*job.Spec

	for i := range 40 {
		s := spec([]int{1, 1, 1, 2, 4, 8, 0, 1}[i%8])
		s.Resources.CPUs = job.CPUs(1+i/8) * 1000
		s.Resources.Memory = job.Bytes(4+4*(i%5)) << 30
		if i%10 == 9 {
			s.Resources.Nodes = job.Range{Min: 2, Max: 2}
		}

		if i%3 == 0 {
			s.Expect = job.Duration(time.Duration(1+i) * time.Hour)
		}

		if i%7 == 0 {
			s.Resources.GPUMemory = job.ByteRange{Min: 40 << 30}
		}

		specs = append(specs, s)
	}

	return specs
}

// benchYard returns a yard with so many nodes of 8 GPUs and so many waiting jobs of 100 users.
func benchYard(tb testing.TB, nodes, jobs int) *yard {
	tb.Helper()
	y := newYard(tb)
	for i := range 100 {
		y.ok(yardmaster.PutUser{User: id.User(fmt.Sprintf("user%02d", i)), Role: tenant.Researcher, By: "test"})
	}

	for i := range nodes {
		y.node(fmt.Sprintf("node%05d", i), 8)
	}

	specs := benchSpecs()
	for i := range jobs {
		y.submit(id.User(fmt.Sprintf("user%02d", i%100)), specs[i*7%len(specs)])
	}

	y.Take()

	return y
}

// reportMS reports the time of one operation in milliseconds.
func reportMS(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/round")
}

// BenchmarkRoundFull is one round over everything: on an empty yard, where as
// many jobs start as fit, and on a full one, where none does.
func BenchmarkRoundFull(b *testing.B) {
	for _, size := range []struct{ nodes, jobs int }{{1_000, 10_000}, {1_000, 100_000}, {10_000, 10_000},
		{10_000, 100_000}} {
		name := fmt.Sprintf("%dnodes/%djobs", size.nodes, size.jobs)
		b.Run("empty/"+name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				y := benchYard(b, size.nodes, size.jobs)
				runtime.GC()
				b.StartTimer()
				y.Round(y.now)
				y.Take()
			}

			reportMS(b)
		})

		b.Run("full/"+name, func(b *testing.B) {
			y := benchYard(b, size.nodes, size.jobs+size.nodes*4)
			y.Round(y.now)
			y.Take()
			b.ResetTimer()

			for range b.N {
				y.Round(y.now)
			}

			reportMS(b)
		})
	}
}

// BenchmarkRoundIncremental is what one change costs in a yard that is full: a
// job that comes, and a job that ends with the next one started in its place.
func BenchmarkRoundIncremental(b *testing.B) {
	for _, size := range []struct{ nodes, jobs int }{{1_000, 100_000}, {10_000, 100_000}} {
		name := fmt.Sprintf("%dnodes/%djobs", size.nodes, size.jobs)
		full := func(b *testing.B) *yard {
			b.Helper()
			y := benchYard(b, size.nodes, size.jobs+size.nodes*4)
			y.Round(y.now)
			y.Take()
			b.ResetTimer()

			return y
		}

		b.Run("submit/"+name, func(b *testing.B) {
			y := full(b)
			specs := benchSpecs()
			for i := range b.N {
				y.submit("user07", specs[i%len(specs)])
				y.Round(y.now)
				y.Take()
			}

			reportMS(b)
		})

		b.Run("end/"+name, func(b *testing.B) {
			y := full(b)
			orders := y.Orders()
			b.ResetTimer()

			for i := range b.N {
				o := &orders[i%len(orders)]
				y.ok(
					yardmaster.NodeReport{
						Node:  o.Node,
						Ranks: []yardmaster.RankReport{{Run: o.Run, Rank: o.Rank, State: job.RunEnded, Started: y.now, Ended: y.now}},
					},
				)

				y.Round(y.now)
				y.Take()
			}

			reportMS(b)
		})
	}
}

// BenchmarkRehearse is a dry run in a full yard: what it takes in the loop, and all of making a view.
func BenchmarkRehearse(b *testing.B) {
	y := benchYard(b, 1000, 25_000)
	y.Round(y.now)
	y.Take()

	file := []yardmaster.Candidate{{Spec: spec(1)}}

	b.Run("loop", func(b *testing.B) {
		b.ReportAllocs()

		for b.Loop() {
			if _, err := y.Rehearse(y.now, "alice", file); err != nil {
				b.Fatal(err)
			}
		}
	})

	b.Run("view", func(b *testing.B) {
		b.ReportAllocs()

		for b.Loop() {
			y.View(y.now)
		}
	})
}

// BenchmarkMessages is the life of jobs as messages: submitted, preparing,
// running, ended, with two heartbeats of nodes between each; a round and a
// batch for every 512 messages, as many share a commit under load.
func BenchmarkMessages(b *testing.B) {
	const nodes, share = 200, 512
	y := benchYard(b, nodes, 0)
	s := spec(1)
	sent := 0
	send := func(m yardmaster.Message) {
		if _, err := y.Step(y.now, m); err != nil {
			b.Fatal(err)
		}

		sent++
		if sent%share == 0 {
			y.Round(y.now)
			y.Take()
		}
	}

	users := make([]id.User, 100)
	for i := range users {
		users[i] = id.User(fmt.Sprintf("user%02d", i))
	}

	names := make([]id.Node, nodes)
	for i := range names {
		names[i] = id.Node(fmt.Sprintf("node%05d", i))
	}

	b.ResetTimer()

	for i := 0; sent < b.N; i++ {
		y.now = y.now.Add(time.Millisecond)

		if i%share == 0 {
			send(yardmaster.Tick{})
		}

		const wave = 64
		for k := range wave {
			send(yardmaster.Submit{Owner: users[k%len(users)], Jobs: []yardmaster.NewJob{{Spec: s}}})
			send(yardmaster.NodeReport{Node: names[(i+k)%nodes]})
		}

		y.Round(y.now)

		for _, o := range y.Take().Orders {
			for _, state := range []job.RunState{job.RunPreparing, job.RunRunning, job.RunEnded} {
				rep := yardmaster.RankReport{Run: o.Run, State: state}
				if state != job.RunPreparing {
					rep.Started = y.now
				}

				send(yardmaster.NodeReport{Node: o.Node, Ranks: []yardmaster.RankReport{rep}})
				send(yardmaster.NodeReport{Node: names[(i+o.Epoch)%nodes]})
			}
		}
	}

	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "messages/s")

	if y.Counts().Jobs[job.Succeeded] == 0 && b.N > 1000 {
		b.Fatal("no job came to its end")
	}
}

// BenchmarkSubmit is a submission to a yard with many nodes that refuses what none of them could run, as servers do.
func BenchmarkSubmit(b *testing.B) {
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.RefuseImpossible = true
	y := newYardOf(b, cfg)

	for i := range 1000 {
		y.node(fmt.Sprintf("node%05d", i), 8)
	}

	y.Take()

	specs := benchSpecs()
	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		m := yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: specs[i%len(specs)]}}}
		if _, err := y.Step(y.now, m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory is how much a waiting job takes.
func BenchmarkMemory(b *testing.B) {
	const jobs = 100_000

	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		y := benchYard(b, 10, jobs)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/jobs, "B/job")
		runtime.KeepAlive(y)
	}
}

// BenchmarkLoad is how long the yard takes to take up its work again.
func BenchmarkLoad(b *testing.B) {
	y := benchYard(b, 1000, 0)
	specs := benchSpecs()
	store := newRecord()

	for i := range 100_000 {
		y.submit(id.User(fmt.Sprintf("user%02d", i%100)), specs[i%len(specs)])
	}

	for _, j := range y.Take().Jobs {
		store.jobs[j.ID] = j
	}

	state := yardmaster.State{LastJob: 100_000}
	for _, j := range store.jobs {
		state.Jobs = append(state.Jobs, j)
	}

	for i := range 1000 {
		state.Nodes = append(state.Nodes, fleet.Node{ID: id.Node(fmt.Sprintf("node%05d", i)), State: fleet.Ready})
	}

	b.ResetTimer()

	for range b.N {
		again := yardmaster.New((&driver{}).config())
		again.Load(y.now, state)
	}

	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/100k")
}
