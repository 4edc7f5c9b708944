package features_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/provision"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/yardmaster"
)

// day is a yard whose users need on-demand nodes in the working hours: a job each 40 minutes from
// 08:00 to 16:00, and nothing after that.
func day() string {
	b := strings.Builder{}
	b.WriteString("node own 1x T4:16GB\noffer aws/a100 1x A100:40GB hourly $3 boot 10m\n")

	for at := 8 * 60; at <= 16*60; at += 40 {
		fmt.Fprintf(&b, "job j%d at %dm user ann gpus 1 gpu A100 lasts 15m expect 15m\n", at, at)
	}

	b.WriteString("job evening at 23h user eve gpus 1 gpu T4 lasts 1m expect 1m\n")

	return b.String()
}

// TestNodesAreReadyBeforeTheNextJob simulates a day with a node that is kept warm.
func TestNodesAreReadyBeforeTheNextJob(t *testing.T) {
	t.Parallel()

	for _, policy := range []string{"rules", "fifo", "andreas", "srtf"} {
		for _, warm := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s warm %v", policy, warm), func(t *testing.T) {
				t.Parallel()
				spendDay(t, policy, warm)
			})
		}
	}
}

func spendDay(t *testing.T, policy string, warm bool) {
	t.Helper()

	s, err := scenario.Parse("day", []byte(day()))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := s.Config(1, 0)
	if err != nil {
		t.Fatal(err)
	}

	make, err := catalogue.All(nil).Make(policy)
	if err != nil {
		t.Fatal(err)
	}

	waits := []time.Duration{}
	leases := map[id.Lease]fleet.Lease{}
	ahead := 0

	cfg.Policy = make()
	cfg.Yard = func(y *yardmaster.Config) {
		if warm {
			y.Keep.Warm = []provision.WarmPool{{Nodes: 1, LookBack: 2 * time.Hour}}
		}
	}
	cfg.OnEnd = func(o *sim.Outcome) { waits = append(waits, o.Wait()) }
	cfg.OnLease = func(l *fleet.Lease) {
		if l.State == fleet.LeaseRequested && strings.HasPrefix(l.Reason, "provisioned ahead: ") {
			ahead++
			if l.Owner != "" || l.Job != "" {
				t.Errorf("%s pays for a node that was provisioned ahead for %q", l.Owner, l.Job)
			}
		}

		leases[l.ID] = *l
	}

	if _, err := s.Simulate(cfg); err != nil {
		t.Fatal(err)
	}

	waited := 0
	for _, w := range waits {
		if w > 0 {
			waited++
		}
	}

	// Without warm nodes each job waits for a boot; with them only the first.
	if warm && (waited != 1 || ahead == 0) || !warm && (waited != 13 || ahead != 0) {
		t.Errorf("%d of %d jobs waited, %d nodes provisioned ahead", waited, len(waits), ahead)
	}

	for name, l := range leases {
		early := l.Requested.Before(sim.Epoch().Add(8 * time.Hour))
		late := l.Ended.IsZero() || l.Ended.After(sim.Epoch().Add(19*time.Hour))
		if early || late {
			t.Errorf("lease %s from %s to %s: nobody needs it then", name, l.Requested, l.Ended)
		}
	}
}
