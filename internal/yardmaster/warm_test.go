package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place/ordered"
	"trainyard/internal/provision"
	"trainyard/internal/yardmaster"
)

// TestDemandIsKnownAfterARestart: nodes are kept ready if a job was given one before the restart, within
// the time that counts.
func TestDemandIsKnownAfterARestart(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		ago  time.Duration
		want bool
	}{{time.Hour, true}, {3 * time.Hour, false}} {
		ago, want := c.ago, c.want
		offer := fleet.Offer{Name: "p/small", Provider: "p", Type: "small", GPU: "L4", GPUs: 1, Hourly: 1e6}
		cfg := yardmaster.Defaults(ordered.FIFO{})
		cfg.Offers = []fleet.Offer{offer}
		cfg.Keep.Warm = []provision.WarmPool{{Nodes: 1, LookBack: 2 * time.Hour}}

		used := fleet.Lease{
			ID: "l1", Job: "j1", Owner: "ann", Offer: offer, State: fleet.LeaseEnded, Requested: start.Add(-ago),
			Ended: start.Add(-ago + time.Minute), Billed: -1,
		}

		y := yardmaster.New(cfg)
		y.Load(start, yardmaster.State{Leases: []fleet.Lease{used}, LastLease: 1})

		if _, err := y.Step(start.Add(time.Second), yardmaster.Tick{}); err != nil {
			t.Fatal(err)
		}

		l := y.Lease("l2")
		if (l != nil) != want ||
			l != nil && (l.Job != "" || l.Owner != "" || !strings.HasPrefix(l.Reason, "provisioned ahead: ")) {
			t.Errorf("used %s ago: %+v", ago, l)
		}
	}
}
