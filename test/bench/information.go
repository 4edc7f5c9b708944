package main

import "trainyard/test/bench/information"

// comparisons says what Trainyard and Slurm know: the same jobs, by clients of the same kind, one after the other
// on one machine.
func comparisons() []information.Comparison {
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
