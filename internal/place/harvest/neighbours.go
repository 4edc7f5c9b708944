package harvest

import (
	"math"
	"math/rand/v2"
	"slices"
)

// neighbourhoods chooses anew for a few jobs at a time.
func (s *search) neighbourhoods() {
	if s.best == nil || len(s.Jobs) == 0 {
		return
	}
	r := rand.New(rand.NewPCG(s.effort.Seed, uint64(len(s.Jobs))))
	short := make([][]int, len(s.Jobs))
	for j := range s.Jobs {
		short[j] = s.shortlist(j)
	}
	for round := range s.effort.Rounds {
		if s.proven() || s.enough() {
			return
		}
		jobs := r.Perm(len(s.Jobs))[:min(len(s.Jobs), 2+round%3)]
		n := newNeighbours(s, jobs, short)
		if n.try(0, 0); n.found != nil {
			for i, j := range jobs {
				s.best[j] = n.found[i]
			}
			s.value += n.gained
		}
	}
}

// listed is how many options of a job are tried in a neighbourhood.
const listed = 24

// shortlist is those of a job's options that gain most at the best prices.
func (s *search) shortlist(j int) []int {
	order := make([]int, len(s.Jobs[j]))
	gain := make([]float64, len(order))
	for i := range order {
		order[i], gain[i] = i, s.gain(&s.Jobs[j][i], s.cheap)
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
	return order[:min(len(order), listed)]
}

// neighbours is a search over the options of a few jobs while the others stay.
type neighbours struct {
	*search
	jobs   []int
	short  [][]int   // options to try, the most valuable first
	rest   []float64 // greatest value of the jobs from here on
	over   []float64 // greatest gain over the best prices of the jobs from here on
	now    []int
	found  []int
	gives  [][]float64 // how much the jobs from here on could give back to each row
	before float64
	gained float64
}

func newNeighbours(s *search, jobs []int, short [][]int) *neighbours {
	n := &neighbours{search: s, jobs: jobs, now: make([]int, len(jobs)), rest: make([]float64, len(jobs)+1), over: make([]float64, len(jobs)+1), short: make([][]int, len(jobs))}
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
		n.short[i] = list
	}
	n.gives = make([][]float64, len(jobs)+1)
	n.gives[len(jobs)] = make([]float64, len(s.Limits))
	for i := len(jobs) - 1; i >= 0; i-- {
		n.gives[i] = n.giving(i)
		n.rest[i] = n.rest[i+1] + s.Jobs[jobs[i]][n.short[i][0]].Value
		most := math.Inf(-1)
		for _, k := range n.short[i] {
			most = math.Max(most, s.gain(&s.Jobs[jobs[i]][k], s.cheap))
		}
		n.over[i] = n.over[i+1] + most
	}
	return n
}

// try looks at the options of the i-th job and of those after it. A row that was
// short because of these jobs alone must fit again at the end.
func (n *neighbours) try(i int, value float64) {
	known := n.before + n.gained + 1e-12*math.Abs(n.before)
	if value+n.rest[i] <= known || value+n.over[i]+n.left() <= known {
		return
	}
	if i == len(n.jobs) {
		if !n.overdrawn() {
			n.found, n.gained = slices.Clone(n.now), value-n.before
		}
		return
	}
	options := n.Jobs[n.jobs[i]]
	for _, k := range n.short[i] {
		o := &options[k]
		if value+o.Value+n.rest[i+1] <= n.before+n.gained {
			return
		}
		if n.tooMuch(o, i+1) {
			continue
		}
		n.draw(o, -1)
		n.now[i] = k
		n.try(i+1, value+o.Value)
		n.draw(o, 1)
	}
}

// left is what the rest of the rows is worth at the best prices. No jobs can gain
// more with it than that and what they gain over the prices.
func (n *neighbours) left() float64 {
	v := 0.0
	for r, p := range n.cheap {
		v += p * n.slack[r]
	}
	return v
}

// tooMuch reports whether an option overdraws a row by more than the jobs still to
// be chosen for could give back.
func (n *neighbours) tooMuch(o *Option, from int) bool {
	for _, u := range o.Uses {
		if u.Amount > 0 && n.slack[u.Row]-u.Amount+n.tiny[u.Row]+n.gives[from][u.Row] < 0 {
			return true
		}
	}
	return false
}

// giving is the most that one of a job's listed options gives back to each row,
// on top of what the jobs after it give.
func (n *neighbours) giving(i int) []float64 {
	total := slices.Clone(n.gives[i+1])
	most := make([]float64, len(total))
	for _, k := range n.short[i] {
		for _, u := range n.Jobs[n.jobs[i]][k].Uses {
			most[u.Row] = math.Max(most[u.Row], -u.Amount)
		}
	}
	for r, m := range most {
		total[r] += m
	}
	return total
}
