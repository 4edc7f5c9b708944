package trace

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// NewRand returns the source of chance of a generator: the same seed and stream
// give the same numbers on every machine.
func NewRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// Arrivals says when the next job is submitted, since the beginning. It never ends.
type Arrivals func() time.Duration

// Poisson submits jobs independently of each other, with this mean time between two.
func Poisson(r *rand.Rand, mean time.Duration) Arrivals {
	at := 0.0
	return func() time.Duration {
		at += r.ExpFloat64() * mean.Seconds()
		return job.Seconds(at)
	}
}

// Burst describes submissions that come in bursts: calm and busy times in turn,
// each of exponential length, with Poisson submissions in both (a Markov-modulated
// Poisson process of two states).
type Burst struct {
	Calm, Busy       time.Duration // mean time between two jobs; 0 for none while it is calm
	CalmFor, BusyFor time.Duration // mean length of the times
}

// Mean returns the mean time between two jobs over a long time.
func (b Burst) Mean() time.Duration {
	perSecond := b.BusyFor.Seconds() / b.Busy.Seconds()
	if b.Calm > 0 {
		perSecond += b.CalmFor.Seconds() / b.Calm.Seconds()
	}

	return job.Seconds((b.CalmFor + b.BusyFor).Seconds() / perSecond)
}

// Bursty submits jobs in bursts. It begins with a calm time.
func Bursty(r *rand.Rand, b Burst) Arrivals {
	at, busy := 0.0, false
	ends := r.ExpFloat64() * b.CalmFor.Seconds()

	return func() time.Duration {
		for {
			gap := math.Inf(1)
			if mean := b.gap(busy); mean > 0 {
				gap = r.ExpFloat64() * mean.Seconds()
			}

			// What is left of a gap when the time ends is drawn anew: it has no memory.
			if at+gap < ends {
				at += gap
				return job.Seconds(at)
			}

			at, busy = ends, !busy

			lasts := b.CalmFor
			if busy {
				lasts = b.BusyFor
			}

			ends += r.ExpFloat64() * lasts.Seconds()
		}
	}
}

func (b Burst) gap(busy bool) time.Duration {
	if busy {
		return b.Busy
	}

	return b.Calm
}

// generated yields jobs as they are made.
type generated struct {
	remaining int
	made      int
	arrivals  Arrivals
	make      func(n int, at time.Duration) *sim.Job
}

// Generate yields n jobs that come by arrivals and are made one after the other,
// numbered from 1.
func Generate(n int, arrivals Arrivals, maker func(number int, at time.Duration) *sim.Job) sim.Jobs {
	return &generated{remaining: n, arrivals: arrivals, make: maker}
}

// Next makes the next job.
func (g *generated) Next() (*sim.Job, error) {
	if g.remaining <= 0 {
		return nil, io.EOF
	}

	g.remaining--
	g.made++

	return g.make(g.made, g.arrivals()), nil
}

// Rigid describes jobs that run for a time on a number of GPUs and cannot change.
type Rigid struct {
	GPUs    []int     // sizes, drawn by the shares
	Shares  []float64 // of the sizes; nil for equal ones
	Median  time.Duration
	Sigma   float64 // of the logarithm of the run time
	Users   int     // submit the jobs, drawn equally; 0 for one
	PerNode int     // GPUs of a node; 0 keeps each job on one node
}

// Maker returns what draws such jobs.
func (g Rigid) Maker(r *rand.Rand) func(number int, at time.Duration) *sim.Job {
	specs := newSpecs()
	return func(number int, at time.Duration) *sim.Job {
		lasts := job.Seconds(g.Median.Seconds() * math.Exp(g.Sigma*r.NormFloat64()))
		size := g.GPUs[pick(r, g.Shares, len(g.GPUs))]

		owner := id.User("user1")
		if g.Users > 1 {
			owner = id.User(fmt.Sprintf("user%d", 1+r.IntN(g.Users)))
		}

		nodes, each := split(size, g.PerNode)

		return &sim.Job{
			Name: fmt.Sprintf("job-%d", number), At: at, Owner: owner, Duration: atLeastSecond(lasts),
			Spec: specs.of(ask{nodes: nodes, gpus: each}),
		}
	}
}

// pick draws one of n by their shares, equally if there are none.
func pick(r *rand.Rand, shares []float64, n int) int {
	if len(shares) == 0 {
		return r.IntN(n)
	}

	total := 0.0
	for _, s := range shares[:n] {
		total += s
	}

	at := r.Float64() * total
	for i, s := range shares[:n] {
		at -= s
		if at < 0 {
			return i
		}
	}

	return n - 1
}

// uniform draws a number between two.
func uniform(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }

// gamma draws from a gamma distribution with this shape and scale by the method
// of Marsaglia and Tsang (2000): a transformed normal draw is taken or left.
func gamma(r *rand.Rand, shape, scale float64) float64 {
	if shape < 1 {
		// A draw of shape+1 times the power of a uniform one has this shape.
		return gamma(r, shape+1, scale) * math.Pow(1-r.Float64(), 1/shape)
	}

	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)

	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}

		v = v * v * v
		if math.Log(1-r.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v * scale
		}
	}
}
