package harvest

import "trainyard/test/bench/information"

// Comparisons says what each side knows. Harvest reads the speeds that the job files declare; the fixed assignment is
// the best for just these jobs in just this time, so it knows all of them beforehand.
func Comparisons() []information.Comparison {
	const objective = "most samples"

	curves := information.Knowledge{Work: information.Declared, Speeds: information.Declared}
	all := information.Knowledge{Work: information.Declared, Speeds: information.Declared, Arrivals: information.Oracle}

	return []information.Comparison{{Name: "bench-harvest", Sides: []information.Side{
		{Name: "harvest, hpo and mix", Role: information.Headline, Knowledge: curves, Objective: objective},
		{
			Name: "best fixed assignment (nodes that stay)", Role: information.Opponent, Knowledge: all, Objective: objective,
		},
		{Name: "harvest, mix_speedup", Knowledge: curves, Objective: "most speed-up over one node, summed over jobs"},
		{Name: "equal share", Objective: "as many nodes for every job"},
		{Name: "bound", Knowledge: all, Objective: objective},
	}}}
}
