package andreas_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/published"
)

func greedy() place.Policy {
	o := published.Defaults()
	o.Rounds = -1
	return published.New(o)
}

// TestThePublishedRule has its choices, also those that ours would not make.
func TestThePublishedRule(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		yard func(c *cluster)
		want map[id.Job]string
	}{
		"the cheapest as if it were alone on its node": {
			// An LSTM alone on two GPUs of a node costs less than alone on one.
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1})
			},
			map[id.Job]string{"j1": "2 TESLA"},
		},
		"a late job takes the fastest whatever it costs others": {
			func(c *cluster) {
				c.node("k1", "K80", 8)
				c.wait(want{speed: alexnet(), due: -2 * hour, late: 30})
				c.wait(want{speed: alexnet(), due: -hour, late: 30})
			},
			map[id.Job]string{"j1": "8 K80", "j2": ""},
		},
		"pressure that is positive counts by its weight": {
			func(c *cluster) {
				c.node("k1", "K80", 8)
				c.wait(want{speed: alexnet(), due: -2 * hour, late: 30})
				c.wait(want{speed: alexnet(), due: -hour, late: 60})
			},
			map[id.Job]string{"j1": "", "j2": "8 K80"},
		},
		"one under less pressure is stopped": {
			func(c *cluster) {
				c.node("k1", "K80", 1)
				c.run(want{speed: alexnet(), due: 30 * hour, late: 30}, seat("k1", 1))
				c.wait(want{speed: alexnet(), due: 24 * hour, late: 30})
			},
			map[id.Job]string{"j1": "", "j2": "1 K80"},
		},
		"what does not fit falls through to the next": {
			func(c *cluster) {
				c.node("t1", "TESLA", 1)
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1})
			},
			map[id.Job]string{"j1": "1 TESLA"},
		},
		"like nodes are not exchanged": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.node("t2", "TESLA", 4)
				c.run(want{speed: lstm(0, 0), due: 20 * hour, late: 1}, seat("t2", 0b1100))
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1})
			},
			map[id.Job]string{"j1": "stays", "j2": "2 TESLA"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			tc.yard(c)

			if diff := cmp.Diff(tc.want, c.given(c.plan(t, greedy()))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDrawnOrdersAreComparedByThePublishedMeasure has two late jobs and one GPU.
func TestDrawnOrdersAreComparedByThePublishedMeasure(t *testing.T) {
	t.Parallel()

	// Both are late at once; put off, each may have to take the slowest, and that
	// counts a hundred times. The first is under more pressure, the second loses more.
	slow := func(on float64) *job.Speed {
		return job.NewSpeed(
			3600,
			0,
			0,
			job.Rate{GPU: "K80", GPUs: 1, PerSecond: 1},
			job.Rate{GPU: "TURING", GPUs: 1, PerSecond: on},
		)
	}

	yard := func() *cluster {
		c := newCluster()
		c.node("k1", "K80", 1)
		c.wait(want{speed: slow(1), due: -10 * hour, late: 1})
		c.wait(want{speed: slow(0.01), due: -hour, late: 5})
		c.node("u1", "TURING", 1, func(n *fleet.Node) { n.Class = fleet.OnDemand })
		c.run(want{speed: lstm(0, 0), due: hour, late: 1, fixed: true}, seat("u1", 1))

		return c
	}

	first, drawn := yard(), yard()
	if diff := cmp.Diff(
		map[id.Job]string{"j1": "1 K80", "j2": "", "j3": "stays"},
		first.given(first.plan(t, greedy())),
	); diff != "" {
		t.Errorf("without chance: %s", diff)
	}

	o := published.Defaults()
	o.Seed = 7
	if diff := cmp.Diff(
		map[id.Job]string{"j1": "", "j2": "1 K80", "j3": "stays"},
		drawn.given(drawn.plan(t, published.New(o))),
	); diff != "" {
		t.Errorf("with chance: %s", diff)
	}
}

// TestFirstPrinciples has the orders, and that what runs is left alone.
func TestFirstPrinciples(t *testing.T) {
	t.Parallel()

	for by, want1 := range map[published.Order]map[id.Job]string{
		published.FIFO:     {"j1": "stays", "j2": "1 K80", "j3": "", "j4": ""},
		published.EDF:      {"j1": "stays", "j2": "", "j3": "1 K80", "j4": ""},
		published.Priority: {"j1": "stays", "j2": "", "j3": "", "j4": "1 K80"},
	} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.node("k1", "K80", 2)
			c.run(want{speed: alexnet(), due: 300 * hour, late: 1}, seat("k1", 1))
			c.wait(want{speed: alexnet(), due: 100 * hour, late: 2})
			c.wait(want{speed: alexnet(), due: 50 * hour, late: 2})
			c.wait(want{speed: alexnet(), due: 100 * hour, late: 3})

			p := published.NewFirstPrinciple(by)
			if diff := cmp.Diff(want1, c.given(c.plan(t, p))); diff != "" {
				t.Error(diff)
			}

			if p.Revises() || p.Name() != "andreas-"+string(by) {
				t.Errorf("%s revises: %v", p.Name(), p.Revises())
			}
		})
	}

	t.Run("jobs behind one that does not fit may start", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.node("k1", "K80", 2)
		c.node("t1", "TESLA", 1)
		four := job.NewSpeed(3600, 0, 0, job.Rate{GPU: "K80", GPUs: 4, PerSecond: 1})
		c.wait(want{speed: four, due: time.Hour, late: 2, spec: job.Resources{GPU: []job.GPUKind{{Model: "K80"}}}})
		c.wait(want{speed: lstm(0, 0), due: time.Hour, late: 2})

		if diff := cmp.Diff(
			map[id.Job]string{"j1": "", "j2": "1 TESLA"},
			c.given(c.plan(t, published.NewFirstPrinciple(published.FIFO))),
		); diff != "" {
			t.Error(diff)
		}
	})
}
