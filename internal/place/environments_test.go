package place_test

import (
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

func TestWhyAJobWithAnEnvironmentWaits(t *testing.T) {
	t.Parallel()

	has := func(e fleet.Environments) func(*fleet.Node) {
		return func(n *fleet.Node) { n.Inventory.Environments = &e }
	}
	asks := func(p job.Python) func(*job.Spec) { return func(s *job.Spec) { s.Python = &p } }

	const (
		none    = "needs a node that can build its Python environment, and none that could run it can; a: "
		version = "needs a node that can build an environment with Python 3.12, and none that could run it can; a: "
		uv      = "install uv on a node where all its users can run it"
		conda   = "install micromamba on a node where all its users can run it"
	)

	for name, tc := range map[string]struct {
		change       func(*fleet.Node)
		job          func(*job.Spec)
		want, remedy string
	}{
		"an earlier agent": {nil, asks(job.Python{Packages: []string{"a"}}), none + "its agent builds no Python environments", uv},
		"no tool": {
			has(fleet.Environments{}), asks(job.Python{Requirements: "r.txt"}),
			none + "it has neither uv nor a Python with venv and pip", uv,
		},
		"another version": {
			has(fleet.Environments{Pythons: "Python 3.10, 3.11"}), asks(job.Python{Version: "3.12"}),
			version + "it has no uv, and of Python only 3.10, 3.11", uv,
		},
		"a lock file without uv": {
			has(fleet.Environments{Pythons: "Python 3.11"}), asks(job.Python{UV: "uv.lock"}), none + "it does not have uv", uv,
		},
		"conda without conda": {
			has(fleet.Environments{UV: "uv"}), asks(job.Python{Conda: "e.yml"}),
			none + "it has none of micromamba, mamba and conda", conda,
		},
		"the version is there":       {has(fleet.Environments{Pythons: "Python 3.10, 3.11"}), asks(job.Python{Version: "3.11.7"}), "", ""},
		"uv fetches the version":     {has(fleet.Environments{UV: "uv"}), asks(job.Python{Version: "3.12"}), "", ""},
		"uv for a lock file":         {has(fleet.Environments{UV: "uv"}), asks(job.Python{UV: "uv.lock"}), "", ""},
		"conda":                      {has(fleet.Environments{Conda: "conda"}), asks(job.Python{Conda: "e.yml"}), "", ""},
		"a job without environments": {nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", 1, tc.change)

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
