package main

import "trainyard/test/bench/information"

// comparisons says what each method is told. The published fits see the points of the run itself, and so does
// nohistory; history and blend also see finished jobs of the same kind.
func comparisons() []information.Comparison {
	const objective = "when the goal is reached"

	points := information.Told{RunTimes: information.Learned}
	history := information.Told{RunTimes: information.Forecast}

	return []information.Comparison{{Name: "bench-forecast", Sides: []information.Side{
		{Name: "nohistory", Role: information.Headline, Told: points, Objective: objective},
		{
			Name: "regression, poly2, poly3, slaq, power (published fits)", Role: information.Opponent, Told: points,
			Objective: objective,
		},
		{Name: "line, logline, families, mean", Told: points, Objective: objective},
		{Name: "history", Told: history, Objective: objective},
		{Name: "blend (what users see)", Told: history, Objective: objective},
	}}}
}
