package relocate

import (
	"maps"
	"math"
	"slices"

	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	product "trainyard/internal/relocate"
	"trainyard/test/bench/burst"
)

// stretch is a part of the trace on a cluster of its own.
type stretch struct {
	name, from, to string
	nodes          int
	jobs           []burst.Arrival
}

func (s *stretch) load(folder string) (err error) {
	s.jobs, err = burst.Stretch(folder, s.from, s.to)
	return err
}

// heedless moves whenever there is room, whatever that costs and however little is left.
func heedless(p place.Policy) place.Policy {
	return product.Wrap(p, product.Terms{
		Value: map[job.Objective]money.PerHour{}, Margin: math.Inf(-1), Delay: math.MaxFloat64,
		MinDelay: math.MaxInt64,
	})
}

// knowing moves whenever it pays at all. It has no use for margins, since it knows how long each job still takes.
func knowing(p place.Policy, worth float64) place.Policy {
	t := product.Standard()
	t.Value = maps.Clone(t.Value)
	t.Value[job.ObjectiveBalanced] = money.PerHour(worth)
	t.Left, t.Stay, t.Margin = 0, 0, 0

	return product.Wrap(p, t)
}

func meanOf(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}

	return sum / float64(len(list))
}

func quantileOf(list []float64, q float64) float64 {
	slices.Sort(list)
	return list[int(math.Round(q*float64(len(list)-1)))]
}
