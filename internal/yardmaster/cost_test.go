package yardmaster_test

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/forecast"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/rules"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// priceList is a row of a tariff in whole numbers, from which this test works out what things
// cost by itself.
type priceList struct {
	cents  []int64 // for an hour, with 0, 1, 2, … GPUs in use
	watts  []int64
	off    bool
	energy int64 // thousandths of a dollar for a kWh
	pue    int64 // hundredths
}

// entry is the price or power with so many GPUs in use: the last of the list if it is shorter.
func entry(list []int64, used int) *big.Rat {
	switch {
	case len(list) == 0:
		return new(big.Rat)
	case used >= len(list):
		used = len(list) - 1
	}

	return big.NewRat(list[used], 1)
}

// hour is what an hour of part of a node costs, with so many GPUs in use by it and nobody else.
// Of what the node costs unused it pays its part, and all of what the node costs more.
func (p *priceList) hour(used int, part *big.Rat) *big.Rat {
	split := func(list []int64) *big.Rat {
		all, idle := entry(list, used), entry(list, 0)
		if idle.Cmp(all) > 0 {
			idle = all
		}

		if p.off {
			idle = new(big.Rat)
		}

		more := new(big.Rat).Sub(all, idle)

		return more.Add(more, new(big.Rat).Mul(idle, part))
	}

	rent := new(big.Rat).Mul(split(p.cents), big.NewRat(1, 100))
	kWh := new(big.Rat).Mul(split(p.watts), big.NewRat(p.pue, 100*1000))
	energy := kWh.Mul(kWh, big.NewRat(p.energy, 1000))

	return rent.Add(rent, energy)
}

// costYard is a yard with random prices, and what they were drawn from.
type costYard struct {
	*yard
	local, reserved priceList
	nodes           int // of the class
	gpus            int // of each
	offer           fleet.Offer
	postings        []ledger.Posting
}

// take takes what is to be stored, and keeps the postings.
func (c *costYard) take() *yardmaster.Batch {
	b := c.Take()
	c.postings = append(c.postings, b.Ledger.Postings...)

	return b
}

// drawCosts draws a tariff, nodes of one class, and an offer.
func drawCosts(t *testing.T, rt *rapid.T) *costYard {
	t.Helper()

	c := &costYard{gpus: rapid.IntRange(1, 8).Draw(rt, "GPUs of a node"), nodes: rapid.IntRange(0, 2).Draw(rt, "nodes")}
	list := func(most int64, what string) []int64 {
		return rapid.SliceOfN(rapid.Int64Range(0, most), 0, 9).Draw(rt, what)
	}

	energy, pue := rapid.Int64Range(0, 900).Draw(rt, "energy"), rapid.SampledFrom([]int64{100, 137, 200}).Draw(rt, "PUE")
	draw := func(class string) priceList {
		return priceList{
			cents: list(5000, class+" cents"), watts: list(9000, class+" watts"),
			off: rapid.Bool().Draw(rt, class+" off"), energy: energy, pue: pue,
		}
	}

	c.local, c.reserved = draw("local"), draw("reserved")
	row := func(class fleet.Class, p *priceList) fleet.NodePrice {
		r := fleet.NodePrice{Class: class, Off: p.off}
		for _, x := range p.cents {
			r.Hourly = append(r.Hourly, money.PerHour(x)/100)
		}

		for _, x := range p.watts {
			r.Watts = append(r.Watts, float64(x))
		}

		if class == fleet.Reserved { // billed when the node goes, to nobody's job
			r.BillingIncrement = job.Duration(time.Hour)
		}

		return r
	}

	cfg := yardmaster.Defaults(rules.New(rules.Defaults()))
	cfg.Tariff = &fleet.Tariff{
		Energy: money.PerKWh(energy) / 1000, PUE: float64(pue) / 100,
		Nodes: []fleet.NodePrice{row(fleet.Local, &c.local), row(fleet.Reserved, &c.reserved)},
	}

	c.offer = fleet.Offer{
		Name: "p/box/north", Provider: "p", Type: "box", Region: "north", GPU: "NVIDIA A100-SXM4-80GB", GPUs: c.gpus,
		GPUMemory: 80 << 30, CPUs: 64000, Memory: 256 << 30,
		Hourly: job.Money(rapid.Int64Range(1, 90_000_000).Draw(rt, "micros an hour")),
		Boot:   job.Duration(rapid.IntRange(1, 900).Draw(rt, "boot")) * job.Duration(time.Second),
	}

	increments := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, time.Hour})
	c.offer.BillingIncrement = job.Duration(increments.Draw(rt, "billed by"))
	c.offer.MinBilling = job.Duration(rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Hour}).Draw(rt, "least"))

	cfg.Offers = []fleet.Offer{c.offer}
	c.yard = newYardOf(t, cfg)

	return c
}

// billed is for how many seconds a provider charges.
func (c *costYard) billed(seconds int64) int64 {
	seconds = max(seconds, int64(time.Duration(c.offer.MinBilling)/time.Second))
	if by := int64(time.Duration(c.offer.BillingIncrement) / time.Second); by > 0 {
		seconds = (seconds + by - 1) / by * by
	}

	return seconds
}

// estimated finds the estimated cost in a sentence.
var estimated = regexp.MustCompile(`est\. cost (?:\$([0-9,]+\.[0-9]{2})|(<\$0\.01))`)

// says checks that a sentence states an estimated cost, to the cent.
func says(rt *rapid.T, what, sentence string, want float64) {
	chosen, _, _ := strings.Cut(sentence, "; alternative")

	match := estimated.FindStringSubmatch(chosen)
	if match == nil {
		if want > 0 {
			rt.Fatalf("%s states no cost, want $%.4f: %s", what, want, sentence)
		}

		return
	}

	cost := 0.0
	if match[1] != "" {
		cost, _ = strconv.ParseFloat(strings.ReplaceAll(match[1], ",", ""), 64)
	}

	if cost < want-0.0051 || cost > want+0.0051 {
		rt.Fatalf("%s states $%.2f, want $%.4f: %s", what, cost, want, sentence)
	}
}

// is checks an amount against what this test worked out.
func is[T ~float64](rt *rapid.T, what string, got T, want *big.Rat) {
	exact, _ := want.Float64()
	if f := float64(got); f < exact-1e-5 || f > exact+1e-5 {
		rt.Fatalf("%s is $%.6f, want $%.6f", what, f, exact)
	}
}

// TestCostsAreWhatTheTimeCosts gives the estimates of a job its true run time. Then the dry run,
// the sentence at its start, its forecast and what the ledger posts are all price × time.
func TestCostsAreWhatTheTimeCosts(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		c := drawCosts(t, rt)
		class := rapid.SampledFrom([]fleet.Class{fleet.Local, fleet.Reserved}).Draw(rt, "class")
		for i := range c.nodes {
			if name := fmt.Sprint("n", i); class == fleet.Local {
				c.node(name, c.gpus)
			} else {
				c.yard.reserved(name, c.gpus)
			}
		}

		seconds := rapid.Int64Range(1, 400_000).Draw(rt, "seconds")
		s := spec(rapid.IntRange(1, c.gpus).Draw(rt, "GPUs"))
		s.Place = rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceLocal, job.PlaceCloud}).Draw(rt, "place")
		s.Expect, s.Objective = job.Duration(seconds)*job.Duration(time.Second), job.ObjectiveTime
		nodes := rapid.IntRange(1, 2).Draw(rt, "nodes of the job")
		s.Resources.Nodes = job.Range{Min: nodes, Max: nodes}

		fits := c.nodes >= nodes && (s.Place == job.PlaceAny || (s.Place == job.PlaceLocal) == (class == fleet.Local))
		if !fits && s.Place == job.PlaceLocal {
			return // it would be refused
		}

		preview := c.preview("alice", s)
		if len(preview.Options) == 0 {
			rt.Fatalf("no options: %+v", preview)
		}

		own := preview.Options[0].Offer == "" // the offer may be cheaper than the power that a node draws
		if own && !fits {
			rt.Fatalf("it would run where it may not: %+v", preview.Options[0])
		}

		c.submit("alice", s)
		c.round()

		want, rent := new(big.Rat), forecast.Rent{}
		if own {
			list := &c.local
			if class == fleet.Reserved {
				list = &c.reserved
			}

			want = list.hour(s.Resources.GPUs.Min, big.NewRat(int64(s.Resources.GPUs.Min), int64(c.gpus)))
			want.Mul(want, big.NewRat(seconds*int64(nodes), 3600))
		} else {
			boot := int64(time.Duration(c.offer.Boot) / time.Second)
			want.Mul(big.NewRat(int64(c.offer.Hourly), 1_000_000), big.NewRat(c.billed(boot+seconds)*int64(nodes), 3600))
			rent = c.boot(rt, nodes, want)
		}

		is(rt, "the dry run", preview.Options[0].Cost, want)

		c.runs(rt, nodes, seconds, rent, want, own)
	})
}

// boot checks what the leases say, and lets their machines come up.
func (c *costYard) boot(rt *rapid.T, nodes int, want *big.Rat) forecast.Rent {
	granted := c.now
	exact, _ := want.Float64()

	for n := range nodes {
		l := c.Lease(id.NewLease(uint64(n) + 1))
		if l == nil {
			rt.Fatalf("nothing was provisioned")
		}

		says(rt, "the lease", l.Reason, exact)

		c.ok(yardmaster.LeaseGranted{Lease: l.ID, Provider: "p", Machine: fleet.Instance{
			ID: "i-" + string(l.ID), Lease: l.ID, State: fleet.InstanceUp, Billed: -1,
		}})
	}

	c.now = c.now.Add(time.Duration(c.offer.Boot))
	for n := range nodes {
		l := id.NewLease(uint64(n) + 1)
		token := id.Token("boot-" + l)
		c.ok(yardmaster.AddToken{By: "alice", Token: tenant.Token{
			ID: token, Kind: tenant.JoinToken, Owner: "alice", Class: string(fleet.OnDemand), Lease: l, UsesLeft: 1,
			Expires: start.AddDate(1, 0, 0),
		}})

		node := c.offer.Node()
		c.ok(yardmaster.Join{Token: token, Name: "cloud-" + string(l), Key: "key-" + string(l), Inventory: node.Inventory})
	}

	c.round()

	return forecast.Rent{Offer: &c.offer, Kept: c.now.Sub(granted)}
}

// runs lets the job run for its time, and checks what is said and posted meanwhile.
func (c *costYard) runs(rt *rapid.T, nodes int, seconds int64, rent forecast.Rent, want *big.Rat, own bool) {
	j, _ := yardmaster.JobOf(c.Yard, "j1")
	runs := c.take().Runs
	if len(runs) == 0 {
		rt.Fatalf("it does not run: %s", j.Reason)
	}

	exact, _ := want.Float64()
	if own {
		says(rt, "the reason of the start", j.Reason, exact)
	}

	hourly := money.PerHour(0)
	report := func(state job.RunState, r yardmaster.RankReport) {
		for k := range runs[0].Ranks {
			r.Run, r.Rank, r.State = runs[0].ID, k, state
			c.ok(yardmaster.NodeReport{Node: runs[0].Ranks[k].Node, Ranks: []yardmaster.RankReport{r}})
		}
	}

	began := c.now
	report(job.RunRunning, yardmaster.RankReport{Started: began})

	for k := range runs[0].Ranks {
		hourly += runs[0].Ranks[k].Hourly
	}

	// The forecast has a remaining time of its own: its cost must be what that time costs.
	so := c.JobStatuses([]id.Job{"j1"}).Answer()[0].Cost
	f := forecast.Make(&forecast.Input{
		Job: &j, Now: c.now, Hourly: hourly, Rent: rent, CostSoFar: so,
		Runs: []forecast.Stretch{{Epoch: 1, GPUs: j.Spec.Resources.GPUs.Min * nodes, Nodes: nodes, From: began}},
	})

	part := new(big.Rat).SetFloat64(f.Remaining.Mid)
	if own {
		part.Mul(part, new(big.Rat).Mul(want, big.NewRat(1, seconds)))
	} else {
		remaining := int64(f.Remaining.Mid)
		boot := int64(time.Duration(c.offer.Boot) / time.Second)
		if float64(remaining) != f.Remaining.Mid {
			rt.Fatalf("the forecast of a job that is said to take %d s is %g s", seconds, f.Remaining.Mid)
		}

		part.Mul(big.NewRat(int64(c.offer.Hourly), 1_000_000), big.NewRat(c.billed(boot+remaining)*int64(nodes), 3600))
	}

	is(rt, "the forecast", f.Cost.Mid, part)

	c.now = began.Add(time.Duration(seconds) * time.Second)
	report(job.RunEnded, yardmaster.RankReport{Started: began, Ended: c.now})

	if !own {
		for n := range nodes {
			c.ok(yardmaster.ReleaseLease{Lease: id.NewLease(uint64(n) + 1), By: "alice"})
			c.ok(yardmaster.MachineGone{Lease: id.NewLease(uint64(n) + 1)})
		}
	}

	posted := new(big.Rat)
	c.take()
	for _, p := range c.postings {
		if p.Job == "j1" {
			posted.Add(posted, big.NewRat(int64(p.Cost()), 1_000_000_000))
		}
	}

	dollars, _ := posted.Float64()
	is(rt, "what the ledger posted", dollars, want)

	if own { // once a job has ended only what is in its account of the yard is known
		j, _ = yardmaster.JobOf(c.Yard, "j1")
		is(rt, "the cost of the job", j.Cost, want)
	}
}

// shared is what an hour costs one of several runs on a node, each with its GPUs: of what the node
// costs unused its part of all GPUs, of what it costs more its part of those in use.
func (p *priceList) shared(own, used, all int64) *big.Rat {
	alone := p.hour(int(used), big.NewRat(0, 1)) // what it costs more
	idle := new(big.Rat).Sub(p.hour(int(used), big.NewRat(1, 1)), alone)

	idle.Mul(idle, big.NewRat(own, all))
	alone.Mul(alone, big.NewRat(own, used))

	return idle.Add(idle, alone)
}

// TestABudgetIsOverrunByASecondAtMost lets other jobs come to the node of a job with a budget and
// leave it, so that its cost changes while it runs. Whatever the prices, the job is told to stop
// at most a second after its budget is used up, and says why for as long as it is paused.
func TestABudgetIsOverrunByASecondAtMost(t *testing.T) {
	t.Parallel()

	const all = 8

	rapid.Check(t, func(rt *rapid.T) {
		list := priceList{
			cents: rapid.SliceOfN(rapid.Int64Range(0, 500_000), 2, all+1).Draw(rt, "cents"),
			watts: rapid.SliceOfN(rapid.Int64Range(0, 9000), 0, all+1).Draw(rt, "watts"),
			off:   rapid.Bool().Draw(rt, "off"), energy: rapid.Int64Range(0, 900).Draw(rt, "energy"), pue: 120,
		}

		row := fleet.NodePrice{Off: list.off}
		for _, x := range list.cents {
			row.Hourly = append(row.Hourly, money.PerHour(x)/100)
		}

		for _, x := range list.watts {
			row.Watts = append(row.Watts, float64(x))
		}

		cfg := yardmaster.Defaults(ordered.FIFO{})
		cfg.Tariff = &fleet.Tariff{Energy: money.PerKWh(list.energy) / 1000, PUE: 1.2, Nodes: []fleet.NodePrice{row}}
		y := newYardOf(t, cfg)
		y.node("a", all)

		own := rapid.Int64Range(1, all/2).Draw(rt, "GPUs")
		s := spec(int(own))
		s.Budget = job.Money(rapid.Int64Range(1, 50).Draw(rt, "budget")) * 1_000_000
		y.startFirst(s)

		others := map[int64]int64{} // GPUs of each other run, by number of its job
		used, next := own, int64(2)
		rate := func() *big.Rat { return list.shared(own, used, all) }
		spent, dearest := new(big.Rat), map[time.Time]*big.Rat{} // the latter by when that ended

		pass := func(d time.Duration) {
			spent.Add(spent, new(big.Rat).Mul(rate(), big.NewRat(int64(d), int64(time.Hour))))
			y.now = y.now.Add(d)
			dearest[y.now] = rate()
		}

		state := func() job.Job {
			j, _ := yardmaster.JobOf(y.Yard, "j1")
			return j
		}

		alive := func() { // the node keeps in touch
			r := yardmaster.NodeReport{Node: "a"}
			for number := range others {
				run := id.NewRun(id.NewJob(uint64(number)), 1)
				r.Ranks = append(r.Ranks, yardmaster.RankReport{Run: run, State: job.RunRunning, Started: y.now})
			}

			y.ok(r)
		}

		for step := 0; step < 100 && state().State == job.Running; step++ {
			until := y.now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(rt, "until the next event")) * time.Millisecond)

			for state().State == job.Running && y.NextTimer().Before(until) {
				pass(max(y.NextTimer().Sub(y.now), 0))
				y.ok(yardmaster.Tick{})
			}

			if state().State != job.Running {
				break
			}

			pass(until.Sub(y.now))
			alive()

			if gpus := rapid.Int64Range(1, all).Draw(rt, "GPUs of another"); used+gpus <= all {
				y.submit("alice", spec(int(gpus)))
				y.round()
				others[next], used, next = gpus, used+gpus, next+1
			} else if len(others) > 0 {
				gone := slices.Sorted(maps.Keys(others))[0]
				run := id.NewRun(id.NewJob(uint64(gone)), 1)
				y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{
					{Run: run, State: job.RunEnded, Started: y.now, Ended: y.now},
				}})

				used -= others[gone]
				delete(others, gone)
			}
		}

		highest := rate() // of the last second
		for ended, was := range dearest {
			if y.now.Sub(ended) <= time.Second && was.Cmp(highest) > 0 {
				highest = was
			}
		}

		over, _ := new(big.Rat).Sub(spent, big.NewRat(int64(s.Budget), 1_000_000)).Float64()
		second, _ := new(big.Rat).Mul(highest, big.NewRat(1001, 3_600_000)).Float64()

		switch j := state(); {
		case j.State == job.Running && over > second+1e-6:
			rt.Fatalf("it runs on, $%.6f over its budget of %s; a second costs $%.6f", over, s.Budget, second)
		case j.State == job.Running:
			return
		case over < -1e-6 || over > second+1e-6:
			rt.Fatalf("it was paused $%.6f over its budget of %s; a second costs $%.6f", over, s.Budget, second)
		}

		pass(3 * time.Second)
		y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{
			{Run: "j1.1", State: job.RunEnded, Started: start, Ended: y.now, Signalled: true, Cause: job.CausePreempted},
		}})

		why, _ := y.Why(y.now, "j1")
		if j := state(); j.State != job.Paused || !strings.Contains(j.Reason, "of its budget of") ||
			!strings.Contains(why.Sentence, "of its budget of") {
			rt.Fatalf("it is %s: %q, why: %q", j.State, j.Reason, why.Sentence)
		}
	})
}
