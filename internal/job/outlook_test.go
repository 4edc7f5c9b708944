package job_test

import (
	"testing"
	"time"

	"trainyard/internal/job"
)

func TestHowLongAJobLasts(t *testing.T) {
	t.Parallel()
	const hour = job.Duration(time.Hour)
	speed := job.NewSpeed(7200, 0, 0, job.Rate{GPUs: 1, PerSecond: 1})
	for _, c := range []struct {
		name string
		spec job.Spec
		want time.Duration
	}{
		{"nobody knows", job.Spec{}, 0},
		{"its owner expects", job.Spec{Expect: hour, MaxDuration: 3 * hour}, time.Hour},
		{"its owner expects more than they allow", job.Spec{Expect: 4 * hour, MaxDuration: 3 * hour}, 4 * time.Hour},
		{"its owner allows", job.Spec{MaxDuration: 3 * hour}, 3 * time.Hour},
		{"by its speed", job.Spec{Speed: speed}, 2 * time.Hour},
		{"by its speed, whatever its owner expects", job.Spec{Expect: hour, Speed: speed}, 2 * time.Hour},
		{"no longer than its owner allows", job.Spec{MaxDuration: hour, Speed: speed}, time.Hour},
	} {
		if got := job.NewOutlook(&job.Job{Spec: &c.spec}).Duration(&c.spec, 1, 1); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
