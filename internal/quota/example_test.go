package quota_test

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

func ExampleTracker_Allow() {
	tracker := quota.New()
	if err := tracker.Put(tenant.Quota{Subject: tenant.Subject{User: "ann"}, GPUs: 4, Budget: 100 * dollar}); err != nil {
		fmt.Println(err)
		return
	}

	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	running := quota.Payer{Owner: "ann", Job: "j1"}
	tracker.Use(now, running, fleet.Local, 3, 0)
	tracker.Spend(now.Add(-time.Hour), now, running, 3*3600, 12.50)

	left := tracker.Allow(now, quota.Payer{Owner: "ann", Job: "j2"}, 0, 0)
	fmt.Printf("%d more GPU, $%.2f until the end of the month\n", left.GPUs, left.Money)
	// Output: 1 more GPU, $87.50 until the end of the month
}
