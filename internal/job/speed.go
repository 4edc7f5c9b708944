package job

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/scaling"
)

// Speed is the total work of a job and its measured rates by GPU kind and count. Work is in
// the job's own units: samples, steps, epochs. It is made by NewSpeed and never changed after
// that; an observation makes another one.
type Speed struct {
	Work  float64  `json:"work"`            // total units
	Rates []Rate   `json:"rates"`           // as measured
	Start Duration `json:"start,omitempty"` // from the start of its processes, or a restore, to the first unit
	Save  Duration `json:"save,omitempty"`  // time to save a checkpoint when it is stopped

	curves []*Curve
}

// Rate is one measured speed.
type Rate struct {
	GPU       string  `json:"gpu,omitempty"` // kind, as in resources.gpu; "" for any
	GPUs      int     `json:"gpus"`          // of all nodes together
	Spread    bool    `json:"spread,omitempty"`
	Share     float64 `json:"share,omitempty"` // of one GPU that it can share with other jobs; 0 for whole GPUs
	PerSecond float64 `json:"per_second"`      // units
}

// NewSpeed makes a speed of its measured rates.
func NewSpeed(work float64, start, save time.Duration, rates ...Rate) *Speed {
	s := &Speed{Work: work, Rates: rates, Start: Duration(start), Save: Duration(save)}
	s.prepare()
	return s
}

// UnmarshalJSON reads what was stored.
func (s *Speed) UnmarshalJSON(text []byte) error {
	type plain Speed

	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		return err
	}

	s.prepare()

	return nil
}

// Equal reports whether both say the same.
func (s *Speed) Equal(o *Speed) bool {
	if s == nil || o == nil {
		return s == o
	}

	return s.Work == o.Work && s.Start == o.Start && s.Save == o.Save && slices.Equal(s.Rates, o.Rates)
}

// Kinds lists the kinds of GPU it was measured on, in the order of the rates; "" stands for any.
func (s *Speed) Kinds() []string {
	if s == nil {
		return nil
	}

	kinds := make([]string, len(s.curves))
	for i, c := range s.curves {
		kinds[i] = c.Kind
	}

	return kinds
}

// On returns the curve of a GPU with this name and memory, the first that
// matches, and nil if none does.
func (s *Speed) On(model string, memory Bytes) *Curve {
	if s == nil {
		return nil
	}

	for _, c := range s.curves {
		if c.Kind == "" || c.Kind == model || c.kind.Matches(model, memory) {
			return c
		}
	}

	return nil
}

// prepare makes the curves through the measured points.
func (s *Speed) prepare() {
	s.curves = nil
	for _, r := range s.Rates {
		if slices.ContainsFunc(s.curves, func(c *Curve) bool { return c.Kind == r.GPU }) {
			continue
		}

		c := &Curve{Kind: r.GPU}

		// A kind that cannot be parsed matches by its text alone.
		if c.kind.UnmarshalText([]byte(r.GPU)) != nil {
			c.kind = GPUKind{Model: r.GPU}
		}

		var together, spread []Rate
		for _, o := range s.Rates {
			switch {
			case o.GPU != r.GPU || o.PerSecond <= 0 || o.GPUs < 0 || o.GPUs > MaxCount:
			case o.Share > 0 && o.Share < 1:
				c.parts = append(c.parts, Part{o.Share, o.PerSecond})
			case o.Spread:
				spread = append(spread, o)
			default:
				together = append(together, o)
			}
		}

		slices.SortStableFunc(c.parts, func(a, b Part) int { return cmp.Compare(a.Share, b.Share) })
		c.together, c.spread = draw(together), draw(spread)
		s.curves = append(s.curves, c)
	}
}

// MaxCount is the greatest number of GPUs of one job in a rate.
const MaxCount = 1 << 14

// polyline interpolates linearly between measured points.
type polyline struct {
	points []Rate    // by number of GPUs, each number once
	rates  []float64 // by number of GPUs, for small numbers: a cache
}

// cachedCounts is up to which number of GPUs rates are cached.
const cachedCounts = 128

// draw makes a polyline of points. Of two points with the same count the later is used.
func draw(points []Rate) polyline {
	slices.SortStableFunc(points, func(a, b Rate) int { return a.GPUs - b.GPUs })
	var l polyline
	for _, p := range points {
		if n := len(l.points); n > 0 && l.points[n-1].GPUs == p.GPUs {
			l.points[n-1] = p
			continue
		}

		l.points = append(l.points, p)
	}

	if len(points) > 0 {
		rates := make([]float64, min(l.maxGPUs(), cachedCounts)+1)
		for n := range rates {
			rates[n] = l.at(n)
		}

		l.rates = rates
	}

	return l
}

func (l *polyline) minGPUs() int { return l.points[0].GPUs }
func (l *polyline) maxGPUs() int { return l.points[len(l.points)-1].GPUs }

// at returns the rate on so many GPUs: 0 below the first point, and that of the last point
// above it.
func (l *polyline) at(gpus int) float64 {
	if gpus < len(l.rates) {
		return l.rates[gpus]
	}
	if gpus >= l.maxGPUs() {
		return l.points[len(l.points)-1].PerSecond
	}

	i, found := slices.BinarySearchFunc(l.points, gpus, func(p Rate, n int) int { return p.GPUs - n })
	switch {
	case found:
		return l.points[i].PerSecond
	case i == 0:
		return 0
	}

	from, to := l.points[i-1], l.points[i]

	return from.PerSecond + (to.PerSecond-from.PerSecond)*float64(gpus-from.GPUs)/float64(to.GPUs-from.GPUs)
}

// Curve is the rate of a job by number of GPUs of one kind.
type Curve struct {
	Kind             string
	kind             GPUKind
	together, spread polyline // on one node, or without a statement; and on several nodes
	parts            []Part
}

// Part is the rate of a job on a share of one GPU.
type Part struct{ Share, PerSecond float64 }

// Parts lists the shares of one GPU on which the job can run, smallest first.
func (c *Curve) Parts() []Part {
	if c == nil {
		return nil
	}

	return c.parts
}

// OnPart returns the units per second on a share of one GPU, 0 if it cannot run on that.
func (c *Curve) OnPart(share float64) float64 {
	for _, p := range c.Parts() {
		if p.Share == share {
			return p.PerSecond
		}
	}

	return 0
}

// Rate returns the units per second on so many GPUs of so many nodes: 0 below
// the least number that was measured, and no more than at the greatest above it.
// Without points of its own for several nodes it is as fast there as on one.
func (c *Curve) Rate(gpus, nodes int) float64 {
	if c == nil || gpus < 0 {
		return 0
	}

	l := &c.together
	if len(c.spread.points) > 0 && (len(l.points) == 0 || nodes > 1 && gpus >= c.spread.minGPUs()) {
		l = &c.spread
	}

	if len(l.points) == 0 {
		return 0
	}

	return l.at(gpus)
}

// MinGPUs returns the smallest measured number of GPUs; the job cannot run on fewer.
func (c *Curve) MinGPUs() int {
	switch {
	case c == nil || len(c.together.points)+len(c.spread.points) == 0:
		return 0
	case len(c.together.points) == 0:
		return c.spread.minGPUs()
	case len(c.spread.points) == 0:
		return c.together.minGPUs()
	}

	return min(c.together.minGPUs(), c.spread.minGPUs())
}

// MaxGPUs returns the largest measured number of GPUs.
func (c *Curve) MaxGPUs() int {
	highest := 0
	if c != nil && len(c.together.points) > 0 {
		highest = c.together.maxGPUs()
	}

	if c != nil && len(c.spread.points) > 0 {
		highest = max(highest, c.spread.maxGPUs())
	}

	return highest
}

// MaxRate returns the highest rate of the curve.
func (c *Curve) MaxRate() float64 {
	if c == nil {
		return 0
	}

	best := 0.0
	for _, l := range [][]Rate{c.together.points, c.spread.points} {
		for _, p := range l {
			best = math.Max(best, p.PerSecond)
		}
	}

	return best
}

// sameRate is up to which ratio an observed rate says nothing new.
const sameRate = 1.01

// WithObservation returns a speed that includes an observed rate. If there is a rate for the
// same GPUs already, the new one is the mean of both; if both are nearly the same, nothing was learned.
func (s *Speed) WithObservation(seen Rate) *Speed {
	rates := slices.Clone(s.Rates)
	at := slices.IndexFunc(rates, func(r Rate) bool {
		return r.GPUs == seen.GPUs && r.Spread == seen.Spread && r.Share == seen.Share && strings.EqualFold(r.GPU, seen.GPU)
	})

	switch {
	case at < 0:
		rates = append(rates, seen)
	case rates[at].PerSecond <= seen.PerSecond*sameRate && seen.PerSecond <= rates[at].PerSecond*sameRate:
		return s
	default:
		rates[at].PerSecond = (rates[at].PerSecond + seen.PerSecond) / 2
	}

	return NewSpeed(s.Work, time.Duration(s.Start), time.Duration(s.Save), rates...)
}

// Progress is the progress that a program reports.
type Progress struct {
	Done  float64   `json:"done"`            // units of work, over all runs of the job
	Work  float64   `json:"work,omitempty"`  // total units, if that has changed
	Rates []Rate    `json:"rates,omitempty"` // its current rates by GPU kind and count
	At    time.Time `json:"at,omitzero"`
	// Training is the batch size that it has chosen, with what it measured of it; nil if it does
	// not report that.
	Training *scaling.Training `json:"training,omitempty"`
}
