package queue

import (
	"math"
	"time"

	"trainyard/internal/id"
)

// HalfLife is how long it takes until half of the past use of a user or project is forgotten.
const HalfLife = 7 * 24 * time.Hour

// Decayed returns what use of so many GPU-seconds counts after some time, with
// rate GPUs in use all the while.
func Decayed(use, rate float64, passed time.Duration) float64 {
	if passed <= 0 {
		return use
	}

	// Expm1, because over a short time almost nothing is forgotten.
	forgotten := -math.Expm1(-passed.Seconds() / HalfLife.Seconds() * math.Ln2)

	return use*(1-forgotten) + rate*HalfLife.Seconds()/math.Ln2*forgotten
}

// Weight is how much a job counts for fair share while it runs, in GPUs of the
// reference: each of its GPUs counts what it is worth, and a CPU a sixteenth of a GPU,
// the usual ratio in GPU machines.
//
//	weight = nodes · (gpus · worth + cpus/16)
func Weight(gpus float64, nodes int, cpus, worth float64) float64 {
	return float64(nodes) * (gpus*worth + cpus/16)
}

// The GPU that use is counted in: about what an A100 does and what its hour costs.
const (
	ReferenceTFLOPS = 270.0
	ReferencePrice  = 1.50
)

// Worth is how much one GPU counts for fair share: the mean of how fast and how dear
// it is, both compared with the reference. Half an hour of a fast GPU takes as much
// from the others as an hour of one half as fast, and what is provisioned takes from the
// common purse. Where one of the two is not known (0) the other stands for both, and
// where nothing is known a GPU counts 1.
//
//	worth = (tflops/270 + hourly/$1.50) / 2
func Worth(tflops, hourly float64) float64 {
	speed, price := tflops/ReferenceTFLOPS, hourly/ReferencePrice
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

// Share is what a project has used, as it is kept.
type Share struct {
	Project id.Project `json:"project"`
	Seq     uint64     `json:"seq"`
	Use     float64    `json:"use"` // decayed, in GPU-seconds of the reference, as of At
	At      time.Time  `json:"at"`
}

// Shares is what projects have used and use now. The zero value is empty.
type Shares struct {
	of      map[id.Project]*share
	changed []*share
}

type share struct {
	Share
	rate  float64 // weight of what runs now
	dirty bool
}

// Load takes up what was kept.
func (s *Shares) Load(kept []Share) {
	for _, k := range kept {
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

// Use returns a project's decayed use at a time, in GPU-seconds.
func (s *Shares) Use(now time.Time, p id.Project) float64 {
	r, ok := s.of[p]
	if !ok {
		return 0
	}

	return Decayed(r.Share.Use, r.rate, now.Sub(r.At))
}

// Uses returns the decayed use of all projects at a time, in GPU-seconds.
func (s *Shares) Uses(now time.Time) map[id.Project]float64 {
	uses := make(map[id.Project]float64, len(s.of))
	for p := range s.of {
		uses[p] = s.Use(now, p)
	}

	return uses
}

// Rate returns the weight of what a project has in use.
func (s *Shares) Rate(p id.Project) float64 {
	if r, ok := s.of[p]; ok {
		return r.rate
	}

	return 0
}

// Charge changes how much a project has in use now. Jobs without a project are nobody's.
func (s *Shares) Charge(now time.Time, p id.Project, delta float64) {
	if p == "" {
		return
	}

	use := s.Use(now, p)
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

// Resume counts what runs already when the yard is started again.
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

// tiny is less than anything that runs weighs: sums of fractions do not come out at zero exactly.
const tiny = 1e-9
