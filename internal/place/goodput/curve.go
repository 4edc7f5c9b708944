package goodput

import (
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/scaling"
)

// curve is the speed of a job on one kind of GPU: as declared, or else as learned from its
// progress.
type curve struct {
	declared *job.Curve
	learned  *scaling.Model // nil if rates were declared
	model    string
	tflops   float64
}

func newCurve(o *job.Outlook, g *fleet.GPU) curve {
	if s := o.DeclaredSpeed(); s != nil {
		return curve{declared: s.On(g.Model, g.Memory)}
	}

	tflops, _ := g.TFLOPS()

	return curve{learned: o.Learned, model: g.Model, tflops: tflops}
}

func (c *curve) minGPUs() int {
	if c.learned != nil {
		return 1
	}

	return c.declared.MinGPUs()
}

// maxGPUs is the largest number that is declared, or that is near enough to what was observed to
// be tried.
func (c *curve) maxGPUs() int {
	if c.learned != nil {
		return c.learned.MaxGPUs()
	}

	return c.declared.MaxGPUs()
}

func (c *curve) rate(gpus, nodes int) float64 {
	if c.learned != nil {
		return c.learned.Rate(c.model, c.tflops, gpus, nodes)
	}

	return c.declared.Rate(gpus, nodes)
}
