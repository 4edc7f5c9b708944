package spec

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

func TestEveryFieldIsRead(t *testing.T) {
	t.Parallel()
	res := func(change func(*job.Resources)) func(*job.Spec) {
		return func(s *job.Spec) { change(&s.Resources) }
	}
	one := job.Range{Min: 1, Max: 1}
	const gb = job.Bytes(1 << 30)
	tests := []struct {
		text string
		want func(*job.Spec)
	}{
		{"", nil},
		{"name: resnet50-cifar", func(s *job.Spec) { s.Name = "resnet50-cifar" }},
		{"name: 123", func(s *job.Spec) { s.Name = "123" }},
		{"project: vision", func(s *job.Spec) { s.Project = "vision" }},
		{"workdir: ../code", func(s *job.Spec) { s.Workdir = "../code" }},
		{"setup: [pip install x, make]", func(s *job.Spec) { s.Setup = "pip install x\nmake" }},
		{"setup: |\n  one\n  two\n", func(s *job.Spec) { s.Setup = "one\ntwo\n" }},
		{"setup: true", func(s *job.Spec) { s.Setup = "true" }},
		{"framework: pytorch", func(s *job.Spec) { s.Framework = "pytorch" }},
		{"model: {kind: cnn, task: vision, params: 25.6M}", func(s *job.Spec) { s.Model = &job.Model{Kind: "cnn", Task: "vision", Params: 25.6e6} }},
		{"model: {params: 7b}", func(s *job.Spec) { s.Model = &job.Model{Params: 7e9} }},
		{"model: {params: 350 K}", func(s *job.Spec) { s.Model = &job.Model{Params: 350e3} }},
		{"model: {params: 1.5T}", func(s *job.Spec) { s.Model = &job.Model{Params: 1.5e12} }},
		{"model: {params: 1e6}", func(s *job.Spec) { s.Model = &job.Model{Params: 1e6} }},
		{"model: {}", nil},
		{"params: {}", nil},
		{`params: {lr: 1e-3, n: 128, big: 1_000, hex: 0x10, zero: 010, neg: -0, opt: adam, on: true, off: ~, when: 2026-12-01, quoted: "1", list: [1, {a: b}]}`,
			func(s *job.Spec) {
				s.Params = map[string]any{"lr": 1e-3, "n": 128.0, "big": 1000.0, "hex": 16.0, "zero": 10.0, "neg": 0.0, "opt": "adam",
					"on": true, "off": nil, "when": "2026-12-01", "quoted": "1", "list": []any{1.0, map[string]any{"a": "b"}}}
			}},
		{"resources: {}", nil},
		{"resources: {gpus: 4}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 4, Max: 4} })},
		{"resources: {gpus: 1..8}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 1, Max: 8} })},
		{"resources: {gpus: 2..}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 2} })},
		{"resources: {gpus: 2+}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 2} })},
		{"resources: {gpus: ..8}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 1, Max: 8} })},
		{"resources: {gpus: 0}", nil},
		{"resources: {gpus: 64}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 64, Max: 64} })},
		{"resources: {gpu: A100}", res(func(r *job.Resources) { r.GPUs, r.GPU = one, []job.GPUKind{{Model: "A100"}} })},
		{"resources: {gpu: RTX 4090}", res(func(r *job.Resources) { r.GPUs, r.GPU = one, []job.GPUKind{{Model: "RTX 4090"}} })},
		{"resources: {gpu: [A100:80GB, H100]}", res(func(r *job.Resources) {
			r.GPUs, r.GPU = one, []job.GPUKind{{Model: "A100", Memory: 80 * gb}, {Model: "H100"}}
		})},
		{"resources: {gpu: A100:80GB:8}", res(func(r *job.Resources) {
			r.GPUs, r.GPU = job.Range{Min: 8, Max: 8}, []job.GPUKind{{Model: "A100", Memory: 80 * gb}}
		})},
		{"resources: {gpu: A100:1..8, gpus: 1..8}", res(func(r *job.Resources) {
			r.GPUs, r.GPU = job.Range{Min: 1, Max: 8}, []job.GPUKind{{Model: "A100"}}
		})},
		{"resources: {gpu: [A100:2, H100:2]}", res(func(r *job.Resources) {
			r.GPUs, r.GPU = job.Range{Min: 2, Max: 2}, []job.GPUKind{{Model: "A100"}, {Model: "H100"}}
		})},
		{"resources: {gpu: 24GB..}", res(func(r *job.Resources) { r.GPUs, r.GPUMemory = one, job.ByteRange{Min: 24 * gb} })},
		{"resources: {gpu: 24GB..80GB:2}", res(func(r *job.Resources) {
			r.GPUs, r.GPUMemory = job.Range{Min: 2, Max: 2}, job.ByteRange{Min: 24 * gb, Max: 80 * gb}
		})},
		{"resources: {gpu_memory: 24GB}", res(func(r *job.Resources) { r.GPUs, r.GPUMemory = one, job.ByteRange{Min: 24 * gb} })},
		{"resources: {gpu_memory: ..80GB, gpus: 2}", res(func(r *job.Resources) {
			r.GPUs, r.GPUMemory = job.Range{Min: 2, Max: 2}, job.ByteRange{Max: 80 * gb}
		})},
		{"resources: {nodes: 1..4}", res(func(r *job.Resources) { r.Nodes = job.Range{Min: 1, Max: 4} })},
		{"resources: {cpus: 0.5}", res(func(r *job.Resources) { r.CPUs = 500 })},
		{"resources: {memory: 1.5 GiB}", res(func(r *job.Resources) { r.Memory = gb + gb/2 })},
		{"place: cloud", func(s *job.Spec) { s.Place = job.PlaceCloud }},
		{"objective: cost", func(s *job.Spec) { s.Objective = job.ObjectiveCost }},
		{"priority: 100", func(s *job.Spec) { s.Priority = 100 }},
		{"expect: 1h30m", func(s *job.Spec) { s.Expect = job.Duration(90 * time.Minute) }},
		{"expect: 1.0005s", func(s *job.Spec) { s.Expect = job.Duration(time.Second) }},
		{"max_duration: 2d", func(s *job.Spec) { s.MaxDuration = job.Duration(48 * time.Hour) }},
		{"grace: 1h", func(s *job.Spec) { s.Grace = job.Duration(time.Hour) }},
		{"deadline: 2026-12-01T09:00", func(s *job.Spec) { s.Deadline = new(time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)) }},
		{"deadline: 2026-12-01 09:00:30", func(s *job.Spec) { s.Deadline = new(time.Date(2026, 12, 1, 8, 0, 30, 0, time.UTC)) }},
		{"deadline: 2026-12-01T09:00:00Z", func(s *job.Spec) { s.Deadline = new(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)) }},
		{"target: {metric: val_loss, at_most: 0.35}", func(s *job.Spec) { s.Target = &job.Target{Metric: "val_loss", AtMost: new(0.35)} }},
		{"target: {metric: acc, at_least: -1e-2}", func(s *job.Spec) { s.Target = &job.Target{Metric: "acc", AtLeast: new(-0.01)} }},
		{"checkpoint: {dir: out/ckpt, every: 10m}", func(s *job.Spec) {
			s.Checkpoint = &job.Checkpoint{Dir: "out/ckpt", Every: job.Duration(10 * time.Minute)}
		}},
		{"retry: 3", func(s *job.Spec) { s.Retry = 3 }},
		{"env: {}", nil},
		{`env: {A: 1.0, B: "", C: true, D: 0x10, E: "x=y", F: 2026-12-01}`, func(s *job.Spec) {
			s.Env = map[string]string{"A": "1.0", "B": "", "C": "true", "D": "0x10", "E": "x=y", "F": "2026-12-01"}
		}},
		{"env: [A=1, B=, C=x=y]", func(s *job.Spec) { s.Env = map[string]string{"A": "1", "B": "", "C": "x=y"} }},
		{"env: {HOME: null, A: 1}", func(s *job.Spec) { s.Env = map[string]string{"HOME": "/h", "A": "1"} }},
		{"env: [HOME]", func(s *job.Spec) { s.Env = map[string]string{"HOME": "/h"} }},
	}
	opts := Options{Now: now, Location: time.FixedZone("CET", 3600), Env: func(key string) (string, bool) { return "/h", key == "HOME" }}
	covered := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			file, err := Parse([]byte("run: a\n"+tt.text+"\n"), opts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(basic(tt.want), file.Jobs[0].Spec); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
		key, _, _ := strings.Cut(tt.text, ":")
		covered[key] = true
	}
	for _, f := range jobFields() {
		if f.refuse == "" && f.name != "run" && f.name != "needs" && !covered[f.name] {
			t.Errorf("no test reads %s", f.name)
		}
	}
}

func TestRequiredVariablesAreListed(t *testing.T) {
	t.Parallel()
	env := func(key string) (string, bool) { return "v-" + key, true }
	file, err := Parse([]byte("run: a\nenv: {Z: null, B: x, A: ~}\n"), Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Z", "A"}, file.Jobs[0].Required); diff != "" {
		t.Error(diff)
	}
	bad := func(string) (string, bool) { return "\xff", true }
	if _, err := Parse([]byte("run: a\nenv: [A]\n"), Options{Env: bad}); err == nil || codes(err)[0] != "bad_value" {
		t.Errorf("a value that is no text: %v", err)
	}
}

func TestFieldsWithoutBehaviourAreNoted(t *testing.T) {
	t.Parallel()
	text := `run: a
framework: pytorch
model: {kind: cnn}
params: {lr: 1}
resources: {gpus: 1..8, nodes: 2..}
objective: time
deadline: 2026-12-01T09:00
target: {metric: loss, at_most: 1}
checkpoint: {dir: ckpt, every: 10m}
`
	file, err := Parse([]byte(text), Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"framework: kept and shown; nothing depends on it yet.",
		"model: kept and shown; nothing depends on it yet.",
		"params: kept and shown; they are not passed to the program.",
		"objective: kept and shown; placement does not look at it yet.",
		"deadline: kept and shown; the queue does not look at it yet.",
		"target: kept and shown; the job is not stopped when it is reached.",
		"checkpoint.every: kept and shown; nothing depends on it yet.",
		"resources.gpus: a run takes as many of 1..8 as are free when it starts and keeps them; it does not grow or shrink yet.",
		"resources.nodes: a run takes as many of 2.. as are free when it starts and keeps them; it does not grow or shrink yet.",
	}
	if diff := cmp.Diff(want, file.Jobs[0].Notes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	file, err = Parse([]byte("run: a\nresources: {gpus: 2, cpus: 1}\nexpect: 1h\ncheckpoint: {dir: c}\n"), Options{})
	if err != nil || len(file.Jobs[0].Notes) != 0 {
		t.Errorf("a plain job has notes: %v, %v", file, err)
	}
}

func TestExamplesOfTheTableCanBeWritten(t *testing.T) {
	t.Parallel()
	var check func(prefix string, fields []field)
	check = func(prefix string, fields []field) {
		for _, f := range fields {
			text := f.name + ": " + f.example + "\n"
			if f.name != "run" || prefix != "" {
				text = "run: a\n" + strings.Repeat(prefix+":\n  ", min(1, len(prefix))) + text
			}
			if f.name == "needs" {
				text += "---\nname: prepare-data\nrun: a\n"
				text = "name: train\n" + text
			}
			if strings.HasPrefix(prefix, "target") {
				text = strings.Replace(text, "target:\n", "target:\n  "+map[bool]string{true: "at_most: 1", false: "metric: m"}[f.name == "metric"]+"\n", 1)
			}
			_, err := Parse([]byte(text), Options{})
			if f.refuse != "" {
				if got := codes(err); len(got) != 1 || got[0] != "not_supported" {
					t.Errorf("%s: %v, want only not_supported", f.name, err)
				}
			} else if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			if f.doc == "" || f.example == "" || f.fields == nil && (f.kind.words == "" || f.kind.schema == nil || f.kind.read == nil || f.kind.write == nil) {
				t.Errorf("%s: incomplete", f.name)
			}
			check(f.name, f.fields)
		}
	}
	check("", jobFields())
}
