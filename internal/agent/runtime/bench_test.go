package runtime

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/job"
)

// BenchmarkRun measures from Start to the news that the program runs, and from
// there to the news of the end of a program that ends at once.
func BenchmarkRun(b *testing.B) {
	y := newYard(b)
	if err := unix.Mkfifo(y.dir+"/hold", 0o600); err != nil {
		b.Fatal(err)
	}

	var starting, ending time.Duration

	for b.Loop() {
		begun := time.Now()
		run := y.script("read x < " + y.dir + "/hold")
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
