package relocate

import "trainyard/test/bench/information"

// Comparisons says what each side knows: for placing jobs all of them have the declared run times. What is left of a
// running job the moves take from forecasts, which know no more than that.
func Comparisons() []information.Comparison {
	const objective = "little on-demand money at the same value of waiting"

	known := information.Knowledge{RunTimes: information.Declared}
	future := information.Knowledge{RunTimes: information.Declared, Arrivals: information.Oracle}

	return []information.Comparison{{Name: "bench-relocate", Sides: []information.Side{
		{Name: "moves, forecasts ours", Role: information.Headline, Knowledge: known, Objective: objective},
		{Name: "never moves", Role: information.Opponent, Knowledge: known, Objective: objective},
		{Name: "moves, forecasts perfect and twice as bad", Knowledge: known, Objective: objective},
		{Name: "moves whenever there is room", Knowledge: known, Objective: objective},
		{Name: "clairvoyant: moves whenever it pays", Knowledge: known, Objective: objective},
		{Name: "lower bound", Knowledge: future, Objective: objective},
	}}}
}
