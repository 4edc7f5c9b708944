package runtime

import (
	"testing"
	"time"

	"trainyard/internal/job"
)

// BenchmarkRun measures from Start to the news that the program runs, and from
// there to the news of the end of a program that ends at once.
func BenchmarkRun(b *testing.B) {
	b.Run("as the agent", func(b *testing.B) { benchmarkRun(b) })
	b.Run("as a user", func(b *testing.B) { benchmarkRun(b, isolated(b)) })
}

func benchmarkRun(b *testing.B, change ...func(*Options)) {
	b.Helper()
	y := newYard(b, change...)

	var starting, ending time.Duration

	for b.Loop() {
		begun := time.Now()
		run := y.script("exec sleep 1000")
		y.await(run, job.RunRunning)
		running := time.Now()

		if err := y.Stop(run, 0, job.StopKill); err != nil {
			b.Fatal(err)
		}

		y.end(run)
		starting, ending = starting+running.Sub(begun), ending+time.Since(running)

		if err := y.Forget(run, 0); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(starting.Microseconds())/1000/float64(b.N), "ms-to-running")
	b.ReportMetric(float64(ending.Microseconds())/1000/float64(b.N), "ms-to-ended")
}
