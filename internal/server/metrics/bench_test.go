package metrics_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/server/metrics"
	"trainyard/internal/yardmaster"
)

// big returns a batch with so many nodes of eight GPUs, each held by a run of its own.
func big(nodes int) *yardmaster.Batch {
	b := &yardmaster.Batch{}

	for i := range nodes {
		n := fleet.Node{
			ID:        id.Node(fmt.Sprint("n", i)),
			Class:     fleet.Local,
			State:     fleet.Ready,
			Inventory: inventory(fmt.Sprint(i), "L4", 8),
		}

		m := ledger.NewMeter(&n, tariff, nil, start)
		run := job.Run{ID: id.NewRun(id.NewJob(uint64(i)), 1), State: job.RunRunning, Ranks: []job.Rank{{Node: n.ID}}}
		m.Set(nil, start, ledger.StatusOf(&n, 0, nil), []ledger.Holder{{Run: run.ID, Job: "j1", Owner: "ann", GPUs: 0xf}})
		b.Nodes = append(b.Nodes, n)
		b.Runs = append(b.Runs, run)
		b.Ledger.Meters = append(b.Ledger.Meters, m.Save())
	}

	return b
}

// BenchmarkTake is what a batch costs the loop for each node that it is about.
func BenchmarkTake(b *testing.B) {
	y := newYard(b, metrics.Options{})
	batch := big(10_000)
	for b.Loop() {
		y.board.Take(batch)
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/node")
}

// BenchmarkScrape is what it takes to look at 10,000 nodes. It is not the loop that pays.
func BenchmarkScrape(b *testing.B) {
	collect := func(board *metrics.Collector) {
		ch := make(chan prometheus.Metric, 4096)
		board.Collect(ch)
	}

	b.Run("nothing changed", func(b *testing.B) {
		y := newYard(b, metrics.Options{})
		y.board.Take(big(10_000))
		collect(y.board)

		for b.Loop() {
			collect(y.board)
		}
	})

	b.Run("all changed", func(b *testing.B) {
		y := newYard(b, metrics.Options{})
		batch := big(10_000)
		for b.Loop() {
			b.StopTimer()
			y.board.Take(batch)
			b.StartTimer()
			collect(y.board)
		}
	})
}

// BenchmarkHold is the part of a scrape for which the loop may have to wait, after all of
// 10,000 nodes have changed.
func BenchmarkHold(b *testing.B) {
	y := newYard(b, metrics.Options{})
	batch := big(10_000)
	for b.Loop() {
		b.StopTimer()
		y.board.Take(batch)
		b.StartTimer()
		y.board.Hold()
	}
}
