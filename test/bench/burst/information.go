package burst

import "trainyard/test/bench/information"

// Comparisons says what each side knows. Starburst has a rule for each case, so each is held against the yard that
// knows as much.
func Comparisons() []information.Comparison {
	const objective = "short completion times for little cloud"

	known := information.Knowledge{RunTimes: information.Declared}
	history := information.Knowledge{RunTimes: information.Forecast}
	future := information.Knowledge{RunTimes: information.Declared, Arrivals: information.Oracle}

	return []information.Comparison{
		{Name: "bench-burst: run times declared", Sides: []information.Side{
			{Name: "rules, default", Role: information.Headline, Knowledge: known, Objective: objective},
			{Name: "Starburst, linear_cost", Role: information.Opponent, Knowledge: known, Objective: objective},
			{Name: "rules, forecast", Knowledge: history, Objective: objective},
			{Name: "rules, patience and ageing off, run times declared", Knowledge: known, Objective: objective},
			{Name: "clairvoyant plan, lower bound", Knowledge: future, Objective: objective},
		}},
		{Name: "bench-burst: run times unknown", Sides: []information.Side{
			{Name: "rules, untold", Role: information.Headline, Objective: objective},
			{Name: "Starburst, linear_capacity", Role: information.Opponent, Objective: objective},
			{Name: "rules, forecast", Knowledge: history, Objective: objective},
			{Name: "rules, patience and ageing off, run times learned", Knowledge: history, Objective: objective},
		}},
	}
}
