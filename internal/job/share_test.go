package job_test

import (
	"testing"

	"trainyard/internal/job"
)

func TestWhatARankDidNotGetOfItsShare(t *testing.T) {
	t.Parallel()

	before := job.ShareUse{Demanded: 100, Entitled: 50, Held: 70}

	for name, c := range map[string]struct {
		now  job.ShareUse
		want float64
	}{
		"its share":          {job.ShareUse{Demanded: 110, Entitled: 55, Held: 75}, 0},
		"more":               {job.ShareUse{Demanded: 110, Entitled: 55, Held: 80}, 0},
		"less":               {job.ShareUse{Demanded: 110, Entitled: 55, Held: 73}, 2},
		"of another agent":   {job.ShareUse{Demanded: 10, Entitled: 5, Held: 5}, 0},
		"less since another": {job.ShareUse{Demanded: 10, Entitled: 5, Held: 4}, 1},
	} {
		if got := c.now.Short(&before); got != c.want {
			t.Errorf("%s: %g s short, want %g", name, got, c.want)
		}
	}
}
