package edl

import "trainyard/test/bench/information"

// Comparisons says what each side knows: all three see what waits and what runs, and nothing about its speed.
func Comparisons() []information.Comparison {
	const objective = "short waits and busy CPUs"

	const source = "this run; published figures beside them"

	return []information.Comparison{{Name: "bench-edl", Sides: []information.Side{
		{Name: "off", Objective: "order of arrival, fixed sizes", Figures: source},
		{Name: "edl", Role: information.Opponent, Objective: objective, Figures: source},
		{Name: "ours", Role: information.Headline, Objective: objective},
	}}}
}
