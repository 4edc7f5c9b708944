package job_test

import (
	"testing"
	"time"

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

// An edit stands in place of the job file and of what was amended before it; what is amended later stands in place
// of it.
func TestEditsAndAmendmentsFollowEachOther(t *testing.T) {
	t.Parallel()

	due := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &job.Spec{Run: "train", Priority: 3, Deadline: &due, Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}}}
	before := &job.Amendment{GPUs: job.Range{Min: 4, Max: 4}, Budget: 7, Env: map[string]string{"A": "1"}}

	wanted := *before.Apply(s)
	wanted.Resources.GPUs, wanted.Priority, wanted.Deadline = job.Range{Min: 2, Max: 2}, 0, nil
	wanted.Expect, wanted.Avoid = job.Duration(time.Hour), []string{"gpu-3"}

	edited := before.Edit(&wanted, "ada", due)
	if diff := cmp.Diff(&wanted, edited.Apply(s)); diff != "" {
		t.Errorf("edited (-want +got):\n%s", diff)
	}

	later := edited.Then(&job.Amendment{GPUs: job.Range{Min: 8, Max: 8}, By: "yard"})
	wanted.Resources.GPUs = job.Range{Min: 8, Max: 8}

	for name, got := range map[string]*job.Spec{"once": later.Apply(s), "twice": later.Apply(later.Apply(s))} {
		if diff := cmp.Diff(&wanted, got); diff != "" {
			t.Errorf("amended after the edit, %s (-want +got):\n%s", name, diff)
		}
	}

	if s.Priority != 3 || s.Deadline == nil || edited.By != "ada" {
		t.Errorf("the job file was changed, or nobody edited it: %+v, %q", s, edited.By)
	}
}
