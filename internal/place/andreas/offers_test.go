package andreas_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
)

// hire is a yard with busy nodes, an offer, and one job with a deadline that waits.
type hire struct {
	busy      []time.Duration // how long each own node is busy; 0 for idle
	runs      time.Duration   // on an own node
	due       time.Duration
	late      float64 // money an hour
	hourly    float64 // rent
	boot      time.Duration
	speedup   float64 // of the offer
	increment time.Duration
	least     time.Duration // billed
}

// ownHourly is the price of an own node in use.
const ownHourly = 0.25

// view returns the yard as the policy sees it.
func (h *hire) view() (*cluster, *place.View) {
	c := newCluster()
	c.tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "OWN", Hourly: []money.PerHour{0, ownHourly}}}}

	for i, busy := range h.busy {
		name := "n" + string(rune('a'+i))
		c.node(name, "OWN", 1)

		if busy > 0 {
			speed := job.NewSpeed(busy.Seconds(), 0, 0, job.Rate{GPU: "OWN", GPUs: 1, PerSecond: 1})
			c.run(want{speed: speed, fixed: true, spec: one()}, seat(name, 1))
		}
	}

	speed := job.NewSpeed(h.runs.Seconds(), 0, 0, job.Rate{GPU: "OWN", GPUs: 1, PerSecond: 1},
		job.Rate{GPU: "FAST", GPUs: 1, PerSecond: h.speedup})
	c.wait(want{speed: speed, due: h.due, late: money.PerHour(h.late), spec: one(), fixed: true})

	v := c.view()
	v.Offers = []fleet.Offer{{
		Name: "aws/fast", Provider: "aws", Type: "fast", GPU: "FAST", GPUs: 1, GPUMemory: 16 << 30, CPUs: 64000,
		Memory: 1 << 40, Hourly: job.Money(h.hourly * 1e6), Boot: job.Duration(h.boot),
		BillingIncrement: job.Duration(h.increment), MinBilling: job.Duration(h.least),
	}}

	return c, v
}

func one() job.Resources { return job.Resources{GPUs: job.Range{Min: 1, Max: 1}} }

// own is what the job costs on own nodes at least, and rented what it costs on the offer:
// computed from prices and times alone.
func (h *hire) own() float64 {
	least := math.Inf(1)
	for _, busy := range h.busy {
		least = min(least, ownHourly*h.runs.Hours()+h.lateness(busy+h.runs))
	}

	return least
}

func (h *hire) rented() float64 {
	held := h.boot + job.Seconds(h.runs.Seconds()/h.speedup)

	billed := max(held, h.least)
	if h.increment > 0 && billed%h.increment > 0 {
		billed += h.increment - billed%h.increment
	}

	return h.hourly*billed.Hours() + h.lateness(held)
}

func (h *hire) lateness(done time.Duration) float64 { return h.late * max(done-h.due, 0).Hours() }

func TestNodesAreProvisionedWhereTheRentIsLessThanBeingLate(t *testing.T) {
	t.Parallel()

	const hour, minute = time.Hour, time.Minute

	base := hire{busy: []time.Duration{4 * hour}, runs: 2 * hour, due: 3 * hour, late: 2, hourly: 1, boot: 5 * minute,
		speedup: 1}

	for name, tc := range map[string]struct {
		change func(*hire)
		want   bool
	}{
		"three hours late cost more than two hours of rent": {func(*hire) {}, true},
		"late cost below the rent":                          {func(h *hire) { h.late = 0.5 }, false},
		"the node is free in time":                          {func(h *hire) { h.busy[0] = hour }, false},
		"an idle node, and no lateness":                     {func(h *hire) { h.busy[0] = 0 }, false},
		"an idle node that is too slow":                     {func(h *hire) { h.busy[0], h.runs, h.speedup = 0, 9*hour, 9 }, true},
		"the rent is too high":                              {func(h *hire) { h.hourly = 5 }, false},
		"the boot takes too long":                           {func(h *hire) { h.boot = 5 * hour }, false},
		"a whole day is billed":                             {func(h *hire) { h.increment = 24 * hour }, false},
		"at least a day is billed":                          {func(h *hire) { h.least = 24 * hour }, false},
		"twice as fast pays for the higher rent":            {func(h *hire) { h.speedup, h.hourly = 2, 3 }, true},
		"there is no own node":                              {func(h *hire) { h.busy, h.hourly = nil, 500 }, true},
		"one of several nodes is free in time":              {func(h *hire) { h.busy = append(h.busy, 30*minute) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := base
			h.busy = append([]time.Duration(nil), base.busy...)
			tc.change(&h)

			if sums := h.rented() < h.own(); sums != tc.want {
				t.Fatalf("the case is wrong: rented %f, own %f", h.rented(), h.own())
			}

			_, v := h.view()
			plan := policy().Plan(v)
			if got := len(plan.Provisions) == 1; got != tc.want {
				t.Fatalf("provisions %v, want %v (rented %f, own %f): %+v", got, tc.want, h.rented(), h.own(), plan)
			}

			if !tc.want {
				return
			}

			p := plan.Provisions[0]
			rent := h.rented() - h.lateness(h.boot+job.Seconds(h.runs.Seconds()/h.speedup))
			if math.Abs(float64(p.Cost)-rent) > 1e-6 || p.Offer != "aws/fast" || p.Count != 1 ||
				!strings.HasPrefix(p.Reason, "provisions aws/fast (1× FAST 16GB): ") {
				t.Fatalf("rent %f: %+v", rent, p)
			}

			if len(plan.Starts) > 0 {
				t.Fatalf("it starts as well: %+v", plan.Starts)
			}
		})
	}
}

// TestNothingIsProvisionedThatOwnNodesDoForLess draws yards, and compares with the sums.
func TestNothingIsProvisionedThatOwnNodesDoForLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minutes := func(name string, least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Minute
		}

		h := hire{
			runs: minutes("runs", 1, 600), due: minutes("due", 1, 900), boot: minutes("boot", 1, 60),
			late:   rapid.Float64Range(0.01, 20).Draw(t, "late"),
			hourly: rapid.Float64Range(0.01, 10).Draw(t, "hourly"), speedup: rapid.Float64Range(0.5, 4).Draw(t, "speedup"),
			increment: rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "increment"),
			least:     rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "least"),
		}

		for range rapid.IntRange(0, 3).Draw(t, "nodes") {
			h.busy = append(h.busy, minutes("busy", 0, 600))
		}

		_, v := h.view()
		plan := policy().Plan(v)
		cheaper := h.rented() < h.own()
		if math.Abs(h.rented()-h.own()) < 1e-6*(1+h.rented()) { // rounding decides
			return
		}

		if got := len(plan.Provisions) > 0; got != cheaper {
			t.Fatalf("provisions %v; rented %f, own %f", got, h.rented(), h.own())
		}

		if len(plan.Provisions)+len(plan.Starts) > 1 {
			t.Fatalf("more than one way for one job: %+v", plan)
		}
	})
}

func TestNodesThatAreBootingAreWaitedFor(t *testing.T) {
	t.Parallel()

	// The node is free, but there the job would be ten hours late; one that is faster is booting.
	h := hire{
		busy: []time.Duration{0}, runs: 12 * time.Hour, due: 2 * time.Hour, late: 10, hourly: 1, boot: 5 * time.Minute,
		speedup: 12,
	}

	c, v := h.view()
	v.Leases = []*fleet.Lease{{
		ID: "l1", Job: c.line.Items()[0].Job, Offer: v.Offers[0], State: fleet.LeaseBooting, Requested: c.now,
	}}

	if plan := policy().Plan(v); len(plan.Provisions)+len(plan.Starts) > 0 {
		t.Fatalf("it does not wait: %+v", plan)
	}
}

func TestLimitsForbidToProvision(t *testing.T) {
	t.Parallel()

	h := hire{runs: time.Hour, due: time.Hour, late: 100, hourly: 1, boot: time.Minute, speedup: 1}
	for name, limit := range map[string]func(*tenant.Allowance){
		"no money":      func(a *tenant.Allowance) { a.Money = 0.5 },
		"no more nodes": func(a *tenant.Allowance) { a.Nodes = 0 },
		"held":          func(a *tenant.Allowance) { a.HoldReason = "used up" },
	} {
		c, v := h.view()
		if plan := policy().Plan(v); len(plan.Provisions) != 1 {
			t.Fatalf("without limits: %+v", plan)
		}

		a := tenant.Unlimited()
		limit(&a)
		v.Limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{c.line.Items()[0].Job: a}}

		if plan := policy().Plan(v); len(plan.Provisions) > 0 {
			t.Errorf("%s: %+v", name, plan.Provisions)
		}
	}
}

// TestADeadlineCountsWhereNoNodeIsOpen: what being late costs by default is a multiple of the price of the GPUs that
// the job could have. It is the same whether their node takes new runs or not, and where the yard has none the offers
// count; so the faster offer is provisioned although the slower one is cheaper.
func TestADeadlineCountsWhereNoNodeIsOpen(t *testing.T) {
	t.Parallel()

	cordoned := func(n *fleet.Node) { n.Cordoned = true }

	for name, tc := range map[string]struct {
		nodes  func(*cluster)
		hourly money.PerHour // of an own node in use
		due    time.Duration
		want   string
	}{
		"a node that takes no new runs": {func(c *cluster) { c.node("a", "OWN", 1, cordoned) }, 0.25, 2 * time.Hour, "aws/fast"},
		"one that costs next to nothing": {
			func(c *cluster) { c.node("a", "OWN", 1, cordoned) }, 0.002, 2 * time.Hour, "aws/slow",
		},
		"no node":                     {func(*cluster) {}, 0, 2 * time.Hour, "aws/fast"},
		"a deadline that is far away": {func(*cluster) {}, 0, 9 * time.Hour, "aws/slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := newCluster()
			c.tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "OWN", Hourly: []money.PerHour{0, tc.hourly}}}}
			tc.nodes(c)
			c.wait(want{due: tc.due, spec: one(), speed: job.NewSpeed(4*3600, 0, 0,
				job.Rate{GPU: "OWN", GPUs: 1, PerSecond: 1}, job.Rate{GPU: "SLOW", GPUs: 1, PerSecond: 1},
				job.Rate{GPU: "FAST", GPUs: 1, PerSecond: 4})})

			v := c.view()
			for model, hourly := range map[string]job.Money{"slow": 800_000, "fast": 3_300_000} {
				v.Offers = append(v.Offers, fleet.Offer{
					Name: "aws/" + model, Provider: "aws", Type: model, GPU: strings.ToUpper(model), GPUs: 1,
					GPUMemory: 16 << 30, CPUs: 64000, Memory: 1 << 40, Hourly: hourly,
				})
			}

			plan := policy().Plan(v)
			if len(plan.Provisions) != 1 || plan.Provisions[0].Offer != tc.want {
				t.Errorf("provisions %+v, want %s", plan.Provisions, tc.want)
			}
		})
	}
}
