package spec

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/job"
	"trainyard/test/fuzzing"
)

// specs draws specs that Parse can give.
func specs() *rapid.Generator[job.Spec] {
	return rapid.Custom(func(t *rapid.T) job.Spec {
		name := rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?`)
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t\na-z:#'"|>&*!%@{}\[\],\\-]{1,30}`)).
			Filter(func(s string) bool { return !strings.Contains(s, "\x00") && strings.TrimSpace(s) != "" })
		line := text.Filter(func(s string) bool { return !strings.ContainsAny(s, "\n\r") && len(s) <= maxLine })
		opt := func(g *rapid.Generator[string], label string) string {
			return rapid.OneOf(rapid.Just(""), g).Draw(t, label)
		}
		span := rapid.Custom(func(t *rapid.T) job.Duration {
			return job.Duration(rapid.Int64Range(1000, maxTime.Milliseconds()).Draw(t, "ms") * int64(time.Millisecond))
		})
		s := basic(nil)
		s.Name, s.Project, s.Framework = opt(name, "name"), opt(name, "project"), opt(line, "framework")
		s.Run, s.Setup = text.Draw(t, "run"), opt(text, "setup")
		s.Workdir = opt(rapid.StringMatching(`[a-z.]{1,5}(/[a-zA-Z .]{1,5}){0,2}`), "workdir")
		s.Place = rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceLocal, job.PlaceCloud}).Draw(t, "place")
		s.Objective = rapid.SampledFrom([]job.Objective{job.ObjectiveTime, job.ObjectiveCost, job.ObjectiveBalanced}).
			Draw(t, "objective")
		s.Priority, s.Retry = rapid.IntRange(0, maxRank).Draw(t, "priority"), rapid.IntRange(0, maxRetry).Draw(t, "retry")
		s.Expect, s.MaxDuration = span.Draw(t, "expect"), span.Draw(t, "max_duration")
		s.Grace = job.Duration(time.Duration(rapid.IntRange(1, 3600).Draw(t, "grace")) * time.Second)
		s.Resources = drawResources(t)
		if m := (job.Model{Kind: opt(line, "kind"), Params: rapid.SampledFrom([]float64{0, 1, 25.6e6, 7e9, 1234567.5, 1e18}).Draw(t, "size")}); m != (job.Model{}) {
			s.Model = &m
		}

		if rapid.Bool().Draw(t, "has target") {
			s.Target = &job.Target{Metric: line.Draw(t, "metric"), AtMost: new(rapid.Float64().Draw(t, "at_most"))}
		}

		if rapid.Bool().Draw(t, "has checkpoint") {
			s.Checkpoint = &job.Checkpoint{Dir: "a b/c", Every: span.Draw(t, "every"), Keep: job.Keep{
				Last: rapid.IntRange(0, maxKept).Draw(t, "last"), Best: rapid.IntRange(0, maxKept).Draw(t, "best"),
				Metric: opt(line, "keep metric"),
				Mode:   rapid.SampledFrom([]job.KeepMode{"", job.KeepMin, job.KeepMax}).Draw(t, "mode"),
			}}
		}

		if n := rapid.IntRange(0, maxRetry).Draw(t, "oom attempts"); n > 0 {
			s.OnOOM = &job.OnOOM{Attempts: n}
		}

		if rapid.Bool().Draw(t, "has deadline") {
			s.Deadline = new(now.Add(time.Duration(rapid.Int64Range(0, 1e17).Draw(t, "deadline"))))
			s.LateCost = job.Money(rapid.Int64Range(0, 1e15).Draw(t, "late_cost"))
		}

		if rapid.Bool().Draw(t, "interactive") {
			s.Interactive = &job.Interactive{Idle: job.Duration(rapid.Int64Range(60, 1e6).Draw(t, "idle")) * job.Duration(time.Second)}
		}

		s.Speed = drawSpeed(t, s.Resources)
		if env := rapid.MapOf(rapid.StringMatching(`[A-Z_a-z][A-Z_a-z0-9]{0,8}`),
			rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") })).Draw(t, "env"); len(env) > 0 {
			s.Env = env
		}

		if params := rapid.MapOf(rapid.String(), drawPlain(2)).Draw(t, "params"); len(params) > 0 {
			s.Params = params
		}

		switch rapid.IntRange(0, 3).Draw(t, "array") {
		case 0:
			first := rapid.IntRange(-100, 100).Draw(t, "first")
			s.Array = &job.Array{
				Range: job.Steps{First: first, Last: first + rapid.IntRange(0, 500).Draw(t, "more"), Step: rapid.IntRange(1, 9).Draw(t, "step")},
				Limit: rapid.IntRange(0, 9).Draw(t, "limit"),
			}
		case 1:
			s.Array = &job.Array{
				Values: rapid.SliceOfN(rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") }), 1, 4).Draw(t, "values"),
				Limit:  rapid.IntRange(0, 9).Draw(t, "limit"),
			}
		}

		return s
	})
}

func drawResources(t *rapid.T) job.Resources {
	count := func(label string, least, most int) job.Range {
		r := job.Range{Min: rapid.IntRange(least, most).Draw(t, label)}
		if rapid.Bool().Draw(t, label+" bounded") {
			r.Max = rapid.IntRange(r.Min, most).Draw(t, label+" most")
		}

		return r
	}

	r := job.Resources{Nodes: count("nodes", 1, maxNodes), CPUs: job.CPUs(rapid.Int64Range(100, 4096000).Draw(t, "cpus"))}
	if rapid.Bool().Draw(t, "has memory") {
		r.Memory = job.Bytes(rapid.Int64Range(1<<20, 1<<50).Draw(t, "memory"))
	}

	if !rapid.Bool().Draw(t, "has gpus") {
		return r
	}

	r.GPUs = count("gpus", 1, maxGPUs)
	for _, model := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A100", "H100", "RTX 4090", "n/a", "No"}), 0, 3, rapid.ID).Draw(t, "gpu") {
		r.GPU = append(
			r.GPU,
			job.GPUKind{Model: model, Memory: rapid.SampledFrom([]job.Bytes{0, 1 << 20, 80 << 30}).Draw(t, "memory")},
		)
	}

	if rapid.Bool().Draw(t, "has gpu_memory") {
		r.GPUMemory = job.ByteRange{Min: job.Bytes(rapid.Int64Range(1<<20, 1<<40).Draw(t, "least")), Max: 1 << 41}
	}

	return r
}

// drawSpeed draws a speed whose rates are for GPUs that the job could have.
func drawSpeed(t *rapid.T, res job.Resources) *job.Speed {
	if !rapid.Bool().Draw(t, "has speed") {
		return nil
	}

	amount := rapid.OneOf(
		rapid.SampledFrom([]float64{1e-6, 0.5, 1, 999.5, 1e3, 130e6, 1.28e12, 1e18}),
		rapid.Float64Range(1e-6, 1e18),
	)

	span := rapid.Map(
		rapid.Int64Range(0, maxStart.Milliseconds()),
		func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond },
	)

	gpus, kinds := rapid.Just(0), rapid.Just("")
	if res.GPUs.Min > 0 {
		gpus = rapid.IntRange(1, 300)
		kinds = rapid.SampledFrom([]string{"", "A100", "A100:80GB", "RTX 4090", "No"})
	}

	var rates []job.Rate

	least := map[string]int{}
	for _, key := range rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) job.Rate {
		r := job.Rate{GPU: kinds.Draw(t, "gpu"), GPUs: gpus.Draw(t, "gpus"), Spread: rapid.Bool().Draw(t, "spread")}
		r.Spread = r.Spread && r.GPUs != 1
		if r.GPUs == 1 && res.GPUs.Min == 1 && res.Nodes.Min == 1 {
			r.Share = rapid.SampledFrom([]float64{0, 0.01, 0.5, 0.99}).Draw(t, "share")
		}

		return r
	}), 0, 6, rapid.ID).Draw(t, "rates") {
		key.PerSecond = amount.Draw(t, "per_second")
		rates = append(rates, key)

		if had, ok := least[key.GPU]; key.Share == 0 && (!ok || key.GPUs < had) {
			least[key.GPU] = key.GPUs
		}
	}

	for _, n := range least {
		if most := res.GPUs.Max * res.Nodes.Max; most > 0 && n > most {
			return job.NewSpeed(amount.Draw(t, "work"), 0, 0)
		}
	}

	return job.NewSpeed(amount.Draw(t, "work"), span.Draw(t, "start"), span.Draw(t, "save"), rates...)
}

// drawPlain draws what params may hold.
func drawPlain(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.String().AsAny(),
		rapid.Float64().AsAny(),
		rapid.Map(rapid.IntRange(-1<<53, 1<<53), func(i int) any { return float64(i) }),
		rapid.SampledFrom(
			[]any{"", "null", "~", "1", "1e3", "yes", "<<", "2026-12-01", "0x1", "- a", "a: b", "=", "|", "\n", " a\n b\n"},
		),
	}

	key := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"<<", "", "null", "1", "a: b", "?"}))
	if depth > 0 {
		inside := drawPlain(depth - 1)
		kinds = append(kinds,
			rapid.Map(rapid.SliceOfN(inside, 0, 3), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(key, inside, 0, 3), func(m map[string]any) any { return m }))
	}

	return rapid.OneOf(kinds...)
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := specs().Draw(t, "spec")
		text, err := Render(want)
		if err != nil {
			t.Fatal(err)
		}

		file, err := Parse(text, Options{})
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}

		if diff := cmp.Diff(want, file.Jobs[0].Spec); diff != "" {
			t.Fatalf("(-written +read)\n%s\n%s", diff, text)
		}

		// What is stored as JSON must be what was read.
		var stored job.Spec

		blob, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}

		if err := json.Unmarshal(blob, &stored); err != nil {
			t.Fatal(err)
		}

		if again, err := Render(stored); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("after storing (%v):\n%s\nbefore:\n%s", err, again, text)
		}
	})
}

func TestRenderedFileReadsWell(t *testing.T) {
	t.Parallel()
	in := `run: |
  python prepare.py
  python train.py --lr 0.1
name: train
env: [SEED=1, "NOTE=a: b", EMPTY=]
resources: {gpu: [A100:80GB, H100:2], memory: 32768MB, cpus: 1}
params: {lr: 0.1, layers: [64, 64]}
model: {params: 25600000}
place: any
target: {at_most: 0.35, metric: val_loss}
late_cost: 2.5
speed:
  save: 20s
  rates: [{per_second: 900, gpus: 1, spread: false}, {gpu: "A100:81920MB", spread: true, gpus: 2, per_second: 3200}]
  work: 130000000
deadline: 2026-12-01T09:00
`

	want := `name: train
run: |
  python prepare.py
  python train.py --lr 0.1
model:
  params: 25.6M
params:
  layers: [64, 64]
  lr: 0.1
resources:
  gpus: 2
  gpu: ['A100:80GB', H100]
  memory: 32GB
deadline: 2026-12-01T09:00:00Z
late_cost: $2.5
speed:
  work: 130M
  rates:
    - {gpus: 1, per_second: 900}
    - {gpu: 'A100:80GB', gpus: 2, spread: true, per_second: 3.2K}
  save: 20s
target:
  metric: val_loss
  at_most: 0.35
env:
  EMPTY: ""
  NOTE: 'a: b'
  SEED: "1"
`

	file, err := Parse([]byte(in), Options{})
	if err != nil {
		t.Fatal(err)
	}

	got, err := Render(file.Jobs[0].Spec)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPartsOfGPUsAndOtherFieldsAreWritten(t *testing.T) {
	t.Parallel()
	s := basic(func(s *job.Spec) {
		s.Image = "img:1"
		s.Data = []string{"d1", "d2"}
		s.Budget = 40e6
		s.Secrets = []string{"KEY"}
		s.Resources.GPUShare, s.Resources.GPUs = 0.5, job.Range{Min: 1, Max: 1}
		s.Resources.ShareClass, s.Resources.ShareLimit = job.ShareOpportunistic, 0.75
		s.Resources.ShareMPS = true
	})

	got, err := Render(s)
	if err != nil {
		t.Fatal(err)
	}

	want := "run: a\nimage: img:1\ndata: [d1, d2]\nresources:\n  gpus: 1\n  gpu_share: 0.5\n  share_class: opportunistic\n  share_limit: 0.75\n  share_mps: true\nbudget: $40\nsecrets: KEY\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRenderRefusesWhatYAMLCannotHold(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*job.Spec){
		"text that is no UTF-8": func(s *job.Spec) { s.Run = "\xff" },
		"odd parameter":         func(s *job.Spec) { s.Params = map[string]any{"c": make(chan int)} },
		"odd number":            func(s *job.Spec) { s.Params = map[string]any{"c": []any{1 / zero()}} },
		"odd variable":          func(s *job.Spec) { s.Env = map[string]string{"A": "\xff"} },
		"nothing":               func(s *job.Spec) { *s = job.Spec{} },
	} {
		if text, err := Render(basic(change)); err == nil {
			t.Errorf("%s is written as\n%s", name, text)
		}
	}
}

func zero() float64 { return 0 }

func FuzzParse(f *testing.F) {
	_, cases := badCases(f)
	for _, c := range cases {
		f.Add([]byte(c.text))
	}

	for _, text := range []string{
		"run: a\n", "name: a\nrun: [a, b]\nenv: {A: 1, B: '', C: \"x\\ty\"}\n---\nname: b\nrun: |\n  x\n\n   y\nneeds: a\n",
		"run: >-\n  a\n  b\nresources: {gpus: 1..8, gpu: [A100:80GB, 'RTX 4090'], gpu_memory: 24GB.., nodes: 2+, cpus: 0.5, memory: 1.5gb}\n",
		"run: a\nmodel: {params: 25.6M}\nparams: {a: [1, -0.5, 1e-9, ~, yes, 0x1F, .5], b: {c: d}}\ntarget: {metric: m, at_least: -3}\n",
		"run: \"a\\r\\n\\u2028\\x85\\U0001F600\"\ncheckpoint: {dir: a/b, every: 90s}\ndeadline: 2030-01-01T00:00:00+02:00\nexpect: 1w2d3h4m5s6ms\n",
		"run: a\nresources: {gpu: A100, nodes: 1..4}\ndeadline: 2030-01-01T00:00:00Z\nlate_cost: $0.000001\nspeed: {work: .5K, start: 1m, rates: [{gpu: a100, gpus: 2, spread: true, per_second: 1e-9}, {gpu: A100, gpus: 1, per_second: 12.5K}]}\n",
		"%YAML 1.2\n---\nrun: 'a'\n...\n", "? run\n: a\n",
	} {
		f.Add([]byte(text))
	}

	for _, part := range []string{"run: a\n---\n", "rum: a\n", "[", "{a: ", "- &a [*a]\n", "needs: [a, b]\n---\n"} {
		f.Add(append([]byte("name: a\nrun: b\n"), fuzzing.Long([]byte(part))...))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		file, err := Parse(text, Options{})
		if err != nil {
			if file != nil {
				t.Error("both a file and an error")
			}

			checkErrors(t, err)

			return
		}

		var rendered [][]byte
		for _, e := range file.Jobs {
			one, err := Render(e.Spec)
			if err != nil {
				t.Fatal(err)
			}

			rendered = append(rendered, one)
		}

		all := bytes.Join(rendered, []byte("---\n"))
		again, err := Parse(all, Options{})
		if err != nil {
			t.Fatalf("%v in\n%s", err, all)
		}

		if len(again.Jobs) != len(file.Jobs) {
			t.Fatalf("%d jobs became %d", len(file.Jobs), len(again.Jobs))
		}

		for i := range file.Jobs {
			if diff := cmp.Diff(file.Jobs[i].Spec, again.Jobs[i].Spec); diff != "" {
				t.Fatalf("(-read +read again)\n%s\n%s", diff, all)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte(
		"name: train\nworkdir: .\nsetup: pip install -r requirements.txt\nrun: python train.py\nresources: {gpus: 1, cpus: 8, memory: 32GB}\nexpect: 6h\nenv: {SEED: 1}\n",
	)
	for b.Loop() {
		if _, err := Parse(text, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
