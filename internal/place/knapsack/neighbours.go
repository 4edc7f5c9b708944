package knapsack

import (
	"math"
	"math/rand/v2"
	"slices"
)

// improve improves the best solution by solving small neighbourhoods: a few jobs choose anew while
// the others stay.
func (s *search) improve() {
	if s.best == nil || len(s.Jobs) == 0 {
		return
	}

	r := rand.New(rand.NewPCG(s.effort.Seed, uint64(len(s.Jobs))))

	short := make([][]int, len(s.Jobs))
	for j := range s.Jobs {
		short[j] = s.shortlist(j)
	}

	for round := range s.effort.Rounds {
		if s.nearBound() || s.timeUp() {
			return
		}

		jobs := r.Perm(len(s.Jobs))[:min(len(s.Jobs), 2+round%3)]
		n := newNeighbourhood(s, jobs, short)
		n.branch(0, 0)

		if n.found != nil {
			for i, j := range jobs {
				s.best[j] = n.found[i]
			}

			s.value += n.gained
		}
	}
}

// shortlistLength is how many options of a job are tried in a neighbourhood.
const shortlistLength = 24

// shortlist returns the options of a job with the largest gain over the best prices.
func (s *search) shortlist(j int) []int {
	order := make([]int, len(s.Jobs[j]))
	gain := make([]float64, len(order))
	for i := range order {
		order[i], gain[i] = i, s.gain(&s.Jobs[j][i], s.bestPrices)
	}

	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case gain[a] > gain[b]:
			return -1
		case gain[a] < gain[b]:
			return 1
		}

		return 0
	})

	return order[:min(len(order), shortlistLength)]
}

// neighbourhood is a branch-and-bound search over the options of a few jobs while the others stay.
type neighbourhood struct {
	*search
	jobs       []int
	options    [][]int   // options to try, the most valuable first
	maxValue   []float64 // sum of the greatest values of the jobs from each index on
	maxGain    []float64 // sum of the greatest gains over the best prices, from each index on
	now        []int
	found      []int
	maxRelease [][]float64 // the most that the jobs from each index on could give back to each row
	before     float64
	gained     float64
}

func newNeighbourhood(s *search, jobs []int, short [][]int) *neighbourhood {
	n := &neighbourhood{search: s, jobs: jobs, now: make([]int, len(jobs)), maxValue: make([]float64, len(jobs)+1),
		maxGain: make([]float64, len(jobs)+1), options: make([][]int, len(jobs))}
	copy(s.slack, s.Limits)
	for j, k := range s.best {
		s.draw(&s.Jobs[j][k], -1)
	}

	for i, j := range jobs {
		s.draw(&s.Jobs[j][s.best[j]], 1)
		n.before += s.Jobs[j][s.best[j]].Value

		list := short[j]
		if !slices.Contains(list, s.best[j]) {
			list = append(slices.Clone(list), s.best[j])
		} else {
			list = slices.Clone(list)
		}

		slices.SortStableFunc(list, func(a, b int) int {
			switch x, y := s.Jobs[j][a].Value, s.Jobs[j][b].Value; {
			case x > y:
				return -1
			case x < y:
				return 1
			}

			return 0
		})

		n.options[i] = list
	}

	n.maxRelease = make([][]float64, len(jobs)+1)
	n.maxRelease[len(jobs)] = make([]float64, len(s.Limits))
	for i := len(jobs) - 1; i >= 0; i-- {
		n.maxRelease[i] = n.releaseOf(i)
		n.maxValue[i] = n.maxValue[i+1] + s.Jobs[jobs[i]][n.options[i][0]].Value

		most := math.Inf(-1)
		for _, k := range n.options[i] {
			most = math.Max(most, s.gain(&s.Jobs[jobs[i]][k], s.bestPrices))
		}

		n.maxGain[i] = n.maxGain[i+1] + most
	}

	return n
}

// branch tries the options of the i-th job and, recursively, of the jobs after it. Rows that these
// jobs alone have overdrawn must be feasible again at the end.
func (n *neighbourhood) branch(i int, value float64) {
	known := n.before + n.gained + 1e-12*math.Abs(n.before)
	if value+n.maxValue[i] <= known || value+n.maxGain[i]+n.slackValue() <= known {
		return
	}

	if i == len(n.jobs) {
		if !n.overdrawn() {
			n.found, n.gained = slices.Clone(n.now), value-n.before
		}

		return
	}

	options := n.Jobs[n.jobs[i]]
	for _, k := range n.options[i] {
		o := &options[k]
		if value+o.Value+n.maxValue[i+1] <= n.before+n.gained {
			return
		}
		if n.tooMuch(o, i+1) {
			continue
		}

		n.draw(o, -1)
		n.now[i] = k
		n.branch(i+1, value+o.Value)
		n.draw(o, 1)
	}
}

// slackValue returns the value of the slack of all rows at the best prices. No choice of the open
// jobs can gain more than this value plus their gains over the prices.
func (n *neighbourhood) slackValue() float64 {
	v := 0.0
	for r, p := range n.bestPrices {
		v += p * n.slack[r]
	}

	return v
}

// tooMuch reports whether an option overdraws a row by more than the jobs that are still open could
// give back.
func (n *neighbourhood) tooMuch(o *Option, from int) bool {
	for _, u := range o.Uses {
		if u.Amount > 0 && n.slack[u.Row]-u.Amount+n.tolerance[u.Row]+n.maxRelease[from][u.Row] < 0 {
			return true
		}
	}

	return false
}

// releaseOf returns the most that any listed option of a job gives back to each row, plus what the
// jobs after it can give back.
func (n *neighbourhood) releaseOf(i int) []float64 {
	total := slices.Clone(n.maxRelease[i+1])
	most := make([]float64, len(total))
	for _, k := range n.options[i] {
		for _, u := range n.Jobs[n.jobs[i]][k].Uses {
			most[u.Row] = math.Max(most[u.Row], -u.Amount)
		}
	}

	for r, m := range most {
		total[r] += m
	}

	return total
}
