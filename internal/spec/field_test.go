package spec

import (
	"slices"
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
		{"interactive: {idle: 30m}", func(s *job.Spec) {
			s.Interactive = &job.Interactive{Idle: job.Duration(30 * time.Minute)}
		}},
		{"image: ghcr.io/org/name:1.2", func(s *job.Spec) { s.Image = "ghcr.io/org/name:1.2" }},
		{"registry_auth: LOGIN\nimage: a", func(s *job.Spec) { s.Image, s.RegistryAuth = "a", "LOGIN" }},
		{"python: {version: 3.10}", func(s *job.Spec) { s.Python = &job.Python{Version: "3.10"} }},
		{"workdir: .\npython: {version: '3.11.7', requirements: req/base.txt}", func(s *job.Spec) {
			s.Workdir, s.Python = ".", &job.Python{Version: "3.11.7", Requirements: "req/base.txt"}
		}},
		{"python: {requirements: [numpy, 'torch==2.6.0 ; python_version < \"3.13\"']}", func(s *job.Spec) {
			s.Python = &job.Python{Packages: []string{"numpy", "torch==2.6.0 ; python_version < \"3.13\""}}
		}},
		{"workdir: .\npython: {uv: uv.lock}", func(s *job.Spec) { s.Workdir, s.Python = ".", &job.Python{UV: "uv.lock"} }},
		{"workdir: .\npython: {conda: env.yaml}", func(s *job.Spec) {
			s.Workdir, s.Python = ".", &job.Python{Conda: "env.yaml"}
		}},
		{"framework: pytorch", func(s *job.Spec) { s.Framework = "pytorch" }},
		{
			"model: {kind: cnn, task: vision, params: 25.6M}",
			func(s *job.Spec) { s.Model = &job.Model{Kind: "cnn", Task: "vision", Params: 25.6e6} },
		},
		{"model: {params: 7b}", func(s *job.Spec) { s.Model = &job.Model{Params: 7e9} }},
		{"model: {params: 350 K}", func(s *job.Spec) { s.Model = &job.Model{Params: 350e3} }},
		{"model: {params: 1.5T}", func(s *job.Spec) { s.Model = &job.Model{Params: 1.5e12} }},
		{"model: {params: 1e6}", func(s *job.Spec) { s.Model = &job.Model{Params: 1e6} }},
		{"model: {}", nil},
		{"params: {}", nil},
		{
			`params: {lr: 1e-3, n: 128, big: 1_000, hex: 0x10, zero: 010, neg: -0, opt: adam, on: true, off: ~, when: 2026-12-01, quoted: "1", list: [1, {a: b}]}`,
			func(s *job.Spec) {
				s.Params = map[string]any{
					"lr":     1e-3,
					"n":      128.0,
					"big":    1000.0,
					"hex":    16.0,
					"zero":   10.0,
					"neg":    0.0,
					"opt":    "adam",
					"on":     true,
					"off":    nil,
					"when":   "2026-12-01",
					"quoted": "1",
					"list":   []any{1.0, map[string]any{"a": "b"}},
				}
			},
		},
		{
			"params: {lr: {type: number, default: 0.5, max: 1}, opt: {type: string, one_of: [a, b], default: b}, net: {type: cnn}}",
			func(s *job.Spec) {
				s.Params = map[string]any{"lr": 0.5, "opt": "b", "net": map[string]any{"type": "cnn"}}
			},
		},
		{"array: 0..9", func(s *job.Spec) { s.Array = &job.Array{Range: job.Steps{Last: 9, Step: 1}} }},
		{"array: 5..100:5%3", func(s *job.Spec) {
			s.Array = &job.Array{Range: job.Steps{First: 5, Last: 100, Step: 5}, Limit: 3}
		}},
		{"array: [0.10, adam, true, 'a: b']", func(s *job.Spec) {
			s.Array = &job.Array{Values: []string{"0.10", "adam", "true", "a: b"}}
		}},
		{"array: {values: [x, y], limit: 1}", func(s *job.Spec) {
			s.Array = &job.Array{Values: []string{"x", "y"}, Limit: 1}
		}},
		{"array: {limit: 2, values: 0..3}", func(s *job.Spec) {
			s.Array = &job.Array{Range: job.Steps{Last: 3, Step: 1}, Limit: 2}
		}},
		{"data: [cifar10, mri.2026]", func(s *job.Spec) { s.Data = []string{"cifar10", "mri.2026"} }},
		{"data: cifar10", func(s *job.Spec) { s.Data = []string{"cifar10"} }},
		{"budget: $40", func(s *job.Spec) { s.Budget = 40_000_000 }},
		{"resources: {}", nil},
		{"resources: {gpus: 4}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 4, Max: 4} })},
		{"resources: {gpus: 1..8}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 1, Max: 8} })},
		{"resources: {gpus: 2..}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 2} })},
		{"resources: {gpus: 2+}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 2} })},
		{"resources: {gpus: ..8}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 1, Max: 8} })},
		{"resources: {gpus: 0}", nil},
		{"resources: {gpus: 64}", res(func(r *job.Resources) { r.GPUs = job.Range{Min: 64, Max: 64} })},
		{"resources: {gpu: A100}", res(func(r *job.Resources) { r.GPUs, r.GPU = one, []job.GPUKind{{Model: "A100"}} })},
		{
			"resources: {gpu: RTX 4090}",
			res(func(r *job.Resources) { r.GPUs, r.GPU = one, []job.GPUKind{{Model: "RTX 4090"}} }),
		},
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
		{
			"resources: {gpu_memory: 24GB}",
			res(func(r *job.Resources) { r.GPUs, r.GPUMemory = one, job.ByteRange{Min: 24 * gb} }),
		},
		{"resources: {gpu_memory: ..80GB, gpus: 2}", res(func(r *job.Resources) {
			r.GPUs, r.GPUMemory = job.Range{Min: 2, Max: 2}, job.ByteRange{Max: 80 * gb}
		})},
		{"labels: [ssd, zone=a]", func(s *job.Spec) { s.Labels = []string{"ssd", "zone=a"} }},
		{"pool: [lab, a100]", func(s *job.Spec) { s.Pools = []string{"lab", "a100"} }},
		{"nodes: gpu-1", func(s *job.Spec) { s.Nodes = []string{"gpu-1"} }},
		{"avoid: [gpu-3, gpu-4]", func(s *job.Spec) { s.Avoid = []string{"gpu-3", "gpu-4"} }},
		{"after: any\nneeds: [j12, prep@last]", func(s *job.Spec) {
			s.Needs, s.After = []string{"j12", "prep@last"}, job.AfterAny
		}},
		{"after: success\nneeds: j12", func(s *job.Spec) { s.Needs = []string{"j12"} }},
		{"every: 6h\noverlap: skip", func(s *job.Spec) { s.Every = "6h" }},
		{"overlap: allow\nevery: \"0 3 * * mon-fri\"", func(s *job.Spec) {
			s.Every, s.Overlap = "0 3 * * mon-fri", job.OverlapAllow
		}},
		{"resources: {nodes: 1..4}", res(func(r *job.Resources) { r.Nodes = job.Range{Min: 1, Max: 4} })},
		{"resources: {gpu_share: 0.5}", res(func(r *job.Resources) { r.GPUs, r.GPUShare = one, 0.5 })},
		{"resources: {gpu_share: 0.25, gpu_memory: 10GB, share_class: guaranteed, share_limit: 0.5}", res(func(r *job.Resources) {
			r.GPUs, r.GPUShare, r.GPUMemory = one, 0.25, job.ByteRange{Min: 10 * gb}
			r.ShareClass, r.ShareLimit = job.ShareGuaranteed, 0.5
		})},
		{"resources: {gpu_share: 0.5, share_mps: true, share_class: normal}", res(func(r *job.Resources) {
			r.GPUs, r.GPUShare, r.ShareMPS, r.ShareClass = one, 0.5, true, job.ShareNormal
		})},
		{"resources: {gpu_share: 1}", res(func(r *job.Resources) { r.GPUs, r.GPUShare = one, 1 })},
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
		{
			"deadline: 2026-12-01 09:00:30",
			func(s *job.Spec) { s.Deadline = new(time.Date(2026, 12, 1, 8, 0, 30, 0, time.UTC)) },
		},
		{
			"deadline: 2026-12-01T09:00:00Z",
			func(s *job.Spec) { s.Deadline = new(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)) },
		},
		{"late_cost: $2.50\ndeadline: 2026-12-01T09:00:00Z", func(s *job.Spec) {
			s.LateCost, s.Deadline = 2_500_000, new(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC))
		}},
		{"speed: {work: 130M}", func(s *job.Spec) { s.Speed = job.NewSpeed(130e6, 0, 0) }},
		{"speed: {work: 0.5, rates: [{per_second: 1e-3}], start: 1.5s, save: 0s}", func(s *job.Spec) {
			s.Speed = job.NewSpeed(0.5, 1500*time.Millisecond, 0, job.Rate{PerSecond: 1e-3})
		}},
		{"speed: {work: 90, rates: []}", func(s *job.Spec) { s.Speed = job.NewSpeed(90, 0, 0) }},
		{`speed:
  work: 1.28M
  start: 45s
  save: 20s
  rates:
    - {gpu: A100:80GB, gpus: 1, per_second: 900}
    - {gpu: a100:80gb, gpus: 8, per_second: 6.1K}
    - {gpu: A100:80GB, gpus: 8, spread: true, per_second: 5.2K}
    - {gpus: 2, spread: false, per_second: 800}
    - {gpus: 1, share: 0.25, per_second: 70}
resources: {gpus: 1..4, nodes: 1..2}`, func(s *job.Spec) {
			s.Resources.GPUs, s.Resources.Nodes = job.Range{Min: 1, Max: 4}, job.Range{Min: 1, Max: 2}
			s.Speed = job.NewSpeed(1.28e6, 45*time.Second, 20*time.Second,
				job.Rate{GPU: "A100:80GB", GPUs: 1, PerSecond: 900}, job.Rate{GPU: "A100:80GB", GPUs: 8, PerSecond: 6100},
				job.Rate{GPU: "A100:80GB", GPUs: 8, Spread: true, PerSecond: 5200}, job.Rate{GPUs: 2, PerSecond: 800},
				job.Rate{GPUs: 1, Share: 0.25, PerSecond: 70})
		}},
		{
			"target: {metric: val_loss, at_most: 0.35}",
			func(s *job.Spec) { s.Target = &job.Target{Metric: "val_loss", AtMost: new(0.35)} },
		},
		{
			"target: {metric: acc, at_least: -1e-2}",
			func(s *job.Spec) { s.Target = &job.Target{Metric: "acc", AtLeast: new(-0.01)} },
		},
		{
			`metrics: [{match: 'it (?P<step>\d+) err (?P<val_loss>\S+)'}, {file: logs/*.csv}, {mlflow: true}]`,
			func(s *job.Spec) {
				s.Metrics = []job.MetricRule{
					{Match: `it (?P<step>\d+) err (?P<val_loss>\S+)`},
					{File: "logs/*.csv"},
					{MLflow: true},
				}
			},
		},
		{"checkpoint: {dir: out/ckpt, every: 10m}", func(s *job.Spec) {
			s.Checkpoint = &job.Checkpoint{Dir: "out/ckpt", Every: job.Duration(10 * time.Minute)}
		}},
		{"checkpoint: {keep: {last: 2, best: 1, metric: acc, mode: max}}", func(s *job.Spec) {
			s.Checkpoint = &job.Checkpoint{Keep: job.Keep{Last: 2, Best: 1, Metric: "acc", Mode: job.KeepMax}}
		}},
		{
			"on_oom: {attempts: 4, max_gpus: 8, halve: B}\nenv: {B: 64}",
			func(s *job.Spec) {
				s.OnOOM = &job.OnOOM{Attempts: 4, MaxGPUs: 8, Halve: "B"}
				s.Env = map[string]string{"B": "64"}
			},
		},
		{"retry: 3", func(s *job.Spec) { s.Retry = 3 }},
		{"env: {}", nil},
		{`env: {A: 1.0, B: "", C: true, D: 0x10, E: "x=y", F: 2026-12-01}`, func(s *job.Spec) {
			s.Env = map[string]string{"A": "1.0", "B": "", "C": "true", "D": "0x10", "E": "x=y", "F": "2026-12-01"}
		}},
		{"env: [A=1, B=, C=x=y]", func(s *job.Spec) { s.Env = map[string]string{"A": "1", "B": "", "C": "x=y"} }},
		{"env: {HOME: null, A: 1}", func(s *job.Spec) { s.Env = map[string]string{"HOME": "/h", "A": "1"} }},
		{"outputs: ckpt/best.pt", func(s *job.Spec) { s.Outputs = []string{"ckpt/best.pt"} }},
		{"outputs: [a, 'runs/**']", func(s *job.Spec) { s.Outputs = []string{"a", "runs/**"} }},
		{"secrets: KEY", func(s *job.Spec) { s.Secrets = []string{"KEY"} }},
		{"secrets: [KEY, 'CREDENTIALS:file']", func(s *job.Spec) { s.Secrets = []string{"KEY", "CREDENTIALS:file"} }},
		{"env: [HOME]", func(s *job.Spec) { s.Env = map[string]string{"HOME": "/h"} }},
	}

	opts := Options{
		Now:      now,
		Location: time.FixedZone("CET", 3600),
		Env:      func(key string) (string, bool) { return "/h", key == "HOME" },
	}

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
		if f.name != "run" && f.name != "needs" && !covered[f.name] {
			t.Errorf("no test reads %s", f.name)
		}
	}
}

// What is read must be ready for use: the curves are drawn, not only the points kept.
func TestSpeedThatIsReadHasCurves(t *testing.T) {
	t.Parallel()
	text := "run: a\nresources: {gpus: 1..4}\nspeed: {work: 10, rates: [{gpu: A100, gpus: 2, per_second: 4}, {gpu: a100, gpus: 4, per_second: 6}]}\n"
	file, err := Parse([]byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}

	curve := file.Jobs[0].Spec.Speed.On("NVIDIA A100-SXM4-80GB", 80<<30)
	if got := []float64{
		curve.Rate(1, 1),
		curve.Rate(2, 1),
		curve.Rate(3, 1),
		curve.Rate(4, 1),
	}; !slices.Equal(
		got,
		[]float64{0, 4, 5, 6},
	) {
		t.Errorf("rates with 1 to 4 GPUs = %v, want 0, 4, 5, 6", got)
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
late_cost: $1
target: {metric: loss, at_most: 1}
checkpoint: {dir: ckpt, every: 10m}
`

	file, err := Parse([]byte(text), Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}

	// With the line of the field, not of the job's first line (newcomer 25).
	want := []Note{
		{7, "deadline: used by the policies rules, edf and andreas; others only store and show it."},
		{8, "late_cost: used by the policies rules and andreas; others only store and show it."},
		{5, "resources.gpus: a run takes as many of 1..8 as are free when it starts; only policies for elastic jobs change that later."},
		{5, "resources.nodes: a run takes as many of 2.. as are free when it starts; only policies for elastic jobs change that later."},
	}

	if diff := cmp.Diff(want, file.Jobs[0].Notes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	file, err = Parse([]byte("run: a\nresources: {gpus: 2, cpus: 1}\nexpect: 1h\ncheckpoint: {dir: c}\n"), Options{})
	if err != nil || len(file.Jobs[0].Notes) != 0 {
		t.Errorf("a plain job has notes: %v, %v", file, err)
	}
}

// exampleText writes the example of a field with what the fields around it ask for.
func exampleText(at []field) string {
	beside := map[string]string{
		"needs":     "name: train",
		"after":     "needs: j12",
		"overlap":   "every: 6h",
		"late_cost": "deadline: 2026-12-01T09:00",
		"same_gpu":  "gpus: 1, nodes: 2",
		"metric":    "at_most: 1",

		"share_class": "gpu_share: 0.5",
		"share_limit": "gpu_share: 0.5",
		"share_mps":   "gpu_share: 0.5",

		"at_most":    "metric: m",
		"at_least":   "metric: m",
		"speed":      "resources: {gpus: 1..4}",
		"rates":      "work: 1",
		"start":      "work: 1",
		"save":       "work: 1",
		"share":      "gpus: 1, per_second: 1",
		"gpu":        "gpus: 2, per_second: 1",
		"gpus":       "per_second: 1",
		"spread":     "gpus: 2, per_second: 1",
		"per_second": "gpus: 2",
	}

	inRates := len(at) == 3

	text := ""
	for i := len(at) - 1; i >= 0; i-- {
		f := at[i]
		switch {
		case i == len(at)-1:
			text = f.name + ": " + f.example
		case f.list != nil:
			text = f.name + ": [{" + text + "}]"
		default:
			text = f.name + ": {" + text + "}"
		}

		if f.name == "metric" && at[0].name == "checkpoint" {
			continue // it stands alone there
		}

		if extra := beside[f.name]; extra != "" && (f.name != "gpu" && f.name != "gpus" || inRates) {
			separator := ", "
			if i == 0 {
				separator = "\n"
			}

			text += separator + extra
		}
	}

	if at[0].name != "run" {
		text += "\nrun: a"
	}

	if at[0].name == "on_oom" {
		text += "\nenv: {BATCH_SIZE: 32}"
	}

	if at[0].name == "registry_auth" {
		text += "\nimage: ghcr.io/org/name"
	}

	if at[0].name == "python" {
		text += "\nworkdir: ."
	}

	if at[0].name == "needs" {
		text += "\n---\nname: prepare-data\nrun: a"
	}

	return text + "\n"
}

func TestExamplesOfTheTableCanBeWritten(t *testing.T) {
	t.Parallel()
	var check func(above []field, fields []field)
	check = func(above []field, fields []field) {
		for _, f := range fields {
			at := append(slices.Clone(above), f)
			text := exampleText(at)
			_, err := Parse([]byte(text), Options{})
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}

			if f.doc == "" || f.example == "" ||
				f.fields == nil && (f.kind.words == "" || f.kind.schema == nil || f.kind.read == nil || f.kind.write == nil) {
				t.Errorf("%s: incomplete", f.name)
			}

			check(at, f.fields)
		}
	}

	check(nil, jobFields())
}
