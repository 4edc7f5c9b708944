package demo

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// workload yields what people submit, in order, for ever.
type workload struct {
	rand  *rand.Rand
	epoch time.Time
	at    time.Duration
	until time.Duration // nothing is submitted after that; 0 for no end
	ready []*order      // those that are submitted next
	last  []*order      // those of the end, in order
	made  int
}

// newWorkload returns the submissions from a time on.
func newWorkload(epoch time.Time, stream uint64) *workload {
	return &workload{rand: trace.NewRand(seed, stream), epoch: epoch}
}

// busiest is the mean time between two submissions in the busiest hours.
const busiest = time.Hour

// Next returns the next job.
func (w *workload) Next() (*sim.Job, error) {
	if len(w.ready) == 0 {
		w.draw()
	}

	next := w.ready
	if len(w.last) > 0 && (len(next) == 0 || w.last[0].at <= next[0].at) {
		j, err := w.last[0].job()
		w.last = w.last[1:]

		return j, err
	}

	if len(next) == 0 {
		return nil, io.EOF
	}

	w.ready = next[1:]

	return next[0].job()
}

// draw decides what is submitted next: a job, or a sweep of some.
func (w *workload) draw() {
	for {
		w.at += job.Seconds(w.rand.ExpFloat64() * busiest.Seconds())
		if w.until > 0 && w.at > w.until {
			return
		}
		if w.rand.Float64() < rush(w.epoch.Add(w.at)) {
			break
		}
	}

	first := w.one()
	w.ready = append(w.ready, first)

	if first.name != "resnet18-cifar" && first.name != "gnn-molecules" || w.rand.Float64() > 0.4 {
		return
	}

	for i, factor := range []float64{0.1, 0.3, 3, 10} {
		again := *first
		again.at += time.Duration(i+1) * 5 * time.Second
		again.learns = round(first.recipe.learns * factor)
		again.suffix = fmt.Sprintf("-%d-lr-%g", w.made, again.learns)
		w.ready = append(w.ready, &again)
		w.at = again.at // the next is submitted after all of them
	}
}

// rush says how many people are at work, as a share of when most are.
func rush(at time.Time) float64 {
	hour := float64(at.Hour()) + float64(at.Minute())/60
	away := (hour - 14) / 4.5
	share := 0.12 + 0.88*math.Exp(-away*away)

	if day := at.Weekday(); day == time.Saturday || day == time.Sunday {
		share *= 0.35
	}

	return share
}

// one draws a job.
func (w *workload) one() *order {
	total := 0.0
	for i := range recipes {
		total += recipes[i].weight
	}

	pick := w.rand.Float64() * total
	kind := &recipes[0]

	for i := range recipes {
		kind = &recipes[i]
		pick -= kind.weight

		if pick < 0 {
			break
		}
	}

	w.made++
	o := &order{recipe: kind, at: w.at, learns: kind.learns, suffix: fmt.Sprintf("-%d", w.made)}
	o.project = kind.projects[w.rand.IntN(len(kind.projects))]
	o.owner = w.owner(o.project)
	o.hours = 3 * kind.hours * math.Exp(0.35*w.rand.NormFloat64())

	if kind.from > 0 && w.rand.Float64() < 0.3 {
		o.target = kind.to + (kind.from-kind.to)*0.03
	}

	if w.rand.Float64() < 0.7 { // most say how long they expect it to take, and some are wrong
		wrong := math.Exp(0.25 * w.rand.NormFloat64())
		o.more += fmt.Sprintf("expect: %s\n", job.Duration(roundTo(o.hours*wrong, 5*time.Minute)))
	}

	w.trouble(o)

	return o
}

// trouble lets some jobs go wrong.
func (w *workload) trouble(o *order) {
	switch luck := w.rand.Float64(); {
	case luck < 0.06:
		o.failures = []sim.Failure{{Share: 0.01 + 0.3*w.rand.Float64(), Cause: job.CauseUserCode}}
	case luck < 0.09:
		for range 4 { // whatever is tried
			o.failures = append(o.failures, sim.Failure{Share: 0.04, Cause: job.CauseUserCode})
		}
	case luck < 0.25 && o.name == "bert-squad": // too large for the GPUs that they ask for
		o.without, o.more = "resources", o.more+"resources: {gpus: 1, gpu: [V100], cpus: 4, memory: 24GB}\n"
		o.failures = []sim.Failure{{Share: 0.02, Cause: job.CauseGPUOOM}}
	case luck < 0.18:
		o.cancel = job.Seconds(o.hours * time.Hour.Seconds() * (0.2 + 0.5*w.rand.Float64()))
	}
}

// owner draws a member of a project.
func (w *workload) owner(p id.Project) id.User {
	var members []id.User
	for i := range people {
		for _, of := range people[i].projects {
			if of == p && people[i].role != "viewer" {
				members = append(members, people[i].name)
			}
		}
	}

	return members[w.rand.IntN(len(members))]
}

// round gives a learning rate as a person would write it.
func round(x float64) float64 {
	digits := math.Pow(10, 1-math.Ceil(math.Log10(x)))

	return math.Round(x*digits) / digits
}

// roundTo rounds hours to a duration that a person would write.
func roundTo(hours float64, to time.Duration) time.Duration {
	return max(job.Seconds(hours*time.Hour.Seconds()).Round(to), to)
}

// recent are the jobs of the last hours of a month: of each state that a job can be in there is one of whoever looks.
func recent(end time.Time, length time.Duration) []*order {
	before := func(d time.Duration) time.Duration { return length - d }
	kind := func(name string) *recipe {
		for i := range recipes {
			if recipes[i].name == name {
				return &recipes[i]
			}
		}

		panic("demo: no recipe is called " + name)
	}

	list := []*order{
		{
			recipe: kind("gpt-small"), at: before(9 * time.Hour), owner: You, project: "language", suffix: "-base", hours: 30,
			without: "resources",
			more: "resources: {gpus: 4, gpu: [H100], cpus: 16, memory: 128GB}\npriority: 30\ndeadline: " +
				end.Add(4*time.Hour).Format(time.RFC3339) + "\n",
		},
		{
			recipe: kind("resnet18-cifar"), at: before(6 * time.Hour), owner: You, project: "vision", suffix: "-wrong-data",
			hours: 2, more: "priority: 30\n", cancel: 25 * time.Minute,
		},
		{
			recipe: kind("vit-base"), at: before(5 * time.Hour), owner: You, project: "vision", suffix: "-finetune", hours: 26,
			target: 0.8, more: "priority: 30\nexpect: 12h\n",
		},
		{
			recipe: kind("asr-conformer"), at: before(4 * time.Hour), owner: You, project: "speech", suffix: "-small", hours: 9,
			more: "priority: 20\nexpect: 20h\n",
		},
		{
			recipe: kind("diffusion"), at: before(200 * time.Minute), owner: You, project: "vision", suffix: "-64px", hours: 12,
			more: "budget: $1.50\npriority: 30\n",
		},
		{
			recipe: kind("lora-7b"), at: before(150 * time.Minute), owner: You, project: "language", suffix: "-instruct",
			hours: 4, without: "resources", more: "resources: {gpus: 1, gpu: [V100], cpus: 8, memory: 64GB}\npriority: 40\n",
			failures: []sim.Failure{
				{Share: 0.01, Cause: job.CauseGPUOOM}, {Share: 0.01, Cause: job.CauseGPUOOM}, {Share: 0.01, Cause: job.CauseGPUOOM},
			},
		},
		{
			recipe: kind("asr-conformer"), at: before(100 * time.Minute), owner: "researcher-4", project: "speech",
			suffix: "-large", hours: 6, without: "resources",
			more: "resources: {gpus: 1, gpu: [A10G], cpus: 6, memory: 24GB}\nexpect: 14h\n",
		},
		{
			recipe: kind("gpt-small"), at: before(45 * time.Minute), owner: You, project: "language", suffix: "-long", hours: 40,
			without: "resources", more: "resources: {gpus: 8, gpu: [H100], cpus: 32, memory: 256GB}\nexpect: 12h\n",
		},
		{
			recipe: kind("unet-scans"), at: before(30 * time.Minute), owner: "researcher-6", project: "medical", suffix: "-3d",
			hours: 8, without: "resources", more: "resources: {gpus: 4, gpu: [A6000], cpus: 16, memory: 96GB}\nexpect: 6h\n",
		},
		{
			recipe: kind("resnet50"), at: before(12 * time.Minute), owner: "researcher-5", project: "vision",
			suffix: "-ablation", hours: 6, without: "resources",
			more: "resources: {gpus: 4, gpu: [A100], cpus: 16, memory: 64GB}\nplace: local\nexpect: 6h\n",
		},
		{recipe: kind("eval"), at: before(4 * time.Minute), owner: You, project: "vision", suffix: "-vit", hours: 0.4},
	}

	for _, o := range list {
		o.learns = o.recipe.learns
	}

	return list
}
