package advise_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim/advise"
	"trainyard/test/golden"
)

// aMonth is four weeks of a small yard: two urgent jobs at once each day, one local
// node, and a cloud for the other.
func aMonth() *advise.History {
	begin := time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)
	gpus := []fleet.GPU{{Model: "V100", Memory: 16 << 30, Peak: 125}}
	h := &advise.History{
		From:   begin,
		To:     begin.AddDate(0, 0, 28),
		Policy: "rules",
		Idle:   5 * time.Minute,
		Cost:   1200,
		Nodes: []advise.Node{
			{
				Node: fleet.Node{
					ID:        "box",
					Class:     fleet.Local,
					State:     fleet.Ready,
					Inventory: fleet.Inventory{CPUs: 64_000, Memory: 512 << 30, GPUs: gpus},
				},
			},
		},
		Tariff: &fleet.Tariff{
			Nodes: []fleet.NodePrice{
				{GPU: "V100", Class: fleet.Local, Hourly: []money.PerHour{0.1}},
				{GPU: "V100", Class: fleet.Reserved, Hourly: []money.PerHour{0.5}},
			},
		},
		Offers: []fleet.Offer{
			{
				Name:      "cloud/v1",
				Provider:  "cloud",
				Type:      "v1",
				GPU:       "V100",
				GPUMemory: 16 << 30,
				GPUs:      1,
				TFLOPS:    125,
				CPUs:      64_000,
				Memory:    512 << 30,
				Hourly:    2_000_000,
				Boot:      job.Duration(3 * time.Minute),
			},
		},
		LeftOut: []string{
			"still waiting: 1 job",
		},
		Gaps: []string{"able to start at once in the replay, though they needed others: 2 jobs"},
	}

	spec := &job.Spec{
		Run:        "train",
		Place:      job.PlaceAny,
		Objective:  job.ObjectiveTime,
		Expect:     job.Duration(20 * time.Hour),
		Checkpoint: &job.Checkpoint{Dir: "c", Every: job.Duration(time.Hour)},
		Resources:  job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
	}

	for i := range 56 {
		at := begin.AddDate(0, 0, i/2).Add(time.Duration(i%2) * time.Minute)
		h.Jobs = append(h.Jobs, advise.Job{
			ID:        id.NewJob(uint64(i + 1)),
			Owner:     "ada",
			Spec:      spec,
			Submitted: at,
			Ended:     at.Add(21 * time.Hour),
			Stretches: []advise.Stretch{
				{Lasted: 20 * time.Hour, GPU: "V100", Memory: 16 << 30, TFLOPS: 93.75, GPUs: 1, Nodes: 1},
			},
		})
	}

	return h
}

func TestRecommendationsAsPeopleAndProgramsReadThem(t *testing.T) {
	t.Parallel()
	spot := fleet.Offer{
		Name:      "cloud/v1/spot",
		Provider:  "cloud",
		Type:      "v1",
		Spot:      true,
		GPU:       "V100",
		GPUMemory: 16 << 30,
		GPUs:      1,
		TFLOPS:    125,
		CPUs:      64_000,
		Memory:    512 << 30,
		Hourly:    700_000,
		Boot:      job.Duration(3 * time.Minute),
		LossRate:  0.02,
	}

	r, err := advise.Advise(
		t.Context(),
		advise.Question{History: aMonth(), Policy: policies, ExtraOffers: []fleet.Offer{spot}, Seed: 1, Parallel: 2},
	)
	if err != nil {
		t.Fatal(err)
	}

	var text, js bytes.Buffer
	if err := r.Write(&text, func(head ...string) *table.Table { return table.New(false, 0, head...) }); err != nil {
		t.Fatal(err)
	}

	encoder := json.NewEncoder(&js)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(r); err != nil {
		t.Fatal(err)
	}

	for name, got := range map[string]string{"recommend.golden": text.String(), "recommend.json.golden": js.String()} {
		golden.Compare(t, filepath.Join("testdata", name), got)
	}
}
