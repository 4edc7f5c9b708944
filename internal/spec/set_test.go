package spec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
	"trainyard/internal/spec"
)

const editedFile = `name: resnet50
run: python train.py
params: {lr: 0.1, optim.beta: 0.9}
resources:
  gpus: 2
  memory: 8GB
expect: 2h
env: {LR: "0.1"}
`

// A job that is run again, or edited in the queue, is changed field by field, and read again as a whole.
func TestFieldsOfASpecAreSet(t *testing.T) {
	t.Parallel()

	file, err := spec.Parse([]byte(editedFile), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}

	before := file.Jobs[0].Spec

	text, err := spec.Set(before, []string{
		"params.lr=0.3", "params.optim.beta=0.5", "resources.gpus=1..4", "resources.cpus=4", "expect=", "env.LR=0.3",
		"env.NEW=a: b", "checkpoint.keep.last=5", "data=[cifar10, mnist]", "run=python train.py --mode 'x: y' # all",
	})
	if err != nil {
		t.Fatal(err)
	}

	file, err = spec.Parse(text, spec.Options{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}

	want := before
	want.Params = map[string]any{"lr": 0.3, "optim.beta": 0.5}
	want.Resources.GPUs, want.Resources.CPUs, want.Expect = job.Range{Min: 1, Max: 4}, 4000, 0
	want.Env = map[string]string{"LR": "0.3", "NEW": "a: b"}
	want.Checkpoint = &job.Checkpoint{Keep: job.Keep{Last: 5}}
	want.Data, want.Run = []string{"cifar10", "mnist"}, "python train.py --mode 'x: y' # all"

	if diff := cmp.Diff(want, file.Jobs[0].Spec); diff != "" {
		t.Errorf("changed spec (-want +got):\n%s", diff)
	}

	if before.Expect != job.Duration(2*time.Hour) {
		t.Errorf("the spec itself was changed: expect is %s", before.Expect)
	}
}

func TestFieldsThatCannotBeSetAreRefused(t *testing.T) {
	t.Parallel()

	file, err := spec.Parse([]byte(editedFile), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}

	for entry, want := range map[string]string{
		"gpus":             `a change must be KEY=VALUE, got "gpus"`,
		"=3":               `a change must be KEY=VALUE, got "=3"`,
		"name.first=x":     "cannot set name.first",
		"data=[a":          "the value of data is not a list or mapping: [a",
		"resources.gpu5=2": "resources.gpu5: unknown key",
		"priority=high":    "priority",
		"run=":             "run: is required",
	} {
		text, err := spec.Set(file.Jobs[0].Spec, []string{entry})
		if err == nil {
			_, err = spec.Parse(text, spec.Options{})
		}

		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", entry, err, want)
		}
	}
}
