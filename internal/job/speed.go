package job

import (
	"cmp"
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

// MaxCount is the greatest number of GPUs of one job that is reckoned with.
const MaxCount = 1 << 14

// line is straight lines between measured points.
type line struct {
	points []Rate    // by number of GPUs, each number once
	rates  []float64 // by number of GPUs, of the first few: they are asked for most
}

// few is how many counts a line keeps the rate of.
const few = 128

// draw makes a line of points. Of two for one count the later is taken.
func draw(points []Rate) line {
	slices.SortStableFunc(points, func(a, b Rate) int { return a.GPUs - b.GPUs })
	var l line
	for _, p := range points {
		if n := len(l.points); n > 0 && l.points[n-1].GPUs == p.GPUs {
			l.points[n-1] = p
			continue
		}

		l.points = append(l.points, p)
	}

	if len(points) > 0 {
		rates := make([]float64, min(l.most(), few)+1)
		for n := range rates {
			rates[n] = l.at(n)
		}

		l.rates = rates
	}

	return l
}

func (l *line) least() int { return l.points[0].GPUs }
func (l *line) most() int  { return l.points[len(l.points)-1].GPUs }

// at returns the rate on so many GPUs: 0 below the first point, and no more than
// at the last above it.
func (l *line) at(gpus int) float64 {
	if gpus < len(l.rates) {
		return l.rates[gpus]
	}
	if gpus >= l.most() {
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

// Curve is how fast a job is on so many GPUs of one kind.
type Curve struct {
	Kind             string
	kind             GPUKind
	together, spread line // on one node, or on however many; and on several
	parts            []Part
}

// Part is how fast a job is on a part of one GPU.
type Part struct{ Share, PerSecond float64 }

// Parts lists the shares of one GPU that the job can do with, smallest first.
func (c *Curve) Parts() []Part {
	if c == nil {
		return nil
	}

	return c.parts
}

// OnPart returns the units per second on a share of one GPU, 0 if it cannot do with that.
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
	if len(c.spread.points) > 0 && (len(l.points) == 0 || nodes > 1 && gpus >= c.spread.least()) {
		l = &c.spread
	}

	if len(l.points) == 0 {
		return 0
	}

	return l.at(gpus)
}

// Least returns the smallest number of GPUs with which the job runs.
func (c *Curve) Least() int {
	switch {
	case c == nil || len(c.together.points)+len(c.spread.points) == 0:
		return 0
	case len(c.together.points) == 0:
		return c.spread.least()
	case len(c.spread.points) == 0:
		return c.together.least()
	}

	return min(c.together.least(), c.spread.least())
}

// Most returns the greatest number of GPUs that was measured.
func (c *Curve) Most() int {
	most := 0
	if c != nil && len(c.together.points) > 0 {
		most = c.together.most()
	}

	if c != nil && len(c.spread.points) > 0 {
		most = max(most, c.spread.most())
	}

	return most
}

// Best returns the greatest rate of the curve.
func (c *Curve) Best() float64 {
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

// Learned returns a speed that also knows what was observed: a rate measured on
// so many GPUs of a kind. A rate that is known for that count moves to the
// middle between what was thought and what was seen.
func (s *Speed) Learned(seen Rate) *Speed {
	rates := slices.Clone(s.Rates)
	at := slices.IndexFunc(rates, func(r Rate) bool {
		return r.GPUs == seen.GPUs && r.Spread == seen.Spread && r.Share == seen.Share && strings.EqualFold(r.GPU, seen.GPU)
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
