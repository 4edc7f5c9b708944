package spec

import (
	"time"

	"trainyard/internal/job"
)

// minIdle is the shortest time for which a job may be idle: what it uses is measured and reported every few seconds.
const minIdle = time.Minute

// interactive returns what a spec says about working in the job, made if there is nothing.
func interactive(s *job.Spec) *job.Interactive {
	if s.Interactive == nil {
		s.Interactive = &job.Interactive{}
	}

	return s.Interactive
}

// interactiveField is for jobs that people work in.
func interactiveField() field {
	return field{
		name:    "interactive",
		example: "{idle: 30m}",
		also:    []string{"dev", "notebook"},
		doc: "For a job that a person works in, such as a shell or a notebook: it is stopped when it is idle, and its " +
			"program reads what trainyard attach sends. trainyard shell and trainyard notebook make such jobs.",
		fields: []field{
			{
				name:    "idle",
				kind:    durationKind(func(s *job.Spec) *job.Duration { return &interactive(s).Idle }, minIdle, maxTime),
				example: "30m",
				must:    true,
				also:    []string{"idle_timeout", "inactivity_duration", "idle_duration"},
				doc: "The job is cancelled when it was idle for this long, at least 1m: nothing has gone through its shells, " +
					"commands, copies and forwarded ports, it used less than a tenth of a CPU, and its GPUs were busy for less " +
					"than 5 % of the time. Its owner is warned a fifth of that time before, 5m at most.",
			},
		},
	}
}
