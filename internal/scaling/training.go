package scaling

import "math"

// Training is what a program that chooses its batch size may report about it. All of it is
// measured on the GPUs that it has, or a limit that its owner has set.
type Training struct {
	Batch       float64 `json:"batch"`            // samples of a step, of all GPUs together
	Passes      int     `json:"passes,omitempty"` // in which each GPU does its part of a step; 0 means one
	StepSeconds float64 `json:"step_seconds"`     // how long a step takes
	NoiseScale  float64 `json:"noise_scale"`      // of its gradients, in samples
	BaseBatch   float64 `json:"base_batch"`       // of which a step is the same work at any time
	MaxBatch    float64 `json:"max_batch"`        // it uses no larger one
	MinPerGPU   float64 `json:"min_per_gpu"`      // samples of one GPU in a pass, at least
	MaxPerGPU   float64 `json:"max_per_gpu"`      // and at most: what fits its memory
}

// passes is at least one.
func (t *Training) passes() float64 { return math.Max(float64(t.Passes), 1) }

// gain is what a step with a batch is worth in steps of the base batch: more samples average out
// more noise, and bring little once there is none left.
func (t *Training) gain(batch float64) float64 {
	return batch / t.BaseBatch * (t.NoiseScale + t.BaseBatch) / (t.NoiseScale + batch)
}

// Batch is how GPUs do a batch: each of them so many passes of so many samples.
type Batch struct{ Each, Passes float64 }

// Split returns how so many GPUs do a batch. One GPU does more than the base batch in at least
// two passes, because one pass shows no noise.
func (t *Training) Split(gpus int, batch float64) Batch {
	n := float64(gpus)
	each := math.Ceil(batch/n - rounding)
	passes := math.Ceil(each/t.MaxPerGPU - rounding)
	if gpus == 1 && batch > t.BaseBatch+rounding {
		passes = math.Max(passes, 2)
	}

	each = math.Min(math.Ceil(each/passes-rounding), math.Floor(t.MaxBatch/(n*passes)))

	return Batch{math.Max(each, 1), passes}
}

// rounding keeps errors of rounding from making a whole number one more.
const rounding = 1e-8

// batches is how many batch sizes are tried between the smallest and the largest.
const batches = 24

// Best returns the batch with which the program comes on fastest on GPUs, and how many steps of
// the base batch a second that is, by the model. It is 0 if the GPUs are too many for any batch.
func (m *Model) Best(kind string, tflops float64, gpus, nodes int) (best Batch, perSecond float64) {
	t := m.Training
	low := math.Max(t.BaseBatch, t.MinPerGPU*float64(gpus))
	if low > t.MaxBatch {
		return best, 0
	}

	factor := m.factor(kind, tflops)
	wait := m.waiting(gpus, nodes)

	for i := range batches {
		b := t.Split(gpus, low*math.Pow(t.MaxBatch/low, float64(i)/(batches-1)))
		if b.Each < t.MinPerGPU {
			continue
		}

		size := b.Each * b.Passes * float64(gpus)
		seconds := b.Passes*factor*(m.Pass+m.Sample*b.Each) + wait
		if g := t.gain(size) / seconds; g > perSecond {
			best, perSecond = b, g
		}
	}

	return best, perSecond
}

// waiting is how long GPUs wait for each other in a step.
func (m *Model) waiting(gpus, nodes int) float64 {
	switch {
	case gpus < 2:
		return 0
	case nodes > 1:
		return m.Across + m.More*float64(gpus-2)
	}

	return m.Within + m.More*float64(gpus-2)
}
