package pollux

import (
	"math"

	"trainyard/internal/scaling"
	"trainyard/internal/sim"
)

// Agent is the program of a job that chooses its own batch size, as the agent of Pollux does: by
// what it has measured itself, on the GPUs that it has had. It reports what it measures there:
// its batch, the time of a step and the noise of its gradients.
type Agent struct {
	p     *Profile
	fixed float64 // batch size if it does not choose, 0 otherwise

	on       sim.GPUs
	batch    scaling.Batch // with which it trains now
	epoch    int
	rate     float64
	began    bool              // it has trained since it was asked last
	model    *scaling.Model    // of its own; nil before it has measured anything
	measured *scaling.Training // since it was asked the last time but one
}

// NewAgent returns the program of a job. With a batch it does not choose another.
func NewAgent(p *Profile, batch int) *Agent { return &Agent{p: p, fixed: float64(batch)} }

// Step implements sim.Program: it measures what it has done since the last step, chooses its batch
// for the present GPUs and trains on.
func (a *Agent) Step(on sim.GPUs, done float64) (rate, until float64) {
	k := a.p.kind(on.Model)
	if k == nil {
		return 0, math.Inf(1)
	}

	a.measured = nil
	if on == a.on && a.began && a.fixed == 0 {
		a.measure(k)
	}

	a.on, a.began = on, true
	a.epoch = a.p.epochAt(done)
	a.batch = a.choose(k)
	a.rate = a.p.gain(a.samples(), a.epoch) / (a.stepTime(k) * a.p.slow)

	return a.rate, a.p.Until(a.epoch + 1)
}

// Report implements sim.Program.
func (a *Agent) Report() *scaling.Training { return a.measured }

// samples is the size of its batch.
func (a *Agent) samples() float64 { return float64(a.on.Count) * a.batch.Each * a.batch.Passes }

// stepTime is how long a step really takes.
func (a *Agent) stepTime(k *stepTimes) float64 {
	step, wait := k.time(a.on, a.batch.Each)

	return step + (a.batch.Passes-1)*(step-wait)
}

// measure takes note of what the present GPUs did with the present batch.
func (a *Agent) measure(k *stepTimes) {
	t := a.p.limits(k)
	t.Batch = a.samples()
	t.Passes = int(a.batch.Passes)
	t.StepSeconds = a.stepTime(k)

	sqr, variance := a.p.gradient(t.Batch, a.epoch)
	t.NoiseScale = min(t.BaseBatch*variance/max(sqr, tiny), maxNoise)

	a.measured = &t
	a.model = a.model.With(scaling.Observation{
		Kind: a.on.Model, GPUs: a.on.Count, Nodes: a.on.Nodes, PerSecond: a.rate, Training: a.measured,
	})
}

// maxNoise bounds the noise scale where gradients are nothing but noise.
const maxNoise = 1e12

// choose returns the batch with which the program expects to come on fastest. Before it has
// measured anything it uses the base batch, or the smallest that its GPUs can do.
func (a *Agent) choose(k *stepTimes) scaling.Batch {
	limits := a.p.limits(k)
	if a.fixed > 0 {
		return limits.Split(a.on.Count, a.fixed)
	}

	if a.model != nil {
		own := *a.model
		limits.NoiseScale = own.Training.NoiseScale
		own.Training = &limits

		if best, rate := own.Best(a.on.Model, 0, a.on.Count, a.on.Nodes); rate > 0 {
			return best
		}
	}

	return limits.Split(a.on.Count, min(max(a.p.base(), k.minLocal*float64(a.on.Count)), a.p.most()))
}

// limits are the batch sizes that are possible on a kind of GPU.
func (p *Profile) limits(k *stepTimes) scaling.Training {
	return scaling.Training{BaseBatch: p.base(), MaxBatch: p.most(), MinPerGPU: k.minLocal, MaxPerGPU: k.maxLocal}
}
