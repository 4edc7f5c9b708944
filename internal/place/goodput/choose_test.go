package goodput

import (
	"math/rand/v2"
	"testing"

	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
)

// draw makes a market of up to five jobs on two kinds of GPUs. What their options
// are worth is drawn, some of them have something now, and prices are none.
func draw(r *rand.Rand) *market {
	m := &market{
		view:     &place.View{},
		kinds:    make([]allocate.Kind, 2),
		capacity: []float64{float64(1 + r.IntN(6)), float64(1 + r.IntN(6))},
		price:    make([]float64, 2),
	}

	free := []float64{m.capacity[0], m.capacity[1]}
	for range 1 + r.IntN(5) {
		t := task{current: -1, worth: []float64{0}}
		for kind := range m.kinds {
			worth := 0.0
			for n := 1; n <= 4; n++ {
				worth += r.Float64()
				t.options = append(t.options, option{kind: kind, gpus: n})
				t.worth = append(t.worth, worth)
			}
		}

		if at := r.IntN(len(t.options)); free[t.options[at].kind] >= float64(t.options[at].gpus) && r.IntN(2) == 0 {
			t.current = at
			free[t.options[at].kind] -= float64(t.options[at].gpus)
			t.worth[at+1] += 0.5
		}

		m.tasks = append(m.tasks, t)
	}

	return m
}

// most is the greatest worth that any choice has, found by trying all.
func (m *market) most(from int, free []float64) float64 {
	if from == len(m.tasks) {
		return 0
	}

	best := m.most(from+1, free)
	for at, o := range m.tasks[from].options {
		if n := float64(o.gpus); n <= free[o.kind] {
			free[o.kind] -= n
			best = max(best, m.tasks[from].worth[at+1]+m.most(from+1, free))
			free[o.kind] += n
		}
	}

	return best
}

// TestTheSearchComesNearTheBest compares the search from either beginning with the
// best of all choices on a thousand small markets.
func TestTheSearchComesNearTheBest(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	got, want := 0.0, 0.0

	for range 1000 {
		m := draw(r)
		best := m.most(0, m.capacity)
		found := 0.0

		for _, c := range []*choice{m.pricedChoice(), m.currentChoice()} {
			c.fill()
			before := c.total
			c.improve()

			if c.total < before-tiny {
				t.Fatalf("the search made %g of %g", c.total, before)
			}

			sum, used := 0.0, make([]float64, 2)
			for i, p := range c.picks {
				sum += m.tasks[i].worth[p+1]

				if p >= 0 {
					used[m.tasks[i].options[p].kind] += float64(m.tasks[i].options[p].gpus)
				}
			}

			if sum > c.total+tiny || sum < c.total-tiny || used[0] > m.capacity[0] || used[1] > m.capacity[1] {
				t.Fatalf("the choice counts %g of %g, and uses %v of %v", c.total, sum, used, m.capacity)
			}

			found = max(found, c.total)
		}

		if found > best+tiny {
			t.Fatalf("found %g where %g is the best", found, best)
		}

		got, want = got+found, want+best
	}

	if share := got / want; share < 0.98 {
		t.Errorf("the search reaches %.3f of the best, want 0.98", share)
	}
}

func TestTheSearchEndsWhenItHasHadItsTime(t *testing.T) {
	t.Parallel()
	m := draw(rand.New(rand.NewPCG(2, 1)))
	asked := 0
	m.enough = func() bool {
		asked++
		return true
	}

	c := m.emptyChoice()
	c.improve()

	if asked != 1 || c.total != 0 {
		t.Errorf("it asked %d times and went on to a worth of %g", asked, c.total)
	}

	m.enough = nil
	c.improve()

	if c.total == 0 {
		t.Error("with all the time there is it found nothing")
	}
}
