package simulator

import "trainyard/test/bench/information"

// Comparisons says what each side knows: the same trace.
func Comparisons() []information.Comparison {
	const objective = "the same schedule, in little time"

	return []information.Comparison{{Name: "bench-sim", Sides: []information.Side{
		{Name: "strict FIFO, ours", Role: information.Headline, Objective: objective},
		{Name: "strict FIFO, reference.py", Role: information.Opponent, Objective: objective},
	}}}
}
