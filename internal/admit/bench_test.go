package admit_test

import (
	"fmt"
	"testing"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// crowd returns books with 1,000 limits, a tenth of them of projects, four running
// jobs for each user, and who they are.
func crowd(b *testing.B) (*admit.Books, []admit.Who) {
	b.Helper()
	books := admit.New()
	put := func(l tenant.Limit) {
		l.GPUs, l.Nodes, l.GPUHours, l.Money = 64, 8, 1e6, 1e6*dollar
		if err := books.Put(l); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 100 {
		put(tenant.Limit{Subject: tenant.Subject{Project: id.Project(fmt.Sprintf("p%d", i))}})
	}
	var who []admit.Who
	for i := range 900 {
		put(tenant.Limit{Subject: tenant.Subject{User: id.User(fmt.Sprintf("u%d", i))}})
		for j := range 4 {
			w := admit.Who{Owner: id.User(fmt.Sprintf("u%d", i)), Project: id.Project(fmt.Sprintf("p%d", i%100)), Job: id.NewJob(uint64(4*i + j))}
			books.Use(noon, w, fleet.OnDemand, 1, 2)
			books.Spend(noon, w, 3600, 2)
			books.Commit(w, admit.Outlay{Money: 100, GPUHours: 50, Budget: 200 * dollar, Spent: 2})
			who = append(who, w)
		}
	}
	return books, who
}

func BenchmarkAllow(b *testing.B) {
	books, who := crowd(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if a := books.Allow(noon, who[i%len(who)], 200*dollar, 2); a.GPUs > 64 {
			b.Fatal(a)
		}
	}
}

func BenchmarkAllowHeld(b *testing.B) {
	books, who := crowd(b)
	for _, w := range who {
		books.Spend(noon, w, 0, 1e6)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if a := books.Allow(noon, who[i%len(who)], 0, 0); a.Hold == "" {
			b.Fatal(a)
		}
	}
}

func BenchmarkSpend(b *testing.B) {
	books, who := crowd(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		books.Spend(noon, who[i%len(who)], 60, 0.01)
	}
}

func BenchmarkAlerts(b *testing.B) {
	books, _ := crowd(b)
	b.ReportAllocs()
	for b.Loop() {
		books.Alerts(noon)
	}
}
