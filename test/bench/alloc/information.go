package alloc

import "trainyard/test/bench/information"

// Comparisons says what each side knows: the same program, of which all find the same optimum.
func Comparisons() []information.Comparison {
	const objective = "the optimum of the same program"
	same := information.Knowledge{Work: information.None, Speeds: information.Oracle}

	return []information.Comparison{{Name: "bench-alloc", Sides: []information.Side{
		{Name: "allocator", Role: information.Headline, Knowledge: same, Objective: objective},
		{
			Name: "CBC, GLPK (with the start of the process)", Role: information.Opponent, Knowledge: same,
			Objective: objective,
		},
	}}}
}
