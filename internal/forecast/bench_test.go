package forecast

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/id"
)

// BenchmarkMake is one forecast of a job with 500 points, among 200 finished jobs of its
// kind and a record of as many.
func BenchmarkMake(b *testing.B) {
	past := finished(25, 1)
	for i := len(past); i < 200; i++ {
		p := past[i%25]
		p.Job = id.Job(fmt.Sprint("k", i))
		past = append(past, p)
	}

	in := trained(2500)
	in.Job.Spec.Target = atMost("loss", 0.15)
	in.Library = NewLibrary(past, nil)
	rng := rand.New(rand.NewPCG(1, 1))
	in.Record = &calibrate.Record{}

	var all []calibrate.JobScore
	for i := range 200 {
		score := calibrate.JobScore{
			Job:      id.Job(fmt.Sprintf("j%04d", i)),
			Finished: noon.Add(time.Duration(i) * time.Minute),
			Kind:     "k",
		}

		residuals := map[string]float64{
			calibrate.MethodMatch: rng.NormFloat64() / 10,
			calibrate.MethodCurve: rng.NormFloat64() / 2,
		}

		for _, p := range calibrate.ReplayPoints {
			score.Marks = append(score.Marks, calibrate.Mark{Progress: p, Class: calibrate.ClassLike, Residuals: residuals})
		}

		all = append(all, score)
	}

	in.Record.Add(all...)
	b.ReportAllocs()

	for b.Loop() {
		Make(in)
	}
}
