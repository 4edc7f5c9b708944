package elastic

import "trainyard/test/bench/information"

// Comparisons says what each side of each table knows.
func Comparisons() []information.Comparison {
	return []information.Comparison{
		phillyUnknown(), phillyKnown(), gavelFairness(), gavelBlind(), gavelLastEnd(), polluxKnowledge(), siaKnowledge(),
		generatedKnowledge(),
	}
}

// Objectives, and where figures of others are from.
const (
	shortMean = "short mean completion"
	maxMin    = "max-min fairness of throughput"
	lastEnd   = "early last end"
	arrival   = "order of arrival"
	various   = "each its own rule"

	tiresias       = "Tiresias' simulator, published"
	gavelSimulator = "Gavel's simulator on this trace, earlier run"
	theirResults   = "their simulator on this workload, earlier run"
)

const otherElastic = "other elastic rules"

// attained is what a side has that looks at how much a job has had so far.
func attained() information.Knowledge { return information.Knowledge{RunTimes: information.Learned} }

// everything is known of a job: its work, how fast it is and so how long it runs.
func everything(speeds information.Source) information.Knowledge {
	return information.Knowledge{Work: information.Declared, RunTimes: information.Declared, Speeds: speeds}
}

// phillyUnknown is the virtual cluster 6c71a0 of the Philly trace with unknown run times.
func phillyUnknown() information.Comparison {
	return information.Comparison{Name: "bench-elastic: Philly, run times unknown", Sides: []information.Side{
		{Name: "las", Role: information.Headline, Knowledge: attained(), Objective: shortMean},
		{Name: "dlas-gpu", Role: information.Opponent, Knowledge: attained(), Objective: shortMean, Figures: tiresias},
		{Name: "goodput", Knowledge: attained(), Objective: shortMean},
		{Name: "fifo-strict", Objective: arrival},
		{Name: "fifo", Objective: arrival, Figures: tiresias},
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

// gavelFairness is Gavel's continuous trace, under the same objective with the same information: the speed of a job on
// each kind of GPU is known, how many steps it has is not.
func gavelFairness() information.Comparison {
	speeds := attained()
	speeds.Speeds = information.Declared
	told := everything(information.Declared)
	unknown, known := gavelCase{knows: stepsUnknown}.note(), gavelCase{}.note()

	c := information.Comparison{Name: "bench-elastic: Gavel, fairness", Sides: []information.Side{
		{Name: "goodput-fair, " + unknown, Role: information.Headline, Knowledge: speeds, Objective: maxMin},
		{
			Name: "max_min_fairness_perf", Role: information.Opponent, Knowledge: speeds, Objective: maxMin,
			Figures: gavelSimulator,
		},
		{Name: "goodput, " + unknown, Knowledge: speeds, Objective: shortMean},
		{Name: "goodput, " + known, Knowledge: told, Objective: shortMean},
		{Name: "srtf, " + known, Knowledge: told, Objective: shortMean},
		{Name: otherElastic + ", " + known, Knowledge: told, Objective: various},
	}}

	for _, harder := range []gavelCase{{start: gavelStart}, {apart: true}} {
		c.Sides = append(c.Sides, information.Side{
			Name: "goodput, " + harder.note(), Knowledge: told, Objective: shortMean,
		})

		harder.knows = stepsUnknown
		c.Sides = append(c.Sides, information.Side{
			Name: "goodput-fair, " + harder.note(), Knowledge: speeds, Objective: maxMin,
		})
	}

	return c
}

// gavelBlind is the same without speeds.
func gavelBlind() information.Comparison {
	published := attained()
	published.Speeds = information.Published
	alike := gavelCase{knows: modelsAlike}.note()

	return information.Comparison{Name: "bench-elastic: Gavel, fairness, speeds unknown", Sides: []information.Side{
		{Name: "goodput-fair, " + alike, Role: information.Headline, Knowledge: attained(), Objective: maxMin},
		{
			Name: "max_min_fairness", Role: information.Opponent, Knowledge: attained(), Objective: maxMin,
			Figures: gavelSimulator,
		},
		{Name: "goodput-fair, " + gavelCase{knows: speedsUnknown}.note(), Knowledge: published, Objective: maxMin},
		{Name: "las, " + alike, Knowledge: attained(), Objective: shortMean},
		{Name: "fifo, " + alike, Objective: arrival},
	}}
}

// gavelLastEnd is Gavel's static trace.
func gavelLastEnd() information.Comparison {
	told := everything(information.Declared)
	known := gavelCase{}.note()

	return information.Comparison{Name: "bench-elastic: Gavel, makespan", Sides: []information.Side{
		{Name: "goodput-makespan, " + known, Role: information.Headline, Knowledge: told, Objective: lastEnd},
		{
			Name: "min_total_duration_perf", Role: information.Opponent, Knowledge: told, Objective: lastEnd,
			Figures: gavelSimulator,
		},
		{
			Name: "min_total_duration", Knowledge: everything(information.None), Objective: lastEnd,
			Figures: gavelSimulator,
		},
		{Name: "gandiva", Objective: "packing by trial", Figures: gavelSimulator},
		{Name: "goodput-makespan, " + gavelCase{start: gavelStart}.note(), Knowledge: told, Objective: lastEnd},
		{Name: "goodput-makespan, " + gavelCase{apart: true}.note(), Knowledge: told, Objective: lastEnd},
		{Name: "goodput, " + known, Knowledge: told, Objective: shortMean},
		{Name: "srtf, " + known, Knowledge: told, Objective: shortMean},
		{Name: "fifo, " + known, Objective: arrival},
	}}
}

// polluxKnowledge is Pollux's workloads. Its jobs report what ours do.
func polluxKnowledge() information.Comparison {
	reports := attained()
	reports.Speeds = information.Learned

	return information.Comparison{
		Name: "bench-elastic: Pollux",
		Sides: append([]information.Side{
			{Name: "goodput, " + learned, Role: information.Headline, Knowledge: reports, Objective: shortMean},
			{
				Name: "pollux", Role: information.Opponent, Knowledge: reports, Objective: "great mean of speed-ups",
				Figures: theirResults,
			},
			{Name: "tiresias", Knowledge: attained(), Objective: shortMean, Figures: theirResults},
			{
				Name: "optimus", Knowledge: everything(information.Learned), Objective: shortMean, Figures: theirResults,
			},
			{Name: "las, " + rigid, Knowledge: attained(), Objective: shortMean},
			{Name: "goodput, " + rigid, Knowledge: everything(information.Oracle), Objective: shortMean},
		}, oracles()...),
		Differs: "Pollux maximises a mean of the jobs' speed-ups over a fair share, and has no other objective; its " +
			"authors judge it by mean completion, as all rows are here.",
	}
}

// oracles are the rows of Pollux's and Sia's workloads that are told true speeds.
func oracles() []information.Side {
	speeds := attained()
	speeds.Speeds = information.Oracle

	return []information.Side{
		{Name: "goodput, " + untold, Knowledge: speeds, Objective: shortMean},
		{Name: "goodput, " + adaptive, Knowledge: everything(information.Oracle), Objective: shortMean},
		{Name: otherElastic + ", " + adaptive, Knowledge: everything(information.Oracle), Objective: various},
	}
}

// siaKnowledge is Sia's workloads. Sia is told how fast an application is on one GPU of each model.
func siaKnowledge() information.Comparison {
	reports, profiled := attained(), attained()
	reports.Speeds, profiled.Speeds = information.Learned, information.Declared

	return information.Comparison{
		Name: "bench-elastic: Sia",
		Sides: append([]information.Side{
			{Name: "goodput, " + learned, Role: information.Headline, Knowledge: reports, Objective: shortMean},
			{
				Name: "sia", Role: information.Opponent, Knowledge: profiled, Objective: "great mean of normalised goodputs",
				Figures: theirResults,
			},
			{Name: "gavel", Knowledge: profiled, Objective: "throughput by GPU model", Figures: theirResults},
		}, oracles()...),
		Differs: "Sia maximises a mean of the jobs' normalised goodputs, and has no other objective; its authors judge it " +
			"by mean completion, as all rows are here.",
	}
}

// generatedKnowledge is the generated workloads.
func generatedKnowledge() information.Comparison {
	return information.Comparison{
		Name: "bench-elastic: generated",
		Sides: []information.Side{
			{Name: "goodput", Role: information.Headline, Knowledge: everything(information.Declared), Objective: shortMean},
			{
				Name: otherElastic, Role: information.Opponent, Knowledge: everything(information.Declared),
				Objective: various,
			},
		},
		Differs: "every rule was published with its own aim; all are judged by mean completion.",
	}
}
