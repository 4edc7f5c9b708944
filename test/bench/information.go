package main

import "trainyard/test/bench/information"

// comparisons says for each suite what Trainyard and its opponents, Slurm and HyperQueue, know: the same jobs, one
// after the other on one machine.
func comparisons() map[string][]information.Comparison {
	return map[string][]information.Comparison{"core": coreComparisons(), "scale": scaleComparisons()}
}

func coreComparisons() []information.Comparison {
	const (
		start   = "an early start of a queued job"
		durable = "answers a second, each after the job is on the disk"
	)

	return []information.Comparison{
		{
			Name: "bench-core: submissions", Sides: []information.Side{
				{Name: "Trainyard, SQLite", Role: information.Headline, Objective: durable},
				{
					Name: "Slurm, the better of sbatch and REST", Role: information.Opponent,
					Objective: "answers a second, each before the job table is on the disk",
				},
				{Name: "Trainyard, PostgreSQL; with an idempotency key", Objective: durable},
			},
			Differs: "Slurm writes its job table some seconds after it answers and cannot be set to do so before; its rate is " +
				"higher for that.",
		},
		{
			Name: "bench-core: starts", Sides: []information.Side{
				{Name: "Trainyard, by the API", Role: information.Headline, Objective: start},
				{Name: "Slurm, the better of sbatch and REST", Role: information.Opponent, Objective: start},
				{Name: "Trainyard, by trainyard submit", Objective: start},
				{Name: "Slurm, srun", Objective: "an early start without a queue"},
			},
		},
	}
}

func scaleComparisons() []information.Comparison {
	return []information.Comparison{
		{
			Name: "bench-scale: short jobs", Sides: []information.Side{
				{
					Name: "Trainyard, SQLite", Role: information.Headline,
					Objective: "jobs a second, each on the disk before it is answered and when it has ended",
				},
				{Name: "HyperQueue", Role: information.Opponent, Objective: "jobs a second, all of them in memory"},
			},
			Differs: "HyperQueue loses its jobs with its server unless it keeps a journal, which it does not by default.",
		},
	}
}
