package checkpoint_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/checkpoint"
	"trainyard/internal/id"
)

func stored(epoch, number int) *checkpoint.Checkpoint {
	return &checkpoint.Checkpoint{ID: id.NewCheckpoint("j1", number), Epoch: epoch, Number: number, State: checkpoint.Stored}
}

func TestTheNewestIsTheLastStoredOneOfTheLastRun(t *testing.T) {
	t.Parallel()
	a, b, c, d := stored(1, 1), stored(1, 2), stored(2, 3), stored(2, 4)
	d.State = checkpoint.Corrupt

	for _, all := range [][]*checkpoint.Checkpoint{{a, b, c, d}, {d, c, b, a}} {
		if got := checkpoint.Newest(all); got != c {
			t.Errorf("the newest of %v is %v, want %v", all, got, c)
		}
	}

	if got := checkpoint.Newest([]*checkpoint.Checkpoint{d}); got != nil {
		t.Errorf("a corrupt checkpoint would be restored: %v", got)
	}
}

func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	values := []float64{3, 1, 2, 1, 5}
	var all []*checkpoint.Checkpoint
	for i, v := range values {
		c := stored(1, i+1)
		c.Metric, c.Value = "loss", v
		all = append(all, c)
	}

	all[0].Pinned = true

	tests := map[string]struct {
		rule checkpoint.Rule
		want []int
	}{
		"the newest alone, if the rule says nothing": {checkpoint.Rule{}, []int{2, 3, 4}},
		"the last two":                       {checkpoint.Rule{Last: 2}, []int{2, 3}},
		"the newer of two equally good ones": {checkpoint.Rule{Last: 1, Best: 1}, []int{2, 3}},
		"the greatest":                       {checkpoint.Rule{Last: 1, Best: 3, Higher: true}, []int{2, 4}},
		"none by a metric that none has":     {checkpoint.Rule{Last: 1, Best: 3, Metric: "accuracy"}, []int{2, 3, 4}},
		"all, if more are wanted than exist": {checkpoint.Rule{Last: 9}, nil},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []int
			for _, c := range tt.rule.Surplus(all) {
				got = append(got, c.Number)
			}

			if !slices.Equal(got, tt.want) {
				t.Errorf("surplus = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWhatTheNextRunNeedsIsNeverSurplus(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []*checkpoint.Checkpoint
		for i := range rapid.IntRange(0, 12).Draw(t, "checkpoints") {
			c := stored(1+i/4, i+1)
			c.State = rapid.SampledFrom([]checkpoint.State{
				checkpoint.Partial, checkpoint.Stored, checkpoint.Corrupt, checkpoint.Removed,
			}).Draw(t, "state")
			c.Pinned = rapid.Bool().Draw(t, "pinned")
			all = append(all, c)
		}

		rule := checkpoint.Rule{Last: rapid.IntRange(0, 3).Draw(t, "last"), Best: rapid.IntRange(0, 3).Draw(t, "best")}
		newest := checkpoint.Newest(all)

		for _, c := range rule.Surplus(all) {
			if c == newest || c.Pinned || c.State != checkpoint.Stored {
				t.Fatalf("%+v is surplus", c)
			}
		}
	})
}
