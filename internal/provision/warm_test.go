package provision_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/provision"
)

func TestWhatIsProvisionedAhead(t *testing.T) {
	t.Parallel()

	const hour = time.Hour

	cheap := fleet.Offer{Name: "p/a100", GPU: "A100", GPUs: 1, GPUMemory: 40 << 30, Hourly: 2e6}
	dear := fleet.Offer{Name: "q/a100", GPU: "A100", GPUs: 1, GPUMemory: 40 << 30, Hourly: 5e6}
	other := fleet.Offer{Name: "p/t4", GPU: "T4", GPUs: 1, GPUMemory: 16 << 30, Hourly: 1e6}
	few := cheap
	few.MaxNodes = 1

	lease := func(n uint64, o fleet.Offer, s fleet.LeaseState, j string) *fleet.Lease {
		l := provisioned(n, o)
		l.State = s

		if j != "" {
			l.Job = "j1"
		}

		return l
	}

	two := provision.WarmPool{GPU: job.GPUKind{Model: "A100"}, Nodes: 2, LookBack: 2 * hour}
	bounded := two
	bounded.MaxHourly = 3e6

	for name, c := range map[string]struct {
		line   provision.WarmPool
		live   []*fleet.Lease
		idle   []int // of live
		offers []fleet.Offer
		last   time.Duration // since the last use; 0 for never
		want   string
		short  bool
	}{
		"nobody has used one":                 {line: two, offers: []fleet.Offer{cheap}},
		"one was used lately":                 {line: two, offers: []fleet.Offer{other, cheap, dear}, last: hour, want: "p/a100 p/a100"},
		"one was used long ago":               {line: two, offers: []fleet.Offer{cheap}, last: 2 * hour},
		"one is idle":                         {line: two, live: []*fleet.Lease{lease(1, cheap, fleet.LeaseActive, "j")}, idle: []int{0}, offers: []fleet.Offer{cheap}, last: hour, want: "p/a100"},
		"one is busy":                         {line: two, live: []*fleet.Lease{lease(1, cheap, fleet.LeaseActive, "j")}, offers: []fleet.Offer{cheap}, last: hour, want: "p/a100 p/a100"},
		"one is on its way":                   {line: two, live: []*fleet.Lease{lease(1, cheap, fleet.LeaseBooting, "")}, offers: []fleet.Offer{cheap}, last: hour, want: "p/a100"},
		"one is on its way for a job":         {line: two, live: []*fleet.Lease{lease(1, cheap, fleet.LeaseBooting, "j")}, offers: []fleet.Offer{cheap}, last: hour, want: "p/a100 p/a100"},
		"an idle one of another kind":         {line: two, live: []*fleet.Lease{lease(1, other, fleet.LeaseActive, "j")}, idle: []int{0}, offers: []fleet.Offer{cheap}, last: hour, want: "p/a100 p/a100"},
		"as much as they may cost":            {line: bounded, offers: []fleet.Offer{cheap}, last: hour, want: "p/a100"},
		"no more of the offer, so the next":   {line: two, offers: []fleet.Offer{few, dear}, last: hour, want: "p/a100 q/a100"},
		"none can be had":                     {line: two, offers: []fleet.Offer{other}, last: hour, short: true},
		"demand that does not pass":           {line: provision.WarmPool{Nodes: 1}, offers: []fleet.Offer{cheap}, last: 1000 * hour, want: "p/a100"},
		"a line without limit waits for jobs": {line: provision.WarmPool{Nodes: 1}, offers: []fleet.Offer{cheap}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			now := noon.Add(2000 * hour)
			demand := provision.Demand{{}}
			if c.last > 0 {
				demand[0] = now.Add(-c.last)
			}

			var idle []provision.IdleNode
			for _, i := range c.idle {
				idle = append(idle, provision.IdleNode{Lease: c.live[i], Since: now})
			}

			cfg := provision.IdlePolicy{Warm: []provision.WarmPool{c.line}}
			list, short := provision.Ahead(c.live, idle, c.offers, now, cfg, demand)

			names := []string{}
			for _, n := range list {
				names = append(names, n.Offer.Name)
				if !strings.HasPrefix(n.Reason, "provisioned ahead: at least ") {
					t.Errorf("reason %q", n.Reason)
				}
			}

			if got := strings.Join(names, " "); got != c.want || short != c.short {
				t.Errorf("provisions %q, short %v; want %q, %v", got, short, c.want, c.short)
			}
		})
	}
}

// TestWarmNodesGoWithTheDemand: a node is kept while jobs have used one lately, and not after that.
func TestWarmNodesGoWithTheDemand(t *testing.T) {
	t.Parallel()

	cfg := provision.IdlePolicy{
		MaxIdle: 10 * time.Minute, Warm: []provision.WarmPool{{Nodes: 1, LookBack: 2 * time.Hour}},
	}
	idle := []provision.IdleNode{{Lease: provisioned(1, fleet.Offer{Name: "o"}), Since: noon}}
	demand := provision.Demand{{}}
	demand.Record(cfg.Warm, &fleet.Offer{Name: "o"}, noon)

	kept := provision.CheckIdle(idle, noon.Add(time.Hour), cfg, demand)[0]
	if kept.Release || !kept.NextCheck.Equal(noon.Add(2*time.Hour)) || !strings.HasPrefix(kept.Why, "kept warm: ") {
		t.Errorf("with demand: %+v", kept)
	}

	gone := provision.CheckIdle(idle, noon.Add(2*time.Hour), cfg, demand)[0]
	if !gone.Release || gone.Why != "idle for 2h" {
		t.Errorf("without demand: %+v", gone)
	}
}

func TestWarmLinesInVain(t *testing.T) {
	t.Parallel()

	offers := []fleet.Offer{
		{Name: "p/a100", GPU: "A100", GPUs: 1, GPUMemory: 40 << 30, Hourly: 2e6},
		{Name: "p/t4", GPU: "T4", GPUs: 1, GPUMemory: 16 << 30, Hourly: 1e6},
	}
	kind := func(model string) job.GPUKind { return job.GPUKind{Model: model} }

	for want, lines := range map[string][]provision.WarmPool{
		"":                             {{GPU: kind("A100"), MaxHourly: 2e6}, {}},
		"no offer is left for entry 1": {{GPU: kind("H100")}},
		"no offer is left for entry 2": {{}, {GPU: kind("T4")}},
		"max_hourly of entry 1 is $1.50/h, and the cheapest offer for it, p/a100, costs $2.00/h": {
			{GPU: kind("A100"), MaxHourly: 15e5},
		},
	} {
		if got := provision.InVain(lines, offers); got != want {
			t.Errorf("%+v: %q, want %q", lines, got, want)
		}
	}
}
