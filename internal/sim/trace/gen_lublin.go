package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// LublinOptions say which jobs of the model of Lublin and Feitelson (2003) to
// make: the usual model of the jobs of a supercomputer.
type LublinOptions struct {
	Jobs  int
	Procs int  // of the machine; 0 for 128
	Types bool // batch and interactive jobs apart, as two streams; else all alike
	Hour  int  // of the day, at the beginning
	Seed  uint64
	// Gap multiplies the time between submissions, to make another load; 0 means 1.
	Gap float64
	// GPUs makes the processors GPUs, PerNode of them a node; else they are CPUs of one node.
	GPUs    bool
	PerNode int
}

// lublin are the published parameters of one stream of jobs.
type lublin struct {
	serial, pow2 float64 // shares of jobs with one processor, and with a power of two
	// sizes as powers of two: the least, the middle below the greatest, the greatest below the machine
	low, below, high      float64
	small                 float64 // share of sizes below the middle
	a1, b1, a2, b2        float64 // of the two gamma distributions of the logarithm of the run time
	pa, pb                float64 // the share of the first is pa × processors + pb
	aRush, bRush, stretch float64 // of the gamma distribution of the logarithm of the time between submissions
	aDay, bDay            float64 // of the gamma distribution of submissions over the day
}

var (
	lublinAll = lublin{
		0.244,
		0.576,
		0.8,
		2.5,
		0,
		0.86,
		4.2,
		0.94,
		312,
		0.03,
		-0.0054,
		0.78,
		10.2303,
		0.4871,
		1.0225,
		8.1737,
		3.9631,
	}
	lublinBatch = lublin{
		0.2927,
		0.6686,
		1.2,
		2,
		0,
		0.875,
		6.57,
		0.823,
		639.1,
		0.0156,
		-0.003,
		0.6986,
		6.0415,
		0.8531,
		1.0519,
		6.1271,
		5.2740,
	}
	lublinInteractive = lublin{
		0.1541,
		0.625,
		1,
		2.5,
		1.5,
		0.705,
		3.8351,
		0.6605,
		7.073,
		0.6856,
		-0.0118,
		0.9156,
		6.5510,
		0.6621,
		0.9797,
		8.9186,
		3.6680,
	}
)

const (
	buckets     = 48                // of a day
	bucket      = 86400.0 / buckets // seconds
	dayStart    = 11                // bucket at which the day of the model begins
	longestRun  = 12.0              // logarithm of the longest run time in seconds
	longestWait = 13.0              // and of the longest rush-hour time between submissions
	publicSize  = 128               // processors of the machine that the published sizes are for

)

// Lublin makes jobs of the model of Lublin and Feitelson: two-stage uniform
// sizes, hyper-gamma run times that depend on the size, and gamma times between
// submissions, stretched and squeezed by a daily cycle. The model has no requested
// times: owners expect what comes true.
func Lublin(o LublinOptions) sim.Jobs {
	streams := []*lublinStream{newLublinStream(lublinAll, &o, 10)}
	if o.Types {
		streams = []*lublinStream{newLublinStream(lublinInteractive, &o, 11), newLublinStream(lublinBatch, &o, 12)}
	}

	specs := newSpecs()
	var from *lublinStream
	arrivals := func() time.Duration {
		from = streams[0]
		if len(streams) > 1 && streams[1].at < from.at {
			from = streams[1]
		}

		at := from.at
		from.advance()

		return job.Seconds(math.Floor(at))
	}

	return Generate(o.Jobs, arrivals, func(n int, at time.Duration) *sim.Job {
		procs := from.size()
		lasts := atLeastSecond(job.Seconds(math.Floor(from.runTime(procs))))
		a := ask{expect: job.Duration(lasts)}
		a.nodes, a.gpus = split(procs, o.PerNode)
		if !o.GPUs {
			a.gpus, a.cpus = 0, job.CPUs(a.gpus)*1000
		}

		return &sim.Job{Name: fmt.Sprintf("lublin-%d", n), At: at, Owner: "lublin", Duration: lasts, Spec: specs.of(a)}
	})
}

// lublinStream is one stream of jobs.
type lublinStream struct {
	lublin
	rand    *rand.Rand
	machine float64 // log2 of its processors
	gap     float64
	weights [buckets]float64 // how busy each half hour is, 1 in the mean
	begin   int              // half hour of the day at the beginning
	bucket  int              // half hour of the next submission
	within  float64          // seconds into it
	at      float64          // the same in seconds since the beginning
}

func newLublinStream(p lublin, o *LublinOptions, stream uint64) *lublinStream {
	procs, gap := o.Procs, o.Gap
	if procs == 0 {
		procs = publicSize
	}

	if gap == 0 {
		gap = 1
	}

	s := &lublinStream{
		lublin:  p,
		rand:    NewRand(o.Seed, stream),
		machine: math.Log2(float64(procs)),
		gap:     gap,
		begin:   o.Hour % 24 * 2,
	}

	s.bucket = s.begin

	sum := 0.0
	for i := dayStart; i < dayStart+buckets; i++ {
		w := gammaBetween(float64(i)-0.5, float64(i)+0.5, p.aDay, p.bDay)
		s.weights[(i-1)%buckets] = w
		sum += w
	}

	for i := range s.weights {
		s.weights[i] *= buckets / sum
	}

	s.advance()

	return s
}

// size draws the processors of a job.
func (s *lublinStream) size() int {
	u := s.rand.Float64()
	if u <= s.serial {
		return 1
	}

	high := s.machine - s.high
	middle := max(high-s.below, s.low)
	power := uniform(s.rand, middle, high)
	if s.rand.Float64() <= s.small {
		power = uniform(s.rand, s.low, middle)
	}

	if u <= s.serial+s.pow2 {
		power = math.Round(power)
	}

	return max(int(math.Round(math.Pow(2, power))), 1)
}

// runTime draws the seconds that a job runs.
func (s *lublinStream) runTime(procs int) float64 {
	first := min(max(s.pa*float64(procs)+s.pb, 0), 1)
	for {
		a, b := s.a2, s.b2
		if s.rand.Float64() <= first {
			a, b = s.a1, s.b1
		}

		if log := gamma(s.rand, a, b); log <= longestRun {
			return math.Exp(log)
		}
	}
}

// advance goes on to the next submission: the time that was drawn runs as fast as
// the half hours that it passes are busy.
func (s *lublinStream) advance() {
	log := longestWait + 1
	for log > longestWait {
		log = gamma(s.rand, s.aRush*s.stretch, s.bRush)
	}

	left := math.Exp(log) * s.gap

	for {
		weight := s.weights[s.bucket%buckets]
		pays := (bucket - s.within) * weight
		if pays > left {
			s.within += left / weight
			break
		}

		left -= pays
		s.bucket, s.within = s.bucket+1, 0
	}

	s.at = float64(s.bucket-s.begin)*bucket + s.within
}

// gammaBetween is in proportion to the share of a gamma distribution between two
// points, by Simpson's rule.
func gammaBetween(from, to, shape, scale float64) float64 {
	const parts = 32
	density := func(x float64) float64 { return math.Exp((shape-1)*math.Log(x) - x/scale) }
	sum := density(from) + density(to)
	for i := 1; i < parts; i++ {
		weight := 2.0
		if i%2 == 1 {
			weight = 4
		}

		sum += weight * density(from+(to-from)*float64(i)/parts)
	}

	return sum * (to - from) / parts / 3
}
