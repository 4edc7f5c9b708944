package demo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/spec"
)

// recipe is a kind of job.
type recipe struct {
	name     string
	projects []id.Project
	weight   float64 // how often it is submitted
	body     string  // what its job file says beside name, project, run, params and target

	hours   float64 // it takes so long on gpus A100s, as a rule
	gpus    int
	rate    float64 // steps a second on those
	learns  float64 // learning rate as a rule
	from    float64 // validation loss before it has learned anything
	to      float64 // and as far as it can get
	decay   float64 // how fast it learns
	drops   bool    // the learning rate drops at a half and at three quarters
	busy    float64 // share of the time in which its GPUs work
	memory  job.Bytes
	weights job.Bytes // size of a checkpoint
}

// recipes are what the group trains.
var recipes = []recipe{
	{
		name: "resnet50", projects: []id.Project{"vision"}, weight: 3, hours: 7, gpus: 4, rate: 9, learns: 0.4,
		from: 6.9, to: 0.92, decay: 14, drops: true, busy: 0.93, memory: 52 * gb, weights: gb / 5,
		body: `
framework: pytorch
model: {kind: cnn, task: vision, params: 25.6M}
data: [imagenet]
resources: {gpus: 4, gpu_memory: 24GB.., cpus: 16, memory: 64GB}
objective: balanced
checkpoint: {dir: ckpt, every: 30m}
retry: 2`,
	},
	{
		name: "resnet18-cifar", projects: []id.Project{"vision"}, weight: 8, hours: 0.6, gpus: 1, rate: 40, learns: 0.1,
		from: 2.4, to: 0.24, decay: 10, drops: true, busy: 0.58, memory: 9 * gb, weights: gb / 20,
		body: `
framework: pytorch
model: {kind: cnn, task: vision, params: 11.2M}
data: [cifar10]
resources: {gpus: 1, cpus: 4, memory: 16GB}
objective: cost
checkpoint: {dir: ckpt, every: 10m}
retry: 1`,
	},
	{
		name: "vit-base", projects: []id.Project{"vision"}, weight: 4, hours: 4, gpus: 1, rate: 5, learns: 0.0003,
		from: 6.9, to: 0.71, decay: 22, busy: 0.95, memory: 34 * gb, weights: gb,
		body: `
framework: pytorch
model: {kind: transformer, task: vision, params: 86M}
data: [imagenet]
resources: {gpus: 1, gpu_memory: 40GB.., cpus: 8, memory: 48GB}
objective: time
checkpoint: {dir: ckpt, every: 20m}
retry: 2`,
	},
	{
		name: "diffusion", projects: []id.Project{"vision"}, weight: 2, hours: 14, gpus: 2, rate: 4, learns: 0.0001,
		from: 1.1, to: 0.021, decay: 60, busy: 0.97, memory: 61 * gb, weights: 3 * gb,
		body: `
framework: pytorch
model: {kind: unet, task: generation, params: 270M}
resources: {gpus: 2, gpu_memory: 40GB.., cpus: 16, memory: 96GB}
objective: cost
checkpoint: {dir: ckpt, every: 1h, keep: {last: 2, best: 1, metric: val_loss}}
retry: 3`,
	},
	{
		name: "gpt-small", projects: []id.Project{"language"}, weight: 3, hours: 22, gpus: 4, rate: 2.4, learns: 0.0006,
		from: 10.8, to: 2.93, decay: 90, busy: 0.96, memory: 68 * gb, weights: 2 * gb,
		body: `
framework: pytorch
model: {kind: transformer, task: language, params: 124M}
data: [web-text]
resources: {gpus: 2..4, gpu: [H100, A100], cpus: 16, memory: 128GB}
objective: time
checkpoint: {dir: ckpt, every: 30m}
retry: 3`,
	},
	{
		name: "lora-7b", projects: []id.Project{"language"}, weight: 5, hours: 5, gpus: 1, rate: 0.8, learns: 0.0002,
		from: 2.1, to: 1.12, decay: 25, busy: 0.91, memory: 43 * gb, weights: gb / 3,
		body: `
framework: pytorch
model: {kind: transformer, task: language, params: 6.7B}
data: [web-text]
resources: {gpus: 1, gpu_memory: 40GB.., cpus: 8, memory: 64GB}
objective: balanced
checkpoint: {dir: ckpt, every: 20m}
retry: 2`,
	},
	{
		name: "bert-squad", projects: []id.Project{"language"}, weight: 6, hours: 1.3, gpus: 1, rate: 6, learns: 0.00003,
		from: 5.1, to: 0.98, decay: 35, busy: 0.88, memory: 15 * gb, weights: gb / 2,
		body: `
framework: tensorflow
model: {kind: transformer, task: language, params: 110M}
resources: {gpus: 1, cpus: 4, memory: 24GB}
objective: cost
checkpoint: {dir: ckpt, every: 15m}
retry: 1`,
	},
	{
		name: "asr-conformer", projects: []id.Project{"speech"}, weight: 4, hours: 6, gpus: 1, rate: 3, learns: 0.001,
		from: 4.6, to: 0.31, decay: 30, busy: 0.72, memory: 19 * gb, weights: gb / 2,
		body: `
framework: pytorch
model: {kind: transformer, task: speech, params: 64M}
data: [speech-960h]
resources: {gpus: 1, gpu: [A10G], cpus: 6, memory: 24GB}
objective: time
checkpoint: {dir: ckpt, every: 20m}
retry: 2`,
	},
	{
		name: "unet-scans", projects: []id.Project{"medical"}, weight: 5, hours: 3, gpus: 1, rate: 4, learns: 0.002,
		from: 0.96, to: 0.112, decay: 18, drops: true, busy: 0.84, memory: 21 * gb, weights: gb / 4,
		body: `
framework: pytorch
model: {kind: unet, task: segmentation, params: 31M}
data: [scans]
resources: {gpus: 1, cpus: 8, memory: 48GB}
place: local
objective: balanced
checkpoint: {dir: ckpt, every: 15m}
retry: 1`,
	},
	{
		name: "gnn-molecules", projects: []id.Project{"chemistry"}, weight: 5, hours: 0.8, gpus: 1, rate: 11, learns: 0.001,
		from: 1.9, to: 0.046, decay: 40, busy: 0.41, memory: 6 * gb, weights: gb / 50,
		body: `
framework: pytorch
model: {kind: gnn, task: regression, params: 2.4M}
data: [molecules]
resources: {gpus: 1, cpus: 4, memory: 16GB}
objective: cost
checkpoint: {dir: ckpt, every: 10m}`,
	},
	{
		name: "eval", projects: []id.Project{"vision", "language", "speech"}, weight: 7, hours: 0.15, gpus: 1, rate: 12,
		from: 0, busy: 0.77, memory: 11 * gb,
		body: `
framework: pytorch
resources: {gpus: 1, cpus: 4, memory: 16GB}
objective: time
priority: 10`,
	},
}

// recipeOf returns the recipe by which a job was made; nil if somebody has submitted a job of their own.
func recipeOf(s *job.Spec) *recipe {
	at := slices.IndexFunc(recipes, func(r recipe) bool {
		return strings.HasPrefix(s.Run, "python train.py --config configs/"+r.name+".yaml ")
	})
	if at < 0 {
		return nil
	}

	return &recipes[at]
}

// order is a job that somebody will submit.
type order struct {
	*recipe
	at      time.Duration
	owner   id.User
	project id.Project
	suffix  string  // of the name
	hours   float64 // instead of the usual
	learns  float64
	target  float64 // validation loss at which it is done; 0 for none
	more    string  // further lines of the job file
	without string  // first word of a line of the recipe that is left out

	failures []sim.Failure
	cancel   time.Duration
}

// job makes the job: its job file is read as the server reads it.
func (o *order) job() (*sim.Job, error) {
	steps := math.Max(math.Round(cmp.Or(o.hours, o.recipe.hours)*o.rate*time.Hour.Seconds()/100), 1) * 100
	text := &strings.Builder{}
	fmt.Fprintf(text, "name: %s%s\nproject: %s\n", o.name, o.suffix, o.project)
	fmt.Fprintf(text, "run: python train.py --config configs/%s.yaml --lr %g --steps %g\n", o.name, o.learns, steps)
	fmt.Fprintf(text, "params: {lr: %g, steps: %g, seed: %d}", o.learns, steps, number(o.suffix+string(o.owner))%100)

	for line := range strings.SplitSeq(o.body, "\n") {
		if word, _, _ := strings.Cut(line, ":"); o.without == "" || word != o.without {
			fmt.Fprintf(text, "%s\n", line)
		}
	}

	if o.target > 0 {
		fmt.Fprintf(text, "target: {metric: val_loss, at_most: %.3g}\n", o.target)
	}

	text.WriteString(o.more)

	file, err := spec.Parse([]byte(text.String()), spec.Options{})
	if err != nil {
		return nil, fmt.Errorf("job file of %s: %w\n%s", o.name, err, text)
	}

	j := truth(&file.Jobs[0].Spec)
	j.At, j.Owner, j.Failures, j.CancelAfter = o.at, o.owner, o.failures, o.cancel

	return j, nil
}

// truth says what a job is really like. It follows from the job file alone, so that a server that is started again
// knows it too.
func truth(s *job.Spec) *sim.Job {
	j := &sim.Job{Name: s.Name, Spec: s}

	r := recipeOf(s)
	if r == nil { // somebody tries a job of their own
		j.Duration = cmp.Or(time.Duration(s.Expect), 20*time.Minute)
		return j
	}

	j.CheckpointSize = r.weights
	j.Speed = job.NewSpeed(math.Max(param(s, "steps"), 1), 90*time.Second, 20*time.Second, r.rates()...)
	j.ErrorCurve = r.curve(param(s, "lr") / r.learns)

	return j
}

// param returns a number of the parameters of a job, 0 if there is none of this name. A job file that was stored has
// numbers of another type than one that was just read.
func param(s *job.Spec, key string) float64 {
	switch v := s.Params[key].(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	case int:
		return float64(v)
	}

	return 0
}

// speeds are how fast GPUs are beside an A100.
var speeds = []struct {
	gpu   string
	speed float64
}{{"H100", 2.1}, {"A100", 1}, {"A6000", 0.62}, {"V100", 0.46}, {"A10G", 0.42}, {"", 0.4}}

// rates are how fast a job of the recipe is by GPU and number.
func (r *recipe) rates() []job.Rate {
	const scales = 0.93 // each doubling of the GPUs doubles the speed to this power

	var list []job.Rate
	for _, s := range speeds {
		for _, n := range []int{1, 2, 4, 8} {
			list = append(list, job.Rate{
				GPU: s.gpu, GPUs: n, PerSecond: r.rate * s.speed * math.Pow(float64(n)/float64(r.gpus), scales),
			})
		}
	}

	return list
}

// curvePoints is how many points the error curve of a model has.
const curvePoints = 200

// curve is the validation loss by the share of the work that is done: a power law, with steps where the learning rate
// drops. A learning rate that is not the usual one gets less far.
func (r *recipe) curve(relative float64) []sim.Point {
	if r.from == 0 {
		return nil
	}

	off := math.Abs(math.Log10(math.Max(relative, 1e-6)))
	floor := r.to + (r.from-r.to)*math.Min(0.06*off*off, 0.8)

	points := make([]sim.Point, 0, curvePoints+1)
	for i := range curvePoints + 1 {
		x := float64(i) / curvePoints
		excess := math.Pow(1+r.decay*x, -0.9) - math.Pow(1+r.decay, -0.9)*x

		if r.drops {
			for _, drop := range []float64{0.5, 0.75} {
				excess *= 1 - 0.55/(1+math.Exp((drop-x)*160))
			}
		}

		points = append(points, sim.Point{X: x, Y: floor + (r.from-floor)*excess})
	}

	return points
}
