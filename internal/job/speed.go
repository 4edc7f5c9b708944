package job

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// Speed says how much work a job is and how fast it does it where. Work is in
// the job's own units: samples, steps, epochs. It is made by NewSpeed and never
// changed after that; what is learned about a job makes another one.
type Speed struct {
	Work  float64  `json:"work"`            // units to do in all
	Rates []Rate   `json:"rates"`           // as measured
	Start Duration `json:"start,omitempty"` // from the start of its processes, or a restore, to the first unit
	Save  Duration `json:"save,omitempty"`  // what it takes to save itself when it is told to stop

	curves []*Curve
}

// Rate is one measured speed.
type Rate struct {
	GPU       string  `json:"gpu,omitempty"` // kind, as in resources.gpu; "" for any
	GPUs      int     `json:"gpus"`          // of all nodes together
	Spread    bool    `json:"spread,omitempty"`
	PerSecond float64 `json:"per_second"` // units
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

// prepare draws the curves through the measured points.
func (s *Speed) prepare() {
	s.curves = nil
	for _, r := range s.Rates {
		if slices.ContainsFunc(s.curves, func(c *Curve) bool { return c.Kind == r.GPU }) {
			continue
		}
		c := &Curve{Kind: r.GPU}
		// A kind that cannot be read matches by its text alone.
		if c.kind.UnmarshalText([]byte(r.GPU)) != nil {
			c.kind = GPUKind{Model: r.GPU}
		}
		var together, spread []Rate
		for _, o := range s.Rates {
			switch {
			case o.GPU != r.GPU || o.PerSecond <= 0 || o.GPUs < 0 || o.GPUs > MaxCount:
			case o.Spread:
				spread = append(spread, o)
			default:
				together = append(together, o)
			}
		}
		c.together, c.least = draw(together)
		c.spread, c.leastSpread = draw(spread)
		s.curves = append(s.curves, c)
	}
}

// MaxCount is the greatest number of GPUs of one job that is reckoned with.
const MaxCount = 1 << 14

// draw returns the rate for each count: straight lines between the points, and
// nothing below the first.
func draw(points []Rate) (rates []float64, least int) {
	if len(points) == 0 {
		return nil, 0
	}
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Rate) int { return a.GPUs - b.GPUs })
	last := points[len(points)-1]
	rates = make([]float64, last.GPUs+1)
	for i, p := range points {
		rates[p.GPUs] = p.PerSecond
		if i == 0 || points[i-1].GPUs == p.GPUs {
			continue
		}
		from := points[i-1]
		for n := from.GPUs + 1; n < p.GPUs; n++ {
			rates[n] = from.PerSecond + (p.PerSecond-from.PerSecond)*float64(n-from.GPUs)/float64(p.GPUs-from.GPUs)
		}
	}
	return rates, points[0].GPUs
}

// Curve is how fast a job is on so many GPUs of one kind.
type Curve struct {
	Kind               string
	kind               GPUKind
	together, spread   []float64 // units per second by number of GPUs
	least, leastSpread int
}

// Rate returns the units per second on so many GPUs of so many nodes: 0 below
// the least number that was measured, and no more than at the greatest above it.
// Without points of its own for several nodes it is as fast there as on one.
func (c *Curve) Rate(gpus, nodes int) float64 {
	if c == nil || gpus < 0 {
		return 0
	}
	rates := c.together
	if (nodes > 1 || len(rates) == 0) && len(c.spread) > 0 && (gpus >= c.leastSpread || len(rates) == 0) {
		rates = c.spread
	}
	if len(rates) == 0 {
		return 0
	}
	return rates[min(gpus, len(rates)-1)]
}

// Least returns the smallest number of GPUs with which the job runs.
func (c *Curve) Least() int {
	switch {
	case c == nil:
		return 0
	case len(c.together) == 0:
		return c.leastSpread
	case len(c.spread) == 0:
		return c.least
	}
	return min(c.least, c.leastSpread)
}

// Most returns the greatest number of GPUs that was measured.
func (c *Curve) Most() int {
	if c == nil {
		return 0
	}
	return max(len(c.together), len(c.spread)) - 1
}

// Best returns the greatest rate of the curve.
func (c *Curve) Best() float64 {
	if c == nil {
		return 0
	}
	best := 0.0
	for _, r := range c.together {
		best = math.Max(best, r)
	}
	for _, r := range c.spread {
		best = math.Max(best, r)
	}
	return best
}

// Learned returns a speed that also knows what was observed: a rate measured on
// so many GPUs of a kind. A rate that is known for that count moves to the
// middle between what was thought and what was seen.
func (s *Speed) Learned(seen Rate) *Speed {
	rates := slices.Clone(s.Rates)
	at := slices.IndexFunc(rates, func(r Rate) bool {
		return r.GPUs == seen.GPUs && r.Spread == seen.Spread && strings.EqualFold(r.GPU, seen.GPU)
	})
	if at < 0 {
		rates = append(rates, seen)
	} else {
		rates[at].PerSecond = (rates[at].PerSecond + seen.PerSecond) / 2
	}
	return NewSpeed(s.Work, time.Duration(s.Start), time.Duration(s.Save), rates...)
}

// Progress is what a program tells of itself.
type Progress struct {
	Done  float64   `json:"done"`            // units of work, over all runs of the job
	Work  float64   `json:"work,omitempty"`  // units in all, if that has changed
	Rates []Rate    `json:"rates,omitempty"` // how fast it now believes to be where
	At    time.Time `json:"at,omitzero"`
}
