package harvest

import "trainyard/test/bench/information"

// Comparisons says what each side is told.
func Comparisons() []information.Comparison {
	const objective = "most samples"

	curves := information.Told{Work: information.Declared, Speeds: information.Declared}

	return []information.Comparison{{Name: "bench-harvest", Sides: []information.Side{
		{Name: "harvest", Role: information.Headline, Told: curves, Objective: objective},
		{
			Name: "best fixed assignment", Role: information.Opponent, Told: curves, Objective: objective,
		},
		{Name: "equal share", Objective: "equal numbers of nodes"},
		{
			Name: "bound", Objective: objective,
			Told: information.Told{Work: information.Declared, Speeds: information.Declared, Arrivals: information.Oracle},
		},
	}}}
}
