package forecast

import (
	"fmt"
	"math/rand/v2"
	"testing"

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
	chance := rand.New(rand.NewPCG(1, 1))
	in.Record = &Record{}
	var all []Scored
	for i := range 200 {
		all = append(all, scored(i, ClassLike, map[string]float64{MethodMatch: chance.NormFloat64() / 10, MethodCurve: chance.NormFloat64() / 2}))
	}
	in.Record.Add(all...)
	b.ReportAllocs()
	for b.Loop() {
		Make(in)
	}
}

// BenchmarkAdd is a job that ends, in a yard with a full record.
func BenchmarkAdd(b *testing.B) {
	r := recordOf(MaxJobs, ClassLike, map[string]float64{MethodMatch: 0.1, MethodCurve: 0.5})
	s := scored(MaxJobs/2, ClassLike, map[string]float64{MethodMatch: 0.1, MethodCurve: 0.5})
	for b.Loop() {
		r.Add(s)
	}
}
