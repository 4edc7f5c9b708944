package fidelity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/job"
)

// machine is a node of the team's own.
type machine struct {
	name string
	gpus string // as --fake-gpus takes them
}

// stream is a sequence of jobs and the yard they are submitted to.
type stream struct {
	name     string
	about    string
	machines []machine
	cloud    bool // nodes can be provisioned
	trains   bool // the jobs compute; otherwise they sleep as long as they would
	saves    bool // the jobs save checkpoints and continue from them
	policies []string
	tasks    []task
}

// task is one job of a stream.
type task struct {
	name      string
	at        time.Duration // submitted so long after the beginning
	gpus      int
	most      int     // GPUs of an elastic job; 0 if it is not elastic
	work      float64 // seconds on the slowest kind of GPU, or steps of a training
	objective job.Objective
	place     job.Place
	deadline  time.Duration // after its submission; 0 for none
}

// kinds are the kinds of GPU of the yards, with how fast a job is on one of them and on several.
var kinds = []struct {
	gpu    string
	prefix string // of the names of nodes that have it
	speed  float64
}{
	{"V100", "v100", 1}, {"A100", "a100", 2}, {"T4", "machines", 0.8},
}

// scaling is how much faster a job is on so many GPUs than on one.
func scaling(gpus int) float64 { return math.Pow(float64(gpus), scalingPower) }

const scalingPower = 0.9

// costs of the yards: an hour of these streams stands for a day, so energy and rent are dear.
const (
	energyPrice = 20.0 // dollars per kWh
	rent        = "$60"
	lateCost    = "$200" // per hour past a deadline
)

// tariff is the price of the team's own nodes, as a tariff file. A node that is not used is switched off.
const tariff = `energy: 20
pue: 1.2
nodes:
  - {gpu: V100, watts: [100, 350, 600], off: true}
  - {gpu: A100, watts: [120, 520], off: true}
`

// The seeds are for each stream the first, from 1 on, with which no cost and no mean completion hangs on a fraction of
// a second (see spread), and in the stream with on-demand nodes every policy provisions some. With others it is chance
// which of two jobs ends first and what follows from that, and one comparison says nothing about the simulator.
const (
	steadySeed   = 2
	burstsSeed   = 3
	cloudSeed    = 3
	trainingSeed = 2
)

// streams returns the streams that are compared; the short one tries the benchmark itself.
func streams(quick bool) []stream {
	length, jobs, cloudJobs := 150*time.Second, 36, 28
	if quick {
		length, jobs = 6*time.Second, 4
	}

	own := []machine{{"v100-1", "2xV100:16GB"}, {"a100-1", "1xA100:40GB"}}

	all := []stream{
		{
			name: "steady", about: "Poisson arrivals on two nodes of the team's own", machines: own, policies: policies,
			tasks: sleepers(steadySeed, jobs, poisson(steadySeed, jobs, length), false),
		},
		{
			name: "bursts", about: "five jobs at a time on two nodes of the team's own", machines: own, policies: policies,
			tasks: sleepers(burstsSeed, jobs, bursts(burstsSeed, jobs, 5, length), false),
		},
		{
			name: "cloud", about: "Poisson arrivals on one node of the team's own, and on-demand nodes",
			machines: own[:1], cloud: true, policies: policies,
			tasks: sleepers(cloudSeed, cloudJobs, poisson(cloudSeed, cloudJobs, length), true),
		},
		{
			name: "training", about: "trainings that compute and wait for their input, on nodes with one GPU each",
			machines: trainingNodes(trainers), trains: true, policies: policies,
			tasks: trainings(trainingSeed, trainingJobs, poisson(trainingSeed, trainingJobs, trainingLength)),
		},
	}

	if quick {
		all = all[:1]
		all[0].policies = policies[:1]
	}

	return append(all, movingStreams(quick)...)
}

const (
	trainingJobs   = 14
	trainingLength = time.Minute
	trainers       = 2 // nodes of the stream of trainings
)

// trainingNodes returns nodes with one GPU each.
func trainingNodes(n int) []machine {
	list := make([]machine, n)
	for i := range list {
		list[i] = machine{fmt.Sprintf("v100-%d", i+1), "1xV100:16GB"}
	}

	return list
}

// poisson returns arrivals at random times, so many within the length on average.
func poisson(seed uint64, n int, length time.Duration) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	at := make([]time.Duration, n)
	now := 0.0

	for i := range at {
		at[i] = job.Seconds(now)
		now += r.ExpFloat64() * length.Seconds() / float64(n)
	}

	return at
}

// bursts returns arrivals of several at once, a fraction of a second apart, the bursts spread over the length.
func bursts(seed uint64, n, size int, length time.Duration) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 4))
	at := make([]time.Duration, n)
	groups := (n + size - 1) / size
	now := 0.0

	for i := range at {
		if i%size == 0 {
			now = (float64(i/size) + 0.3*r.Float64()) * length.Seconds() / float64(groups)
		}

		at[i] = job.Seconds(now)
		now += 0.1 + 0.2*r.Float64()
	}

	return at
}

// sleepers makes jobs that do nothing for as long as they would compute. Every third has a deadline.
func sleepers(seed uint64, n int, at []time.Duration, cloud bool) []task {
	r := rand.New(rand.NewPCG(seed, 2))
	objectives := []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}

	tasks := make([]task, n)
	for i := range tasks {
		t := task{name: fmt.Sprintf("job-%02d", i), at: at[i], gpus: 1, objective: objectives[r.IntN(3)], place: job.PlaceAny}
		t.work = 8 * math.Exp(r.NormFloat64()*0.6)

		if !cloud && r.IntN(4) == 0 {
			t.gpus = 2
		}

		if i%3 == 0 {
			t.deadline = job.Seconds(1.2*t.work + 3)
		}

		tasks[i] = t
	}

	return tasks
}

// trainings makes jobs that compute some dozens of steps.
func trainings(seed uint64, n int, at []time.Duration) []task {
	r := rand.New(rand.NewPCG(seed, 3))

	tasks := make([]task, n)
	for i := range tasks {
		tasks[i] = task{
			name: fmt.Sprintf("train-%02d", i), at: at[i], gpus: 1, objective: job.ObjectiveBalanced, place: job.PlaceAny,
			work: float64(40 + r.IntN(80)),
		}

		if i%3 == 0 {
			tasks[i].deadline = 20 * time.Second
		}
	}

	return tasks
}

// probe is what a run of its own says before the streams: how long a job takes beyond its work, how
// many steps a training that is alone makes in a second, how much trainings slow each other down, and how long a
// machine of the cloud takes to boot.
type probe struct {
	overhead  time.Duration // from the placement of a run to its work, and from its end to the server
	startup   time.Duration // of a training, beyond that
	stepsRate float64
	slowdown  float64 // of as many trainings at once as the stream has nodes, as a share of the time of one alone
	boot      time.Duration
	resume    time.Duration // start of a job that saves, beyond the overhead
	save      time.Duration // from the stop of such a job until its nodes are free
	restore   time.Duration // how much longer its start takes if it continues on another node
	suspends  bool          // nodes can suspend a job in place, which is taken to take as long as stopping it
}

// script is what the job runs. program is the command that starts its program, if it has one.
func (t *task) script(s *stream, program string) string {
	switch {
	case s.trains:
		return fmt.Sprintf("%s %g %d", program, t.work, pace)
	case s.saves:
		return "exec " + program + " " + t.arguments()
	}

	var b strings.Builder

	b.WriteString(`case "$TRAINYARD_RANK_DIR" in`)
	for _, k := range kinds {
		fmt.Fprintf(&b, " */%s*) sleep %.3f;;", k.prefix, t.work/k.speed/scaling(t.gpus))
	}

	b.WriteString(" *) exit 3;; esac")

	return b.String()
}

// file is the job file.
func (t *task) file(s *stream, p *probe, program string, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nrun: '%s'\n", t.name, strings.ReplaceAll(t.script(s, program), "'", "''"))
	fmt.Fprintf(&b, "resources: {gpus: %s, cpus: 0.1, memory: 32MB}\nobjective: %s\nplace: %s\n",
		t.sizes(), t.objective, t.place)

	work := t.work
	if s.saves {
		fmt.Fprintf(&b, "checkpoint: {dir: ckpt, every: %s}\n", job.Duration(saveEvery))
		work *= units
	}

	fmt.Fprintf(&b, "speed:\n  work: %g\n  start: %s\n", work, job.Duration(p.begin(s)))
	if s.saves {
		fmt.Fprintf(&b, "  save: %s\n", job.Duration(p.stop()))
	}

	b.WriteString("  rates:\n")

	for _, r := range t.rates(s, p) {
		fmt.Fprintf(&b, "    - {gpu: %s, gpus: %d, per_second: %.4f}\n", r.GPU, r.GPUs, r.PerSecond)
	}

	if t.deadline > 0 {
		fmt.Fprintf(&b, "deadline: %s\nlate_cost: %s\n", now.Add(t.deadline).UTC().Format(time.RFC3339Nano), lateCost)
	}

	return b.String()
}

// begin is how long a job of the stream takes until it works.
func (p *probe) begin(s *stream) time.Duration {
	d := p.overhead
	switch {
	case s.trains:
		d += p.startup
	case s.saves:
		d += p.resume
	}

	return d.Round(10 * time.Millisecond)
}

// stop is how long a job that saves takes until its checkpoint is written, without its way to the store. That is taken
// to be as long as its way back.
func (p *probe) stop() time.Duration { return max(p.save-p.restore, 0).Round(10 * time.Millisecond) }

// way is how many bytes of a checkpoint travel in a second between a node and the store.
func (p *probe) way() job.Bytes {
	return job.Bytes(savedSize / max(p.restore, time.Millisecond).Seconds())
}

// rates are how fast the job is on each kind of GPU.
func (t *task) rates(s *stream, p *probe) []job.Rate {
	list := make([]job.Rate, 0, len(kinds))
	for _, k := range kinds {
		for gpus := t.gpus; gpus <= max(t.gpus, t.most); gpus++ {
			r := job.Rate{GPU: k.gpu, GPUs: gpus, PerSecond: k.speed * scaling(gpus)}

			switch {
			case s.trains:
				r.PerSecond = p.stepsRate // the processor is the same whatever GPU is declared
			case s.saves:
				r.PerSecond *= units
			}

			list = append(list, r)
		}
	}

	return list
}

// sizes are the GPUs that the job asks for, as in a job file.
func (t *task) sizes() string {
	if t.most > t.gpus {
		return fmt.Sprintf("%d..%d", t.gpus, t.most)
	}

	return strconv.Itoa(t.gpus)
}
