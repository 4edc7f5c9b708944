package edl

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// special is case 1, a cluster for training alone: twenty jobs come one after the other.
func special(rng *rand.Rand, y *way, note func(string, float64)) error {
	const end = 600 * time.Second
	gap := 12 + 3*rng.Float64()
	first := 30 * rng.Float64() // where in the autoscaler's period it begins

	var jobs []*sim.Job
	for i := range 20 {
		at := seconds(first + float64(i)*gap)
		jobs = append(jobs, training(y, at, end-at, mostTrainers))
	}

	r, err := run(y, jobs, end)
	if err != nil {
		return err
	}

	note("case1_pending_s", r.pending["training"])
	note("case1_util", r.used(0, end))
	note("case1_trainer_h", r.work/3600)
	note("case1_restarts", float64(r.stops))

	return nil
}

// general is case 2, training beside a service whose load falls and rises.
func general(rng *rand.Rand, y *way, note func(string, float64)) error {
	const (
		begin = 35 * time.Second // of the training jobs, when the service has settled
		step  = 90 * time.Second
		end   = begin + 690*time.Second
	)

	gap := (12 + 3*rng.Float64()) / 2
	shift := seconds(30 * rng.Float64())
	var jobs []*sim.Job

	// Steps of 100 pods: five fill the three slots of a node, as their 3 CPUs each do.
	const perStep = 20

	falls := begin + 105*time.Second + shift
	for i := range 4 * perStep {
		until := end
		if i < 3*perStep {
			until = falls + time.Duration(i/perStep)*step
		}

		jobs = append(jobs, service("settled", shift, until-shift))
	}

	for i := range 6 {
		at := begin + shift + seconds(float64(i)*gap)
		jobs = append(jobs, training(y, at, end-at, 15))
	}

	for i := range 3 * perStep {
		at := falls + time.Duration(3+i/perStep)*step
		jobs = append(jobs, service("rising", at, end-at))
	}

	r, err := run(y, jobs, end)
	if err != nil {
		return err
	}

	note("case2_pending_s", r.pending["training"])
	note("case2_service_pending_s", r.pending["rising"])
	note("case2_util", r.used(begin+shift, end))
	note("case2_offpeak_util", r.used(begin+shift+300*time.Second, begin+shift+370*time.Second))
	note("case2_trainer_h", r.work/3600)
	note("case2_restarts", float64(r.stops))

	return nil
}

// training is a job that is there until it is stopped. Without elasticity it wants
// so many trainers, on whole nodes.
func training(y *way, at, until time.Duration, trainers int) *sim.Job {
	spec := &job.Spec{
		Run: "simulated", Place: job.PlaceAny, Objective: job.ObjectiveTime, Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
		Speed: job.NewSpeed(
			1e9,
			0,
			goes,
			job.Rate{
				GPUs:      serverSlots + leastTrainers,
				PerSecond: leastTrainers,
			},
			job.Rate{GPUs: serverSlots + mostTrainers, PerSecond: mostTrainers},
		),
		Resources: job.Resources{Nodes: job.Range{Min: 1, Max: nodes}, GPUs: job.Range{Min: 1, Max: perNode}},
	}

	if !y.elastic {
		whole := (serverSlots + trainers + perNode - 1) / perNode
		spec.Resources = job.Resources{Nodes: job.Range{Min: 1, Max: whole}, GPUs: job.Range{Min: perNode, Max: perNode}}
	}

	return &sim.Job{Name: "training", At: at, CancelAfter: until, Spec: spec}
}

// service is a node's worth of Nginx pods until then. It goes before training and
// is never stopped for it.
func service(name string, at, until time.Duration) *sim.Job {
	return &sim.Job{Name: name, At: at, Duration: 24 * time.Hour, CancelAfter: until, Spec: &job.Spec{
		Run: "simulated", Place: job.PlaceAny, Objective: job.ObjectiveTime, Priority: 100,
		Resources: job.Resources{GPUs: job.Range{Min: perNode, Max: perNode}},
	}}
}

// outcome is what a simulation came to.
type outcome struct {
	pending map[string]float64 // mean, by name
	work    float64            // trainer seconds
	stops   int
	spans   []sim.Span
}

func run(y *way, jobs []*sim.Job, end time.Duration) (*outcome, error) {
	o := &outcome{pending: map[string]float64{}}
	count := map[string]float64{}

	r, err := sim.Run(sim.Config{
		Policy: y.policy(), Nodes: clusterNodes(), Jobs: trace.List(jobs), Keep: 1 << 20,
		OnEnd: func(out *sim.Outcome) {
			count[out.Job.Name]++
			o.pending[out.Job.Name] += out.Wait().Seconds()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", y.key, err)
	}
	if r.Unfinished > 0 {
		return nil, fmt.Errorf("%s: %d jobs are left at %s", y.key, r.Unfinished, end)
	}

	for name, n := range count {
		o.pending[name] /= n
	}

	o.work, o.stops, o.spans = r.Work, r.Stops, r.Spans

	return o, nil
}

// clusterNodes are the nodes, with a GPU for each trainer that they hold.
func clusterNodes() []fleet.Node {
	list := make([]fleet.Node, nodes)
	for i := range list {
		list[i] = fleet.Node{
			ID:        id.Node(fmt.Sprintf("node%03d", i)),
			Class:     fleet.Local,
			Inventory: fleet.Inventory{CPUs: 1 << 20, Memory: 1 << 50},
		}

		for k := range perNode {
			list[i].Inventory.GPUs = append(list[i].Inventory.GPUs, fleet.GPU{Index: k, Model: "slot", Memory: 1 << 30})
		}
	}

	return list
}

// used is the share of the cluster's CPUs that pods held on average, in percent.
func (o *outcome) used(from, to time.Duration) float64 {
	slots := 0.0
	for _, s := range o.spans {
		if d := math.Min(s.To, to.Seconds()) - math.Max(s.From, from.Seconds()); d > 0 {
			slots += d * float64(s.GPUs)
		}
	}

	return 100 * (otherCPUs + slots/(to-from).Seconds()*slotCPUs) / cpus
}

// interval is the mean and half of its 95 % interval.
func interval(list []float64) (mean, half float64) {
	for _, v := range list {
		mean += v / float64(len(list))
	}

	sum := 0.0
	for _, v := range list {
		sum += (v - mean) * (v - mean)
	}

	if n := float64(len(list)); n > 1 {
		half = 1.96 * math.Sqrt(sum/(n-1)/n)
	}

	return mean, half
}

func seconds(s float64) time.Duration { return job.Seconds(s) }
