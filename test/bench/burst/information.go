package burst

import "trainyard/test/bench/information"

// Comparisons says what each side is told.
func Comparisons() []information.Comparison {
	const objective = "short completion times for little cloud"

	declared := information.Told{RunTimes: information.Declared}

	return []information.Comparison{
		{Name: "bench-burst: run times declared", Sides: []information.Side{
			{Name: "rules, defaults", Role: information.Headline, Told: declared, Objective: objective},
			{Name: "Starburst's cost rule", Role: information.Opponent, Told: declared, Objective: objective},
			{Name: "rules, defaults, forecast", Told: information.Told{RunTimes: information.Forecast}, Objective: objective},
			{Name: "rules, patience and ageing off", Told: declared, Objective: objective},
			{
				Name: "clairvoyant, bound", Objective: objective,
				Told: information.Told{RunTimes: information.Declared, Arrivals: information.Oracle},
			},
		}},
		{Name: "bench-burst: run times unknown", Sides: []information.Side{
			{Name: "rules, unknown", Role: information.Headline, Objective: objective},
			{Name: "Starburst's capacity rule", Role: information.Opponent, Objective: objective},
		}},
	}
}
