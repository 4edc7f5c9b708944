package baseline_test

import (
	"fmt"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place/baseline"
	"trainyard/internal/place/placetest"
)

func TestPoliciesAreListedByName(t *testing.T) {
	t.Parallel()
	last := ""
	for _, e := range baseline.Policies() {
		if e.Name <= last {
			t.Errorf("%s stands behind %s", e.Name, last)
		}

		last = e.Name

		p := placetest.Policy(e.Name)
		if p.Name() != e.Name {
			t.Errorf("%s calls itself %s", e.Name, p.Name())
		}

		if e.Rule == "" {
			t.Errorf("%s has no rule", e.Name)
		}
	}
}

// BenchmarkPlan plans for 5,000 waiting jobs and 128 GPUs that are all in use.
func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"fifo", "sjf-easy", "srtf", "las", "fairshare", "elastic-fifo"} {
		b.Run(name, func(b *testing.B) {
			c := placetest.NewCluster()
			for i := range 16 {
				c.Box(fmt.Sprintf("n%02d", i), 8)
			}

			for i := range 5200 {
				c.Add(
					placetest.Job{
						Spec:  placetest.GPUs(1 << (i % 4)),
						Lasts: time.Duration(i%97+1) * time.Minute,
						User:  id.User(fmt.Sprint("u", i%20)),
					},
				)
			}

			w := placetest.NewWorld(c, placetest.Policy(name))
			w.Round(b)

			v := w.View()
			for b.Loop() {
				w.Policy.Plan(v)
			}
		})
	}
}
