package knapsack

import (
	"math"
	"slices"
)

// Problem is to select one option for each job so that no row is overdrawn and the total value is
// largest. Rows are shared resources: the nodes of each kind, a budget, the quota of a user.
type Problem struct {
	Jobs   [][]Option
	Limits []float64 // of the rows
}

// Option is one alternative for a job, and how much of each row it uses.
type Option struct {
	Value float64
	Uses  []Use
}

// Use is an amount of a row. A negative amount gives something back to the row.
type Use struct {
	Row    int
	Amount float64
}

// Effort limits the search. The same effort gives the same solution.
type Effort struct {
	Prices int         // iterations of the price adjustment; 0 means 300
	Rounds int         // neighbourhoods to try; 0 for 400
	Seed   uint64      // seed for the choice of neighbourhoods
	Enough func() bool // reports that the time is up; nil for no time limit
}

// Found is the best solution of a search. No solution is worth more than Bound.
type Found struct {
	Picks []int
	Value float64
	Bound float64
}

// Search finds a good solution and an upper bound that proves how good it is. It puts a price on
// each row, lets every job choose its best option at these prices, and adjusts the prices until the
// total use matches the limits. The gains of the jobs over the prices, plus the value of the limits
// at these prices, bound every solution from above. The choices are then repaired to fit, and
// improved in small neighbourhoods. Search returns false if it finds no solution that fits.
func Search(p *Problem, e Effort) (Found, bool) {
	s := newSearch(p, e)
	s.startSmall()
	s.adjustPrices()
	s.improve()

	if s.best == nil {
		return Found{Bound: s.bound}, false
	}

	return Found{Picks: s.best, Value: s.value, Bound: math.Max(s.bound, s.value)}, true
}

type search struct {
	*Problem
	effort     Effort
	prices     []float64 // current prices of the rows
	bestPrices []float64 // the prices at which the bound was lowest
	bound      float64
	best       []int // nil until a feasible solution is found
	value      float64
	slack      []float64 // scratch space
	tolerance  []float64 // amount by which rounding may overdraw a row
	picks      []int
}

func newSearch(p *Problem, e Effort) *search {
	if e.Prices == 0 {
		e.Prices = 300
	}

	if e.Rounds == 0 {
		e.Rounds = 400
	}

	tiny := make([]float64, len(p.Limits))
	for r, l := range p.Limits {
		tiny[r] = 1e-9 * math.Max(1, math.Abs(l))
	}

	return &search{
		Problem: p, effort: e, prices: make([]float64, len(p.Limits)), bestPrices: make([]float64, len(p.Limits)),
		bound: math.Inf(1), value: math.Inf(-1), slack: make([]float64, len(p.Limits)),
		picks: make([]int, len(p.Jobs)), tolerance: tiny,
	}
}

func (s *search) timeUp() bool { return s.effort.Enough != nil && s.effort.Enough() }

// gain returns the value of an option minus the price of what it uses.
func (s *search) gain(o *Option, price []float64) float64 {
	v := o.Value
	for _, u := range o.Uses {
		v -= price[u.Row] * u.Amount
	}

	return v
}

// startSmall records the solution in which every job has the option that uses least, so that there
// is a solution as early as possible.
func (s *search) startSmall() {
	copy(s.slack, s.Limits)
	for j, options := range s.Jobs {
		least := math.Inf(1)
		for k := range options {
			if d := s.share(&options[k]); d < least {
				least, s.picks[j] = d, k
			}
		}

		s.draw(&options[s.picks[j]], -1)
	}

	s.round()
}

// share returns how much an option uses, as the sum over the rows of the fraction of their limits.
func (s *search) share(o *Option) float64 {
	d := 0.0
	for _, u := range o.Uses {
		d += u.Amount / math.Max(1, math.Abs(s.Limits[u.Row]))
	}

	return d
}

// adjustPrices raises the prices of overdrawn rows and lowers those of the others, in ever smaller
// steps.
func (s *search) adjustPrices() {
	pace, since := 1.0, 0

	for round := range s.effort.Prices {
		total := 0.0
		copy(s.slack, s.Limits)
		for j, options := range s.Jobs {
			best := math.Inf(-1)
			for k := range options {
				if g := s.gain(&options[k], s.prices); g > best {
					best, s.picks[j] = g, k
				}
			}

			total += best
			s.draw(&options[s.picks[j]], -1)
		}

		for r, l := range s.Limits {
			total += s.prices[r] * l
		}

		since++

		if total < s.bound {
			if s.bound-total > 1e-6*math.Abs(total) {
				since = 0
			}

			s.bound = total
			copy(s.bestPrices, s.prices)
		}

		if since == 10 {
			pace, since = pace/2, 0
		}

		if round%roundEvery == roundEvery-1 {
			s.round()
		}

		if s.nearBound() || pace < 1e-4 || s.timeUp() || !s.step(total, pace) {
			return
		}
	}
}

// roundEvery is the number of price changes between two attempts to turn the choices into a
// solution. At the first prices, which are 0, there would be far too much to repair.
const roundEvery = 12

// optimalityGap is the fraction of the bound that is not worth further search.
const optimalityGap = 1e-5

// nearBound reports whether the best solution is within optimalityGap of the bound.
func (s *search) nearBound() bool { return s.value >= s.bound-optimalityGap*math.Abs(s.bound) }

// step changes the prices and reports whether there was anything to change.
func (s *search) step(total, pace float64) bool {
	square := 0.0
	over := s.overdraft() // computed anew, because repair may have used the slack
	for r, d := range over {
		if s.prices[r] > 0 || d > 0 {
			square += d * d
		}
	}

	if square == 0 {
		return false
	}

	aim := s.value
	if math.IsInf(aim, -1) {
		aim = total - math.Abs(total)/10
	}

	step := pace * math.Max(total-aim, 1e-6*math.Abs(total)) / square
	for r, d := range over {
		s.prices[r] = math.Max(0, s.prices[r]+step*d)
	}

	return true
}

// overdraft returns by how much the relaxed choices overdraw each row.
func (s *search) overdraft() []float64 {
	over := make([]float64, len(s.Limits))
	for r, l := range s.Limits {
		over[r] = -l
	}

	for j, k := range s.picks {
		for _, u := range s.Jobs[j][k].Uses {
			over[u.Row] += u.Amount
		}
	}

	return over
}

// draw subtracts the use of an option from the slack, or adds it back.
func (s *search) draw(o *Option, sign float64) {
	for _, u := range o.Uses {
		s.slack[u.Row] += sign * u.Amount
	}
}

// fits reports whether the slack is enough to replace one option by another.
func (s *search) fits(next, now *Option) bool {
	for _, u := range next.Uses {
		s.slack[u.Row] -= u.Amount
	}

	for _, u := range now.Uses {
		s.slack[u.Row] += u.Amount
	}

	ok := true
	for _, u := range next.Uses {
		ok = ok && s.slack[u.Row] >= -s.tolerance[u.Row]
	}

	for _, u := range now.Uses {
		ok = ok && s.slack[u.Row] >= -s.tolerance[u.Row]
	}

	for _, u := range next.Uses {
		s.slack[u.Row] += u.Amount
	}

	for _, u := range now.Uses {
		s.slack[u.Row] -= u.Amount
	}

	return ok
}

// round turns the relaxed choices into a solution: it repairs them until they fit and then fills up
// what is left.
func (s *search) round() {
	now := slices.Clone(s.picks)
	if !s.repair(now) {
		return
	}

	s.fill(now)
	s.record(now)
}

// record keeps a solution if it is better than the best so far.
func (s *search) record(picks []int) {
	value := 0.0
	for j, k := range picks {
		value += s.Jobs[j][k].Value
	}

	if value > s.value {
		s.best, s.value = slices.Clone(picks), value
	}
}

// repair changes choices until no row is overdrawn, each time the one that loses least value for
// what it gives back. It reports whether it succeeded.
func (s *search) repair(picks []int) bool {
	for range 4*len(picks) + 4 {
		if !s.overdrawn() {
			return true
		}

		bestJob, bestOption, bestLoss := -1, 0, math.Inf(1)
		for j, k := range picks {
			now := &s.Jobs[j][k]
			for i := range s.Jobs[j] {
				next := &s.Jobs[j][i]
				back := s.relief(next, now)
				if i == k || back <= 0 {
					continue
				}

				if loss := (s.gain(now, s.prices) - s.gain(next, s.prices)) / back; loss < bestLoss {
					bestJob, bestOption, bestLoss = j, i, loss
				}
			}
		}

		if bestJob < 0 {
			return false
		}

		s.draw(&s.Jobs[bestJob][picks[bestJob]], 1)
		s.draw(&s.Jobs[bestJob][bestOption], -1)
		picks[bestJob] = bestOption
	}

	return false
}

// overdrawn reports whether any row is overdrawn.
func (s *search) overdrawn() bool {
	for r, v := range s.slack {
		if v < -s.tolerance[r] {
			return true
		}
	}

	return false
}

// relief returns by how much replacing an option reduces the overdraft, each row as a fraction of
// its limit.
func (s *search) relief(next, now *Option) float64 {
	before := s.lacking(next) + s.lacking(now)
	if before == 0 {
		return 0
	}

	s.draw(now, 1)
	s.draw(next, -1)
	after := s.lacking(next) + s.lacking(now)
	s.draw(next, 1)
	s.draw(now, -1)

	return before - after
}

// lacking returns how far the rows that an option uses are overdrawn.
func (s *search) lacking(o *Option) float64 {
	short := 0.0
	for _, u := range o.Uses {
		if v := s.slack[u.Row]; v < 0 {
			short -= v / math.Max(1, math.Abs(s.Limits[u.Row]))
		}
	}

	return short
}

// fill gives jobs better options as long as these fit, the largest gain first.
func (s *search) fill(picks []int) {
	for {
		bestJob, bestOption, most := -1, 0, 0.0
		for j, k := range picks {
			now := &s.Jobs[j][k]
			for i := range s.Jobs[j] {
				if more := s.Jobs[j][i].Value - now.Value; more > most && s.fits(&s.Jobs[j][i], now) {
					bestJob, bestOption, most = j, i, more
				}
			}
		}

		if bestJob < 0 {
			return
		}

		s.draw(&s.Jobs[bestJob][picks[bestJob]], 1)
		s.draw(&s.Jobs[bestJob][bestOption], -1)
		picks[bestJob] = bestOption
	}
}
