package trace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim"
)

// The laws of arrival of the ANDREAS generator.
const (
	LawExponential = "exponential" // one rate for all
	LawHigh        = "high"        // clusters of about ten jobs, each with the rate of its jobs' speed
	LawLow         = "low"         // the same, four times slower
	LawMixed       = "mixed"       // fast and slow clusters in turn
)

// TaskOptions say which jobs to draw from a published table, and how.
type TaskOptions struct {
	Tasks  []Task
	Nodes  int           // of the cluster: arrivals are as many times faster
	Jobs   int           // after the first one, which comes at time 0; 0 for ten a node
	Law    string        // of arrival; "" for exponential
	Lambda time.Duration // exponential: mean time between two jobs of a cluster of one node
	Seed   uint64
	// LateLeast and LateMost are the ends between which the cost of an hour past
	// the deadline is drawn.
	LateLeast, LateMost money.PerHour
	// Slack is the greatest time to the deadline, in times of the fastest run; the
	// least is once. 0 means as long as the slowest run.
	Slack       float64
	Start, Save time.Duration // of every job
}

// Andreas returns the options of the ANDREAS workload for n nodes. The cost of
// lateness is k times the cost of energy; 10 is what the published service uses.
func Andreas(n int, lambda time.Duration, k float64, seed uint64) TaskOptions {
	least, most := AndreasWeights()
	return TaskOptions{
		Tasks:     AndreasJobs(),
		Nodes:     n,
		Lambda:    lambda,
		Seed:      seed,
		LateLeast: least.Times(k),
		LateMost:  most.Times(k),
	}
}

// Datacenter returns the options of the datacenter workload for n nodes, with
// lateness between 0.0063 and 0.0111 a second.
func Datacenter(n int, lambda time.Duration, seed uint64) TaskOptions {
	return TaskOptions{
		Tasks:     DatacenterJobs(),
		Nodes:     n,
		Lambda:    lambda,
		Seed:      seed,
		LateLeast: money.PerSecond(0.0063).PerHour(),
		LateMost:  money.PerSecond(0.0111).PerHour(),
	}
}

// Generate draws the jobs: their types equally, their arrivals by the law, their
// deadlines equally between the fastest run and the slack.
func (o TaskOptions) Generate() (sim.Jobs, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	n := o.Jobs
	if n == 0 {
		n = 10 * o.Nodes
	}

	r := NewRand(o.Seed, 1)

	drawn := make([]int, n+1)
	for i := range drawn {
		drawn[i] = r.IntN(len(o.Tasks))
	}

	at := o.arrivals(r, drawn)

	speeds := make([]*job.Speed, len(o.Tasks))
	for i := range o.Tasks {
		speeds[i] = o.Tasks[i].Speed(o.Start, o.Save)
	}

	jobs := make([]*sim.Job, len(drawn))
	for i, t := range drawn {
		jobs[i] = o.job(r, i+1, &o.Tasks[t], speeds[t], at[i])
	}

	return List(jobs), nil
}

func (o TaskOptions) check() error {
	switch {
	case len(o.Tasks) == 0:
		return badOption("tasks", "at least one job type is required")
	case o.Nodes < 1:
		return badOption("nodes", "at least one node is required")
	case !slices.Contains([]string{"", LawExponential, LawHigh, LawLow, LawMixed}, o.Law):
		return badOption(
			"law",
			"unknown arrival process %q: use %s, %s, %s or %s",
			o.Law,
			LawExponential,
			LawHigh,
			LawLow,
			LawMixed,
		)
	case (o.Law == "" || o.Law == LawExponential) && o.Lambda <= 0:
		return badOption("lambda", "mean time between two jobs must be greater than 0")
	case o.LateLeast < 0 || o.LateMost < o.LateLeast:
		return badOption("late", "invalid range of lateness costs: %g to %g", o.LateLeast, o.LateMost)
	}

	return nil
}

func badOption(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_workload", format, args...).WithField(field)
}

// arrivals returns when the jobs are submitted.
func (o TaskOptions) arrivals(r *rand.Rand, drawn []int) []time.Duration {
	at := make([]time.Duration, len(drawn))

	if o.Law == "" || o.Law == LawExponential {
		next := Poisson(r, o.Lambda/time.Duration(o.Nodes))
		for i := 1; i < len(at); i++ {
			at[i] = next()
		}

		return at
	}

	clusters := max((len(drawn)+5)/10, 1)

	now := 0.0
	for k := range clusters {
		mean := 1 / o.rate(drawn, k, clusters)
		for i := k; i < len(drawn); i += clusters {
			if i > 0 {
				now += r.ExpFloat64() * mean
			}

			at[i] = job.Seconds(now)
		}
	}

	return at
}

// rate returns the jobs a second of a cluster: the mean over its jobs of what the
// nodes could finish if all were alike, divided by 2.5 or 10.
func (o TaskOptions) rate(drawn []int, cluster, clusters int) float64 {
	most := 0
	for i := range o.Tasks {
		most = max(most, o.Tasks[i].Most())
	}

	sum, count := 0.0, 0
	for i := cluster; i < len(drawn); i += clusters {
		sum += float64(o.Nodes*most) / o.Tasks[drawn[i]].Single().Seconds()
		count++
	}

	slow := 2.5
	if o.Law == LawLow || o.Law == LawMixed && cluster%2 == 1 {
		slow *= 4
	}

	return sum / float64(count) / slow
}

// job makes one job with a deadline and a cost of lateness of its own.
func (o TaskOptions) job(r *rand.Rand, number int, t *Task, speed *job.Speed, at time.Duration) *sim.Job {
	fastest, slowest := t.Span()
	if o.Slack > 0 {
		slowest = job.Seconds(fastest.Seconds() * o.Slack)
	}

	due := sim.Epoch().Add(at + job.Seconds(uniform(r, fastest.Seconds(), slowest.Seconds())))
	spec := &job.Spec{
		Name: strings.ToLower(t.Name), Run: command, Place: job.PlaceAny, Objective: job.ObjectiveCost,
		Resources:  job.Resources{Nodes: exactly(1), GPUs: job.Range{Min: 1, Max: t.Most()}, GPU: kinds(speed)},
		Deadline:   &due,
		LateCost:   job.Money(uniform(r, float64(o.LateLeast), float64(o.LateMost)) * 1e6),
		Speed:      speed,
		Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
	}

	return &sim.Job{Name: fmt.Sprintf("jj%d", number), At: at, Owner: "team", Spec: spec}
}

// kinds lists the kinds of GPU that a speed knows.
func kinds(s *job.Speed) []job.GPUKind {
	var list []job.GPUKind
	for _, k := range s.Kinds() {
		if k != "" {
			list = append(list, job.GPUKind{Model: k})
		}
	}

	return list
}
