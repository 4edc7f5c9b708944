package advise_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim/advise"
)

var begin = time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC) // a Monday

const (
	weeks   = 4
	span    = weeks * 7 * 24 * time.Hour
	monthly = 30.0 / (weeks * 7)
)

// policies makes policies as the server does.
func policies(text string) (func() place.Policy, error) { return catalogue.All(nil).Make(text) }

// box is a node with V100s.
func box(name string, class fleet.Class, gpus int) advise.Node {
	n := fleet.Node{
		ID:        id.Node(name),
		Class:     class,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 64_000, Memory: 512 << 30},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "V100", Memory: 16 << 30, Peak: 125})
	}

	return advise.Node{Node: n}
}

// offer is a node with V100s that can be provisioned, paid by the second and there at once.
func offer(name string, hourly float64, spot bool, losses float64) fleet.Offer {
	o := fleet.Offer{
		Provider:  "cloud",
		Type:      name,
		GPU:       "V100",
		GPUs:      1,
		GPUMemory: 16 << 30,
		TFLOPS:    125,
		CPUs:      64_000,
		Memory:    512 << 30,
		Hourly:    job.Money(math.Round(hourly * 1e6)),
		Spot:      spot,
		LossRate:  losses,
	}

	o.Name = o.NameOf()

	return o
}

// rent is a tariff by which every reserved or local node costs so much an hour.
func rent(hourly money.PerHour) *fleet.Tariff {
	return &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "V100", Hourly: []money.PerHour{hourly}}}}
}

// lasted is a job with one GPU that was submitted so long after the beginning, ran at
// once on a V100 and ended so much later.
func lasted(at, lasts time.Duration, o job.Objective) advise.Job {
	return advise.Job{
		Owner: "ada", Submitted: begin.Add(at), Ended: begin.Add(at + lasts),
		Stretches: []advise.Stretch{{Lasted: lasts, GPU: "V100", Memory: 16 << 30, TFLOPS: 93.75, GPUs: 1, Nodes: 1}},
		Spec: &job.Spec{
			Run:        "train",
			Place:      job.PlaceAny,
			Objective:  o,
			Expect:     job.Duration(lasts),
			Checkpoint: &job.Checkpoint{Dir: "c", Every: job.Duration(30 * time.Minute)},
			Resources:  job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
		},
	}
}

// daily is the same jobs every day.
func daily(jobs ...advise.Job) []advise.Job {
	var all []advise.Job
	for d := range weeks * 7 {
		for _, j := range jobs {
			shift := time.Duration(d) * 24 * time.Hour
			j.Submitted, j.Ended = j.Submitted.Add(shift), j.Ended.Add(shift)
			j.ID = id.NewJob(uint64(len(all) + 1))
			all = append(all, j)
		}
	}

	return all
}

func ask(t *testing.T, q advise.Question) *advise.Report {
	t.Helper()

	if q.History.From.IsZero() {
		q.History.From, q.History.To = begin, begin.Add(span)
	}

	if q.History.Policy == "" {
		q.History.Policy = "rules"
	}

	q.Policy, q.Seed, q.Parallel = policies, 1, 2
	r, err := advise.Advise(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}

	return r
}

// find returns the advice whose text begins so.
func find(t *testing.T, r *advise.Report, what string) advise.Advice {
	t.Helper()
	var all []string
	for _, a := range r.Advice {
		if strings.HasPrefix(a.What, what) {
			return a
		}

		all = append(all, a.What)
	}

	t.Fatalf("nothing is said of %q, only of\n  %s\nleft out: %s", what, strings.Join(all, "\n  "), r.LeftOut)

	return advise.Advice{}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()

	if math.Abs(got-want) > within {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func show(a advise.Advice) string { return fmt.Sprintf("%s: %s (%s)", a.What, a.Verdict, a.Why) }
