package provision_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/provision"
)

// provisioned is a lease whose machine was given at noon.
func provisioned(number uint64, o fleet.Offer) *fleet.Lease {
	return &fleet.Lease{ID: id.NewLease(number), Offer: o, State: fleet.LeaseActive, Granted: noon}
}

func TestWhenAnIdleNodeIsGivenBack(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	byHour := fleet.Offer{BillingIncrement: job.Duration(h)}
	for name, c := range map[string]struct {
		offer     fleet.Offer
		since     time.Duration // after noon
		now       time.Duration
		gone      bool
		again     time.Duration
		says      string
		ungranted bool
	}{
		"not idle long": {now: 35 * m, since: 30 * m, again: 40 * m, says: "idle for 5m; released at 12:40 UTC if still idle"},
		"idle long":     {now: 40 * m, since: 30 * m, gone: true, says: "idle for 10m"},
		"the hour is paid anyway": {offer: byHour, since: 20 * m, now: 45 * m, again: 58 * m,
			says: "idle for 25m; paid until 13:00 UTC and released just before that if still idle"},
		"the hour is over soon":                                 {offer: byHour, since: 20 * m, now: 58 * m, gone: true, says: "idle for 38m, paid until 13:00 UTC"},
		"no new hour for a node that is idle for a short while": {offer: byHour, since: 55 * m, now: 58 * m, gone: true, says: "idle for 3m, paid until 13:00 UTC"},
		"too late for this hour, so it goes at once":            {offer: byHour, since: 59 * m, now: 59 * m, gone: true, says: "idle for 0s, paid until 13:00 UTC"},
		"seen late, in an hour that has begun":                  {offer: byHour, since: 30 * m, now: 70 * m, gone: true, says: "idle for 40m, paid until 13:00 UTC"},
		"idle from the first second of an hour":                 {offer: byHour, since: 61 * m, now: 62 * m, again: 118 * m, says: "idle for 1m; paid until 14:00 UTC and released just before that if still idle"},
		"stretches that fit into the idle time":                 {offer: fleet.Offer{BillingIncrement: job.Duration(4 * m)}, since: 1 * m, now: 5 * m, again: 6 * m, says: "idle for 4m; paid until 12:08 UTC and released just before that if still idle"},
		"stretches too short to be caught":                      {offer: fleet.Offer{BillingIncrement: job.Duration(m)}, since: 1 * m, now: 5 * m, again: 11 * m, says: "idle for 4m; released at 12:11 UTC if still idle"},
		"a least time that is paid anyway":                      {offer: fleet.Offer{MinBilling: job.Duration(h)}, since: 5 * m, now: 20 * m, again: 58 * m, says: "idle for 15m; paid until 13:00 UTC and released just before that if still idle"},
		"a least time that is over":                             {offer: fleet.Offer{MinBilling: job.Duration(5 * m)}, since: 30 * m, now: 40 * m, gone: true, says: "idle for 10m"},
		"a least time of several stretches":                     {offer: fleet.Offer{MinBilling: job.Duration(90 * m), BillingIncrement: job.Duration(h)}, since: 5 * m, now: 80 * m, again: 118 * m, says: "idle for 1h15m; paid until 14:00 UTC and released just before that if still idle"},
		"nothing is known of when it was given":                 {offer: byHour, since: 0, now: 10 * m, gone: true, says: "idle for 10m", ungranted: true},
		"a clock that was set back":                             {since: 30 * m, now: 10 * m, again: 20 * m, says: "idle for 0s; released at 12:20 UTC if still idle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := provisioned(7, c.offer)
			if c.ungranted {
				l.Granted = time.Time{}
			}

			got := provision.CheckIdle(
				[]provision.IdleNode{{Lease: l, Since: noon.Add(c.since)}},
				noon.Add(c.now),
				provision.IdlePolicy{MaxIdle: 10 * m, ReleaseMargin: 2 * m},
				nil,
			)

			want := provision.IdleDecision{Lease: l.ID, Release: c.gone, Why: c.says}
			if !c.gone {
				want.NextCheck = noon.Add(c.again)
			}

			if len(got) != 1 || got[0] != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestTheNewestNodesAreKeptWarm(t *testing.T) {
	t.Parallel()
	h100, t4 := offer("aws", "big", "east", "", 8, 50e6, false), fleet.Offer{
		Name:      "aws/t4",
		GPU:       "T4",
		GPUs:      1,
		GPUMemory: 16 * gib,
	}

	cpu := fleet.Offer{Name: "aws/cpu"}

	var idle []provision.IdleNode
	for i, o := range []fleet.Offer{h100, h100, h100, t4, t4, cpu} {
		l := provisioned(uint64(i+1), o)
		l.Granted = noon.Add(time.Duration(i) * time.Minute)
		idle = append(idle, provision.IdleNode{Lease: l, Since: noon.Add(10 * time.Minute)})
	}

	idle[4].Lease.Granted = idle[3].Lease.Granted // told apart by number
	cfg := provision.IdlePolicy{MaxIdle: time.Minute, Warm: []provision.WarmPool{
		{GPU: job.GPUKind{Model: "H100", Memory: 80 * gib}, Nodes: 2}, {Offer: "aws/t4", Nodes: 1}, {Nodes: 0}, {Nodes: 5},
	}}

	want := []string{
		"",
		"kept warm: at least 2 idle nodes with H100:80GB",
		"kept warm: at least 2 idle nodes with H100:80GB",
		"",
		"kept warm: at least 1 idle node of aws/t4",
		"",
	}

	for i, v := range provision.CheckIdle(idle, noon.Add(time.Hour), cfg, nil) {
		if v.Release != (want[i] == "") || !v.Release && (v.Why != want[i] || !v.NextCheck.IsZero()) {
			t.Errorf("node %d: %+v, want %q", i+1, v, want[i])
		}
	}
}

// TestNoStretchIsPaidForAnIdleNode looks at a node whenever Keep asks for it, until it
// goes, and computes what is paid for it.
func TestNoStretchIsPaidForAnIdleNode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(name string, lo, hi int) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Second
		}
		o := fleet.Offer{
			BillingIncrement: job.Duration(seconds("bills", 0, 7200)),
			MinBilling:       job.Duration(seconds("least", 0, 7200)),
		}

		cfg := provision.IdlePolicy{MaxIdle: seconds("idle", 0, 7200), ReleaseMargin: seconds("margin", 0, 300)}
		node := provision.IdleNode{Lease: provisioned(1, o), Since: noon.Add(seconds("since", 0, 20_000))}
		now := node.Since

		var v provision.IdleDecision
		for looks := 0; ; looks++ {
			v = provision.CheckIdle([]provision.IdleNode{node}, now, cfg, nil)[0]
			if v.Release {
				break
			}

			if looks > 2 || !v.NextCheck.After(now) {
				t.Fatalf("looked %d times, at %s again at %s", looks, now, v.NextCheck)
			}

			now = v.NextCheck
		}

		held := func(at time.Time) time.Duration { return time.Duration(o.BilledDuration(job.Duration(at.Sub(noon)))) }
		paidAnyway := held(node.Since)
		tolerated := max(paidAnyway, node.Since.Add(cfg.MaxIdle).Sub(noon))
		gone := now.Add(cfg.ReleaseMargin)

		caught := time.Duration(o.BillingIncrement) > cfg.ReleaseMargin
		switch {
		case now.Equal(node.Since): // there was no time to lose
		case caught && held(gone) > tolerated:
			t.Fatalf("released at %s, it is paid for %s and only %s was due", now, held(gone), tolerated)
		case !caught && now.After(node.Since.Add(cfg.MaxIdle)) && gone.Sub(noon) > paidAnyway:
			t.Fatalf("released at %s, later than need be", now)
		}

		// And nothing that is paid is thrown away: it goes no earlier than it must.
		if caught && gone.Add(time.Duration(o.BillingIncrement)).Sub(noon) <= paidAnyway {
			t.Fatalf("released at %s, though it is paid until %s", now, noon.Add(paidAnyway))
		}

		if !caught && now.Before(node.Since.Add(cfg.MaxIdle)) {
			t.Fatalf("released at %s, before it was idle for %s", now, cfg.MaxIdle)
		}
	})
}
