package quota_test

import (
	"fmt"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// crowd returns tracker with 1,000 limits, a tenth of them of projects, four running
// jobs for each user, and who they are.
func crowd(b *testing.B) (*quota.Tracker, []quota.Payer) {
	b.Helper()
	tracker := quota.New()
	put := func(l tenant.Quota) {
		l.GPUs = 64
		l.Nodes = 8
		l.GPUHours = 1e6
		l.Budget = 1e6 * dollar
		if err := tracker.Put(l); err != nil {
			b.Fatal(err)
		}
	}

	for i := range 100 {
		put(tenant.Quota{Subject: tenant.Subject{Project: id.Project(fmt.Sprintf("p%d", i))}})
	}

	var who []quota.Payer
	for i := range 900 {
		put(tenant.Quota{Subject: tenant.Subject{User: id.User(fmt.Sprintf("u%d", i))}})

		for j := range 4 {
			w := quota.Payer{
				Owner:   id.User(fmt.Sprintf("u%d", i)),
				Project: id.Project(fmt.Sprintf("p%d", i%100)),
				Job:     id.NewJob(uint64(4*i + j)),
			}

			tracker.Use(noon, w, fleet.OnDemand, 1, 2)
			tracker.Spend(noon, noon, w, 3600, 2)
			tracker.Commit(w, quota.Commitment{RemainingCost: 100, RemainingGPUHours: 50, Budget: 200 * dollar, CostSoFar: 2})
			who = append(who, w)
		}
	}

	return tracker, who
}

func BenchmarkAllow(b *testing.B) {
	tracker, who := crowd(b)
	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		if a := tracker.Allow(noon, who[i%len(who)], 200*dollar, 2); a.GPUs > 64 {
			b.Fatal(a)
		}
	}
}

func BenchmarkAllowHeld(b *testing.B) {
	tracker, who := crowd(b)
	for _, w := range who {
		tracker.Spend(noon, noon, w, 0, 1e6)
	}

	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		if a := tracker.Allow(noon, who[i%len(who)], 0, 0); a.HoldReason == "" {
			b.Fatal(a)
		}
	}
}

func BenchmarkSpend(b *testing.B) {
	tracker, who := crowd(b)
	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		tracker.Spend(noon, noon, who[i%len(who)], 60, 0.01)
	}
}

func BenchmarkAlerts(b *testing.B) {
	tracker, _ := crowd(b)
	b.ReportAllocs()

	for b.Loop() {
		tracker.Alerts(noon)
	}
}
