package queue

import (
	"math"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/money"
)

// HalfLife is the half-life with which the usage of a user or project decays.
const HalfLife = 7 * 24 * time.Hour

// Decayed returns the usage after some time, in GPU-seconds: the earlier usage, decayed, and
// what rate GPUs in use all the time have added.
func Decayed(use, rate float64, passed time.Duration) float64 {
	if passed <= 0 {
		return use
	}

	// Expm1 is exact for short times, in which the decay is almost zero.
	decay := -math.Expm1(-passed.Seconds() / HalfLife.Seconds() * math.Ln2)

	return use*(1-decay) + rate*HalfLife.Seconds()/math.Ln2*decay
}

// Weight is how much a job counts for fair share while it runs, in reference GPUs: each of its
// GPUs counts its worth, and a CPU a sixteenth of a GPU, the usual ratio in GPU machines.
//
//	weight = nodes · (gpus · worth + cpus/16)
func Weight(gpus float64, nodes int, cpus, worth float64) float64 {
	return float64(nodes) * (gpus*worth + cpus/16)
}

// The reference GPU: about the speed of an A100 and the price of an hour of it.
const (
	ReferenceTFLOPS = 270.0
	ReferencePrice  = 1.50
)

// Worth is how much one GPU counts for fair share: the mean of its speed and its price, both
// relative to the reference GPU. Half an hour of a fast GPU takes as much from others as an
// hour of one half as fast, and an on-demand node takes from the common budget. If one of the
// two is unknown (0) the other is used alone; if both are unknown a GPU counts 1.
//
//	worth = (tflops/270 + hourly/$1.50) / 2
func Worth(tflops float64, hourly money.PerGPUHour) float64 {
	speed, price := tflops/ReferenceTFLOPS, float64(hourly/ReferencePrice)
	switch {
	case tflops <= 0 && hourly <= 0:
		return 1
	case tflops <= 0:
		return price
	case hourly <= 0:
		return speed
	}

	return (speed + price) / 2
}

// Share is the usage of a project as it is stored.
type Share struct {
	Project id.Project `json:"project"`
	Seq     uint64     `json:"seq"`
	Use     float64    `json:"use"` // decayed, in GPU-seconds of the reference GPU, as of At
	At      time.Time  `json:"at"`
}

// Shares is the usage of projects. The zero value is empty.
type Shares struct {
	of      map[id.Project]*share
	changed []*share
}

type share struct {
	Share
	rate  float64 // weight of the runs now
	dirty bool
}

// Load restores the stored shares.
func (s *Shares) Load(stored []Share) {
	for _, k := range stored {
		s.get(k.Project).Share = k
	}
}

func (s *Shares) get(p id.Project) *share {
	r, ok := s.of[p]
	if !ok {
		if s.of == nil {
			s.of = map[id.Project]*share{}
		}

		r = &share{Share: Share{Project: p}}
		s.of[p] = r
	}

	return r
}

// UsageOf returns a project's decayed usage at a time, in GPU-seconds.
func (s *Shares) UsageOf(now time.Time, p id.Project) float64 {
	r, ok := s.of[p]
	if !ok {
		return 0
	}

	return Decayed(r.Share.Use, r.rate, now.Sub(r.At))
}

// UsageByProject returns the decayed usage of all projects at a time, in GPU-seconds.
func (s *Shares) UsageByProject(now time.Time) map[id.Project]float64 {
	usage := make(map[id.Project]float64, len(s.of))
	for p := range s.of {
		usage[p] = s.UsageOf(now, p)
	}

	return usage
}

// Rate returns the weight of a project's runs now.
func (s *Shares) Rate(p id.Project) float64 {
	if r, ok := s.of[p]; ok {
		return r.rate
	}

	return 0
}

// Charge changes the weight of a project's runs. Jobs without a project are not counted.
func (s *Shares) Charge(now time.Time, p id.Project, delta float64) {
	if p == "" {
		return
	}

	use := s.UsageOf(now, p)
	r := s.get(p)
	r.Share.Use, r.At = use, now
	r.Seq++
	r.rate += delta
	if r.rate < tiny {
		r.rate = 0
	}

	if !r.dirty {
		r.dirty = true
		s.changed = append(s.changed, r)
	}
}

// Resume counts a run that is live when the server is restarted.
func (s *Shares) Resume(p id.Project, weight float64) {
	if p != "" {
		s.get(p).rate += weight
	}
}

// Take returns what changed since the last time, nil if nothing did.
func (s *Shares) Take() []Share {
	var list []Share
	for _, r := range s.changed {
		r.dirty = false
		list = append(list, r.Share)
	}

	s.changed = s.changed[:0]

	return list
}

// tiny is less than the weight of any run: sums of fractions do not return to exactly zero.
const tiny = 1e-9
