package elastic

import "trainyard/test/bench/information"

// Comparisons says what each side of each table is told.
func Comparisons() []information.Comparison {
	return []information.Comparison{phillyUntold(), phillyTold()}
}

const (
	shortMean = "short mean completion"
	tiresias  = "Tiresias' simulator, published"
)

// phillyUntold is the virtual cluster 6c71a0 of the Philly trace with unknown run times.
func phillyUntold() information.Comparison {
	attained := information.Told{RunTimes: information.Learned}

	return information.Comparison{Name: "bench-elastic: Philly, run times unknown", Sides: []information.Side{
		{Name: "las", Role: information.Headline, Told: attained, Objective: shortMean},
		{Name: "dlas-gpu", Role: information.Opponent, Told: attained, Objective: shortMean, Figures: tiresias},
		{Name: "goodput", Told: attained, Objective: shortMean},
		{Name: "fifo-strict", Objective: "order of arrival"},
		{Name: "fifo", Objective: "order of arrival", Figures: tiresias},
	}}
}

// phillyTold is the same with known run times.
func phillyTold() information.Comparison {
	known := information.Told{Work: information.Declared, RunTimes: information.Declared}

	return information.Comparison{Name: "bench-elastic: Philly, run times known", Sides: []information.Side{
		{Name: "best of srtf, srsf and goodput", Role: information.Headline, Told: known, Objective: shortMean},
		{Name: "shortest-gpu", Role: information.Opponent, Told: known, Objective: shortMean, Figures: tiresias},
	}}
}
