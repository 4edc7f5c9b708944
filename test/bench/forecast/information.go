package main

import "trainyard/test/bench/information"

// comparisons says what each method knows. The published fits see the points of the run itself, and so does
// nohistory; history and blend also see finished jobs of the same kind.
func comparisons() []information.Comparison {
	const objective = "when the goal is reached"

	points := information.Knowledge{RunTimes: information.Learned}
	history := information.Knowledge{RunTimes: information.Forecast}

	return []information.Comparison{{Name: "bench-forecast", Sides: []information.Side{
		{Name: "nohistory", Role: information.Headline, Knowledge: points, Objective: objective},
		{
			Name: "regression, poly2, poly3, slaq, power (published fits)", Role: information.Opponent, Knowledge: points,
			Objective: objective,
		},
		{Name: "line, logline, families, mean", Knowledge: points, Objective: objective},
		{Name: "history", Knowledge: history, Objective: objective},
		{Name: "blend (what users see)", Knowledge: history, Objective: objective},
	}}}
}
