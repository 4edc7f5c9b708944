package job_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

func TestAmendmentStandsInPlaceOfTheJobFile(t *testing.T) {
	t.Parallel()

	s := &job.Spec{
		Run: "train", Budget: 5, Place: job.PlaceLocal, Env: map[string]string{"A": "1", "B": "1"},
		Resources: job.Resources{GPU: []job.GPUKind{{Model: "L4"}}, GPUs: job.Range{Min: 1, Max: 1}},
	}
	first := &job.Amendment{Budget: 9, Env: map[string]string{"B": "2"}}
	second := &job.Amendment{
		Place: job.PlaceAny, GPU: []job.GPUKind{{Model: "L4"}, {Model: "A100"}}, Env: map[string]string{"C": "3"}, By: "ada",
		GPUs: job.Range{Min: 2, Max: 4}, GPUMemory: job.ByteRange{Min: 1 << 30},
	}

	want := &job.Spec{
		Run: "train", Budget: 9, Place: job.PlaceAny, Env: map[string]string{"A": "1", "B": "2", "C": "3"},
		Resources: job.Resources{
			GPU:  []job.GPUKind{{Model: "L4"}, {Model: "A100"}},
			GPUs: job.Range{Min: 2, Max: 4}, GPUMemory: job.ByteRange{Min: 1 << 30},
		},
	}
	both := first.Then(second)

	for name, got := range map[string]*job.Spec{
		"one after the other": second.Apply(first.Apply(s)),
		"combined":            both.Apply(s),
		"twice":               both.Apply(both.Apply(s)),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	if s.Budget != 5 || len(s.Env) != 2 || both.By != "ada" {
		t.Errorf("spec %+v, by %q: want the spec unchanged, by ada", s, both.By)
	}

	var none *job.Amendment
	if none.Apply(s) != s || none.Then(first) != first || first.Then(none) != first || !none.Empty() {
		t.Error("no amendment changes something")
	}
}
