package place

import (
	"testing"

	"trainyard/internal/place/rules"
)

func BenchmarkSteps(b *testing.B) {
	c := cases(false)[1]
	y := newYard(&c, 1)
	policy := rules.New(rules.Defaults())
	plan := policy.Plan(y.view())
	y.do(&plan)
	var ms []float64
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		y.step()
		v := y.view()
		b.StartTimer()
		began := processor()
		plan := policy.Plan(v)
		ms = append(ms, millis(processor()-began))
		b.StopTimer()
		y.do(&plan)
	}
	b.ReportMetric(at(ms, 0.5), "med-ms")
}
