package share_test

import (
	"testing"

	"trainyard/internal/agent/share"
)

func normal(weight float64) share.Terms { return share.Terms{Weight: weight, Class: share.Normal} }

func TestJobsGetTheirShares(t *testing.T) {
	t.Parallel()

	cases := map[string]map[string]float64{
		"70/30":    {"a": 0.7, "b": 0.3},
		"90/10":    {"a": 0.9, "b": 0.1},
		"50/30/20": {"a": 0.5, "b": 0.3, "c": 0.2},
	}

	for name, weights := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			g := newGPU(t, 16<<30)
			programs := map[string]*program{}

			for job, w := range weights {
				g.add(job, normal(w), 0)
				programs[job] = g.run(job, "sync=10")
			}

			wantShares(t, g.shares(12, programs), weights)

			if mode := g.broker.Mode(); mode != share.Token {
				t.Errorf("mode is %s, want token", mode)
			}
		})
	}
}
