package place_test

import (
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

func TestWhyAJobWithAnImageWaits(t *testing.T) {
	t.Parallel()

	runs := func(hostNetwork bool) func(*fleet.Node) {
		return func(n *fleet.Node) { n.Inventory.Containers = &fleet.Containers{OK: true, HostNetwork: hostNetwork} }
	}
	image := func(s *job.Spec) { s.Image = "python:3.13" }
	gang := func(s *job.Spec) {
		image(s)
		s.Resources.Nodes = job.Range{Min: 2, Max: 2}
	}

	const (
		none    = "needs a node that runs containers, and none that could run it does; a: "
		own     = none + "its containers have networks of their own, so that those of several nodes cannot reach each other"
		install = "install podman or Docker on a node, or remove image from the job"
		share   = "start the agents of nodes with --container-network host, or ask for one node"
	)

	for name, tc := range map[string]struct {
		change       func(*fleet.Node)
		job          func(*job.Spec)
		want, remedy string
	}{
		"an earlier agent": {nil, image, none + "its agent does not run containers", install},
		"no engine": {func(n *fleet.Node) {
			n.Inventory.Containers = &fleet.Containers{Reason: "no container engine"}
		}, image, none + "no container engine", install},
		"several nodes":             {runs(false), gang, own, share},
		"several nodes that do":     {runs(true), gang, "", ""},
		"one node that does":        {runs(false), image, "", ""},
		"a job without a container": {nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", 1, tc.change)
			y.node("b", 1, tc.change)

			got := place.Explain(y.view(), place.QueuedJob{Job: "j9", Need: need(1, tc.job)}, place.Verdict{Due: true})
			if tc.want == "" {
				if got.Blocker != place.BlockNone {
					t.Errorf("it waits: %s", got.Sentence)
				}

				return
			}

			texts := place.Texts(got.Remedies)
			if got.Sentence != tc.want || len(texts) != 1 || texts[0] != tc.remedy {
				t.Errorf("%q, %q\nwant %q, %q", got.Sentence, texts, tc.want, tc.remedy)
			}
		})
	}
}
