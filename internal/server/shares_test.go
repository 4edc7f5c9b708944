package server

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	hybrid "trainyard/internal/place/rules"
	"trainyard/internal/yardmaster"
)

// TestWhoSharesAGPUIsShown follows two jobs on one GPU: nodes and jobs show who has how much of it and what each really
// gets, and its owner learns that one gets too little.
func TestWhoSharesAGPUIsShown(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(_ *Config, c *yardmaster.Config) { c.Policy = hybrid.New(hybrid.Defaults()) })
	ada, bob := y.researcher("ada"), y.researcher("bob")

	inv := someInventory()
	inv.Shares, inv.MPS = "1", true
	inv.GPUs = []fleet.GPU{{Index: 0, UUID: "GPU-1", Model: "NVIDIA H200", Memory: 141 << 30}}
	n := y.join("n1")
	n.listen()
	_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	y.must(err)
	y.accept("n1")

	first, run := n.started(ada, "name: small\nresources: {gpu_share: 0.5, gpu_memory: 20GB}")
	second, other := n.started(bob, "name: secret\nresources: {gpu_share: 0.25, share_class: opportunistic, share_limit: 0.5}")

	got := n.assigned(run).Launch
	if got.Share != 0.5 || got.ShareCap != 20<<30 {
		t.Errorf("the agent gets %+v", got)
	}

	began := y.clock.Now()
	tell := func(second int, held map[id.Run]float64) {
		for _, r := range []id.Run{run, other} {
			n.tell(api.RankReport{Run: r, State: job.RunRunning, Started: began, Use: &job.Use{
				At: began.Add(time.Duration(second) * time.Second), Share: &job.ShareUse{
					Mode: "token", Held: held[r], Demanded: float64(second), Entitled: float64(second) / 2, Memory: 3 << 30, Cap: 20 << 30,
				},
			}})
		}
	}

	tell(0, nil)
	tell(20, map[id.Run]float64{run: 6, other: 14})

	node, err := ada.Node(t.Context(), "n1")
	y.must(err)

	shares := node.GPUs[0].Shares
	if node.Shares != "1" || !node.MPS || len(shares) != 2 || shares[0].Job != first || shares[0].Owner != "ada" || shares[0].Share != 0.5 ||
		shares[0].Memory != 20<<30 || shares[0].Class != job.ShareNormal || shares[0].Use.Got != 0.3 ||
		shares[0].Use.Wanted != 1 {
		t.Fatalf("the GPU is shared by %+v", shares)
	}

	if shares[0].Name != "small" || shares[1].Name != "" {
		t.Errorf("ada sees jobs named %q and %q", shares[0].Name, shares[1].Name)
	}

	if s := shares[1]; s.Job != second || s.Class != job.ShareOpportunistic || s.Limit != 0.5 || s.Use.Got != 0.7 ||
		s.Memory != 35<<30 {
		t.Errorf("the other is %+v", s)
	}

	d, err := ada.Job(t.Context(), first)
	y.must(err)

	if s := d.Share; s == nil || s.Node != "n1" || s.GPU != 0 || s.Share != 0.5 || s.Use.ShortSince == nil ||
		len(s.Beside) != 1 || s.Beside[0].Job != second {
		t.Errorf("the job has %+v", s)
	}

	if d.Resources != "50% of 1 GPU with 20 GB of its memory" {
		t.Errorf("it asks for %q", d.Resources)
	}

	var events []api.Event

	eventually(t, "an event about its share", func() bool {
		events = allEvents(t, ada, api.EventFilter{Job: first})

		return strings.HasPrefix(events[len(events)-1].Kind, "share.")
	})

	if at := len(events) - 1; events[at].Kind != "share.short" || events[at].Owner != "ada" || events[at].Run != run ||
		!strings.Contains(events[at].Reason, "got less than its share of 50% of GPU 0 of n1") {
		t.Errorf("the last event is %+v", events[at])
	}

	d, err = ada.Job(t.Context(), y.submit(ada, "run: train\nresources: {gpu_share: 0.25, share_mps: true}")[0].ID)
	y.must(err)

	if d.Resources != "25% of 1 GPU through MPS" {
		t.Errorf("it asks for %q", d.Resources)
	}

	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: began, Ended: y.clock.Now()})

	d, err = ada.Job(t.Context(), first)
	y.must(err)

	if d.Share != nil {
		t.Errorf("a job that has ended shares a GPU: %+v", d.Share)
	}
}
