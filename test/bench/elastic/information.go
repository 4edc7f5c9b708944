package elastic

import "trainyard/test/bench/information"

// Comparisons says what each side of each table knows.
func Comparisons() []information.Comparison {
	return []information.Comparison{phillyUnknown(), phillyKnown()}
}

const (
	shortMean = "short mean completion"
	tiresias  = "Tiresias' simulator, published"
)

// phillyUnknown is the virtual cluster 6c71a0 of the Philly trace with unknown run times.
func phillyUnknown() information.Comparison {
	attained := information.Knowledge{RunTimes: information.Learned}

	return information.Comparison{Name: "bench-elastic: Philly, run times unknown", Sides: []information.Side{
		{Name: "las", Role: information.Headline, Knowledge: attained, Objective: shortMean},
		{Name: "dlas-gpu", Role: information.Opponent, Knowledge: attained, Objective: shortMean, Figures: tiresias},
		{Name: "goodput", Knowledge: attained, Objective: shortMean},
		{Name: "fifo-strict", Objective: "order of arrival"},
		{Name: "fifo", Objective: "order of arrival", Figures: tiresias},
	}}
}

// phillyKnown is the same with known run times.
func phillyKnown() information.Comparison {
	known := information.Knowledge{Work: information.Declared, RunTimes: information.Declared}

	return information.Comparison{Name: "bench-elastic: Philly, run times known", Sides: []information.Side{
		{Name: "best of srtf, srsf and goodput", Role: information.Headline, Knowledge: known, Objective: shortMean},
		{Name: "shortest-gpu", Role: information.Opponent, Knowledge: known, Objective: shortMean, Figures: tiresias},
	}}
}
