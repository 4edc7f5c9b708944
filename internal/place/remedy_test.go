package place_test

import (
	"slices"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

func TestEditsOfARemedy(t *testing.T) {
	t.Parallel()

	asked := job.Resources{
		GPUs: job.Range{Min: 4, Max: 4}, GPU: []job.GPUKind{{Model: "H100"}}, GPUMemory: job.ByteRange{Min: 40 << 30},
		Nodes: job.Range{Min: 2, Max: 2}, CPUs: 16_000, Memory: 64 << 30, SameGPU: true,
	}
	need := fleet.NeedOf(&job.Spec{Resources: asked}, job.Floor{}, nil)

	for name, tc := range map[string]struct {
		change func(*fleet.Need)
		want   []string
	}{
		"the same":         {func(*fleet.Need) {}, nil},
		"another place":    {func(n *fleet.Need) { n.Place = job.PlaceAny }, nil}, // a place cannot be edited
		"fewer GPUs":       {func(n *fleet.Need) { n.GPUs, n.MaxGPUs = 3, 3 }, []string{"resources.gpus=3"}},
		"fewer nodes":      {func(n *fleet.Need) { n.Nodes = 1 }, []string{"resources.nodes=1"}},
		"any model":        {func(n *fleet.Need) { n.Kinds = "" }, []string{"resources.gpu="}},
		"any memory":       {func(n *fleet.Need) { n.GPUMin = 0 }, []string{"resources.gpu_memory="}},
		"mixed GPUs":       {func(n *fleet.Need) { n.SameGPU = false }, []string{"resources.same_gpu="}},
		"fewer CPUs":       {func(n *fleet.Need) { n.CPUs = 500 }, []string{"resources.cpus=0.5"}},
		"less memory":      {func(n *fleet.Need) { n.Memory = 8 << 30 }, []string{"resources.memory=8GB"}},
		"more by its past": {func(n *fleet.Need) { n.Memory = 128 << 30 }, nil}, // a floor, not what it asked for
	} {
		less := need
		tc.change(&less)
		r := place.Remedy{Need: &less}

		if got := r.Edits(&asked); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}

	if got := (&place.Remedy{Text: "add a node"}).Edits(&asked); got != nil {
		t.Errorf("a remedy without a need is the edits %q", got)
	}
}
