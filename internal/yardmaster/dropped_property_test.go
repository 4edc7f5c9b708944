package yardmaster_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// TestNoPartOfAPlanIsDropped: what a policy plans in the loop is carried out as a whole, whatever
// quotas, budgets, limits on nodes, gangs and provisioned nodes there are: the view has said all
// that the yard will ask for.
func TestNoPartOfAPlanIsDropped(t *testing.T) {
	t.Parallel()

	all := catalogue.All(nil)

	rapid.Check(t, func(rt *rapid.T) {
		name := "rules"
		if rapid.Bool().Draw(rt, "another policy") {
			name = rapid.SampledFrom(all.Names()).Draw(rt, "policy")
		}

		policy, err := all.Make(name)
		if err != nil {
			rt.Fatal(err)
		}

		cfg := yardmaster.Defaults(policy())
		cfg.Offers = drawOffers(rt)
		cfg.Provision.MaxNodes = rapid.IntRange(0, 3).Draw(rt, "most nodes")
		cfg.Tariff = &fleet.Tariff{Energy: 0.3, Nodes: []fleet.NodePrice{{Watts: []float64{300, 600, 900}}}}

		y := newYardOf(t, cfg)
		y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})

		for i := range rapid.IntRange(0, 2).Draw(rt, "nodes") {
			y.ok(yardmaster.Join{Token: "join", Name: fmt.Sprint("n", i), Inventory: drawInventory(rt)})
		}

		for range rapid.IntRange(6, 12).Draw(rt, "steps") {
			y.happens(rt)

			for range 3 { // a plan that holds a job for its quota makes another one due
				if y.PlanDue() {
					y.Round(y.now)
				}
			}

			y.check()

			if dropped := y.dropped(); len(dropped) > 0 {
				rt.Fatalf("%s plans what is dropped: %q", cfg.Policy.Name(), dropped)
			}

			y.now = y.now.Add(time.Duration(rapid.IntRange(1, 9).Draw(rt, "seconds")) * time.Second)
			y.ok(yardmaster.Tick{})
		}
	})
}

func drawOffers(t *rapid.T) []fleet.Offer {
	var list []fleet.Offer
	for i := range rapid.IntRange(1, 2).Draw(t, "offers") {
		list = append(list, fleet.Offer{
			Name: fmt.Sprint("p/", i), Provider: "p", Type: fmt.Sprint(i), GPU: "NVIDIA L4", GPUs: 1 + i, GPUMemory: 24 << 30,
			CPUs: 8000, Memory: 32 << 30, Hourly: job.Money(rapid.IntRange(1, 30).Draw(t, "hourly")) * 1e5,
			Boot: job.Duration(time.Minute), MaxNodes: rapid.IntRange(0, 3).Draw(t, "most of it"),
		})
	}

	return list
}

func drawInventory(t *rapid.T) fleet.Inventory {
	inv := fleet.Inventory{Address: "x", CPUs: 64000, Memory: 256 << 30}
	model := rapid.SampledFrom([]string{"NVIDIA A100-SXM4-80GB", "Tesla T4"}).Draw(t, "model")
	for i := range rapid.IntRange(0, 4).Draw(t, "gpus") {
		inv.GPUs = append(inv.GPUs, fleet.GPU{Index: i, Model: model, Memory: 16 << 30})
	}

	return inv
}

// happens lets one thing happen.
func (y *yard) happens(t *rapid.T) {
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		q := tenant.Quota{
			Subject: tenant.Subject{User: rapid.SampledFrom([]id.User{"alice", "bob"}).Draw(t, "whose")},
			GPUs:    rapid.IntRange(0, 4).Draw(t, "GPUs"), Nodes: rapid.IntRange(0, 2).Draw(t, "nodes"),
		}

		if rapid.Bool().Draw(t, "budget") {
			q.Budget = job.Money(rapid.IntRange(1, 40).Draw(t, "of")) * 1e5
			q.Period = tenant.Month
			q.OnExceeded = rapid.SampledFrom([]tenant.OnExceeded{
				tenant.ExceededWarn, tenant.ExceededStop, tenant.ExceededDowngrade,
			}).Draw(t, "exceeded")
		}

		if q.GPUs > 0 || q.Nodes > 0 || q.Budget > 0 {
			y.ok(yardmaster.PutQuota{Quota: q, By: "root"})
		}
	case 1, 2:
		y.answerLeases(t)
	case 3, 4:
		y.reportRanks(t)
	default:
		for range rapid.IntRange(2, 5).Draw(t, "jobs") {
			s := spec(rapid.IntRange(0, 3).Draw(t, "gpus"))
			s.Priority = 10 * rapid.IntRange(0, 1).Draw(t, "priority")
			s.Expect = job.Duration(time.Duration(rapid.IntRange(0, 300).Draw(t, "minutes")) * time.Minute)
			s.Objective = rapid.SampledFrom([]job.Objective{
				job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost,
			}).Draw(t, "objective")
			s.Place = rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceAny, job.PlaceCloud}).Draw(t, "place")
			if rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
				s.Resources.Nodes = job.Range{Min: 2, Max: 2}
			}

			if rapid.IntRange(0, 3).Draw(t, "budget") == 0 {
				s.Budget = job.Money(rapid.IntRange(1, 40).Draw(t, "of")) * 1e5
			}

			if rapid.Bool().Draw(t, "resumes") {
				s.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(time.Minute)}
			}

			// What can never run is refused, which is no matter here.
			owner := rapid.SampledFrom([]id.User{"alice", "bob"}).Draw(t, "owner")
			_, _ = y.Step(y.now, yardmaster.Submit{Owner: owner, Jobs: []yardmaster.NewJob{{Spec: s}}})
		}
	}
}

// answerLeases lets the machines of some leases be made, refused or become nodes.
func (y *yard) answerLeases(t *rapid.T) {
	for n := range uint64(20) {
		l := y.Lease(id.NewLease(n + 1))
		switch {
		case l == nil || l.State == fleet.LeaseReleasing:
		case l.State == fleet.LeaseRequested && rapid.IntRange(0, 4).Draw(t, "refused") == 0:
			y.ok(yardmaster.LeaseRefused{Lease: l.ID, Code: fleet.RefusedCapacity, Why: "there is none"})
		case l.State == fleet.LeaseRequested:
			y.joins(l.ID)
		}
	}
}

// reportRanks lets what was ordered begin, what was told to stop end, and some jobs end.
func (y *yard) reportRanks(t *rapid.T) {
	ended := map[id.Run]bool{}
	for _, o := range y.Orders() {
		rep := yardmaster.RankReport{Run: o.Run, Rank: o.Rank, State: job.RunRunning, Started: y.now}
		if _, drawn := ended[o.Run]; !drawn {
			ended[o.Run] = rapid.IntRange(0, 2).Draw(t, "ends") == 0
		}

		if o.Stop != job.StopNone || ended[o.Run] {
			rep.State, rep.Ended, rep.Signalled = job.RunEnded, y.now, o.Stop != job.StopNone
		}

		y.ok(yardmaster.NodeReport{Node: o.Node, Ranks: []yardmaster.RankReport{rep}})
	}
}
