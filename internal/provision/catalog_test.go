package provision_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/provision"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// offer makes an offer of PROVIDER, TYPE, REGION and ZONE with H100s.
func offer(provider, kind, region, zone string, gpus int, hourly job.Money, spot bool) fleet.Offer {
	o := fleet.Offer{
		Provider:  provider,
		Type:      kind,
		Region:    region,
		Zone:      zone,
		GPU:       "H100 80GB",
		GPUs:      gpus,
		GPUMemory: 80 * gib,
		TFLOPS:    989,
		CPUs:      job.CPUs(gpus) * 24_000,
		Memory:    job.Bytes(gpus) * 256 * gib,
		Hourly:    hourly,
		Spot:      spot,
	}

	if spot {
		o.LossRate = 0.1
	}

	o.Name = o.NameOf()

	return o
}

// stalls are the offers of most tests, not in the order of their price.
func stalls() []fleet.Offer {
	return []fleet.Offer{
		offer("aws", "big", "east", "", 8, 50e6, false),
		offer("aws", "big", "east", "", 8, 20e6, true),
		offer("aws", "big", "east", "a", 8, 51e6, false),
		offer("aws", "big", "east", "b", 8, 52e6, false),
		offer("aws", "big", "west", "", 8, 53e6, false),
		offer("aws", "small", "east", "", 1, 7e6, false),
		offer("gcp", "big", "east", "", 8, 54e6, false),
	}
}

func names(offers []fleet.Offer) []string {
	all := []string{}
	for _, o := range offers {
		all = append(all, o.Name)
	}

	return all
}

func TestOpenListsTheCheapestFirst(t *testing.T) {
	t.Parallel()
	offers := stalls()
	twin := offer("aaa", "big", "east", "", 8, 50e6, false)
	offers = append(offers, twin)
	m := provision.NewCatalog(offers)

	want := []string{
		"aws/small/east",
		"aws/big/east/spot",
		"aaa/big/east",
		"aws/big/east",
		"aws/big/east/a",
		"aws/big/east/b",
		"aws/big/west",
		"gcp/big/east",
	}

	if diff := cmp.Diff(want, names(m.Available(noon))); diff != "" {
		t.Error(diff)
	}

	if offers[0].Name != "aws/big/east" {
		t.Error("the caller's list was sorted")
	}
}

func TestARefusalClosesWhatWouldBeRefusedToo(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		offer, code string
		closed      []string
		says        string
	}{
		"no capacity in a zone": {
			"aws/big/east/a", fleet.RefusedCapacity, []string{"aws/big/east/a"},
			"aws on-demand big in east, zone a: no capacity; refused once, last at 12:00:00 UTC; not requested until 12:01:00 UTC",
		},
		"no capacity in any zone of a region": {
			"aws/big/east", fleet.RefusedCapacity, []string{"aws/big/east", "aws/big/east/a", "aws/big/east/b"},
			"aws on-demand big in east: no capacity; refused once, last at 12:00:00 UTC; not requested until 12:01:00 UTC",
		},
		"no capacity on spot": {
			"aws/big/east/spot", fleet.RefusedCapacity, []string{"aws/big/east/spot"},
			"aws spot big in east: no capacity; refused once, last at 12:00:00 UTC; not requested until 12:01:00 UTC",
		},
		"the quota, for so many GPUs": {
			"aws/big/east/b", fleet.RefusedQuota, []string{"aws/big/east", "aws/big/east/a", "aws/big/east/b"},
			"aws on-demand nodes with at least 8× H100 in east: quota of the account used up; refused once, last at 12:00:00 UTC; not requested until 12:10:00 UTC",
		},
		"the quota, even for one GPU": {
			"aws/small/east", fleet.RefusedQuota, []string{"aws/small/east", "aws/big/east", "aws/big/east/a", "aws/big/east/b"},
			"aws on-demand nodes with at least 1× H100 in east: quota of the account used up; refused once, last at 12:00:00 UTC; not requested until 12:10:00 UTC",
		},
		"the spot price": {
			"aws/big/east/spot", fleet.RefusedPrice, []string{"aws/big/east/spot"},
			"aws/big/east/spot: spot price above the limit; refused once, last at 12:00:00 UTC; not requested until 12:01:00 UTC",
		},
		"a type that is not known there": {
			"aws/big/east", fleet.RefusedInvalid, []string{"aws/big/east"},
			"aws/big/east: unknown instance type or image; refused once, last at 12:00:00 UTC; not requested until 12:10:00 UTC",
		},
		"the account": {
			"aws/small/east", fleet.RefusedDenied, []string{"aws/small/east", "aws/big/east", "aws/big/east/a", "aws/big/east/b", "aws/big/west"},
			"all on-demand offers of aws: permission denied; refused once, last at 12:00:00 UTC; not requested until 12:10:00 UTC",
		},
		"nobody knows why": {
			"gcp/big/east", "", []string{"gcp/big/east"},
			"gcp/big/east: refused by the provider; refused once, last at 12:00:00 UTC; not requested until 12:10:00 UTC",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := provision.NewCatalog(stalls())
			all := names(m.Available(noon))
			m.Refused(c.offer, c.code, noon)

			want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(c.closed, n) })
			if diff := cmp.Diff(want, names(m.Available(noon))); diff != "" {
				t.Error(diff)
			}

			closed := m.Backoffs(noon)
			if len(closed) != 1 || closed[0].String() != c.says || closed[0].Offers != len(c.closed) {
				t.Errorf("closed is %v, want %q", closed, c.says)
			}

			if diff := cmp.Diff(all, names(m.Available(closed[0].Until))); diff != "" {
				t.Errorf("is not open again when the time is over: %s", diff)
			}

			if left := m.Backoffs(closed[0].Until); len(left) != 0 {
				t.Errorf("still closed: %v", left)
			}
		})
	}
}

func TestWaitingDoublesUntilSomethingIsGranted(t *testing.T) {
	t.Parallel()
	m := provision.NewCatalog(stalls())
	now := noon
	refuse := func(code string) time.Duration {
		m.Refused("aws/big/west", code, now)
		wait := m.Backoffs(now)[0].Until.Sub(now)
		now = now.Add(wait)

		return wait
	}

	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if got := refuse(fleet.RefusedCapacity); got != want*time.Minute {
			t.Errorf("refusal %d closes for %s, want %d minutes", i+1, got, want)
		}
	}

	m.Granted("aws/big/west", now)

	if got := refuse(fleet.RefusedCapacity); got != time.Minute {
		t.Errorf("after a success it closes for %s", got)
	}

	refuse(fleet.RefusedCapacity)
	now = now.Add(59 * time.Minute)

	if got := refuse(fleet.RefusedCapacity); got != 4*time.Minute {
		t.Errorf("within an hour of being open it closes for %s", got)
	}

	now = now.Add(time.Hour)

	if got := refuse(fleet.RefusedCapacity); got != time.Minute {
		t.Errorf("after an hour of being open it closes for %s", got)
	}

	m = provision.NewCatalog(stalls())

	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 360, 360} {
		if got := refuse(fleet.RefusedQuota); got != want*time.Minute {
			t.Errorf("refusal %d by the quota closes for %s, want %d minutes", i+1, got, want)
		}
	}
}

func TestRefusalsOfOneGangCountOnce(t *testing.T) {
	t.Parallel()
	m := provision.NewCatalog(stalls())
	for i := range 8 {
		m.Refused("aws/big/west", fleet.RefusedCapacity, noon.Add(time.Duration(i)*time.Second))
	}

	closed := m.Backoffs(noon.Add(8 * time.Second))
	if len(closed) != 1 || closed[0].Times != 1 || !closed[0].Until.Equal(noon.Add(time.Minute)) {
		t.Errorf("closed is %v", closed)
	}
}

func TestARoomInTheQuotaOpensIt(t *testing.T) {
	t.Parallel()
	m := provision.NewCatalog(stalls())
	m.Refused("aws/big/east", fleet.RefusedQuota, noon)
	m.Refused("gcp/big/east", fleet.RefusedCapacity, noon)
	later := noon.Add(time.Second)
	m.Released("aws/big/west", later) // another region's quota
	m.Released("gcp/big/east", later) // a machine that went back says nothing of capacity

	if closed := m.Backoffs(noon); len(closed) != 2 {
		t.Errorf("closed is %v, want both", closed)
	}

	m.Released("aws/small/east", later)

	if closed := m.Backoffs(noon); len(closed) != 1 || closed[0].What != "gcp on-demand big in east" {
		t.Errorf("closed is %v, want gcp alone", closed)
	}
}

func TestASmallNodeThatIsGrantedSaysNothingOfLargerOnes(t *testing.T) {
	t.Parallel()
	m := provision.NewCatalog(stalls())
	m.Refused("aws/big/east", fleet.RefusedQuota, noon)
	later := noon.Add(time.Second)
	m.Granted("aws/small/east", later)

	if closed := m.Backoffs(noon); len(closed) != 1 {
		t.Errorf("closed is %v, want the quota for 8 GPUs", closed)
	}

	m.Granted("aws/big/east/a", later)

	if closed := m.Backoffs(noon); len(closed) != 0 {
		t.Errorf("closed is %v, want nothing", closed)
	}
}

func TestAnUpdateKeepsWhatWasLearned(t *testing.T) {
	t.Parallel()
	m := provision.NewCatalog(stalls())
	m.Refused("aws/big/west", fleet.RefusedCapacity, noon)
	m.Interrupted("aws/big/east/spot", noon)
	before, _ := m.Offer("aws/big/east/spot")
	offers := stalls()
	offers[4].Hourly = 1e6
	m.Update(offers)

	after, ok := m.Offer("aws/big/east/spot")
	if !ok || after.LossRate != before.LossRate || len(m.Backoffs(noon)) != 1 {
		t.Errorf("losses are %g and were %g; closed is %v", after.LossRate, before.LossRate, m.Backoffs(noon))
	}

	if first := m.Available(noon.Add(time.Hour))[0]; first.Name != "aws/big/west" {
		t.Errorf("the cheapest is %s", first.Name)
	}

	m.Update(offers[:1])
	m.Refused("aws/big/west", fleet.RefusedCapacity, noon.Add(time.Hour))
	m.Interrupted("aws/big/east/spot", noon)

	if got := m.Backoffs(noon.Add(time.Hour)); len(got) != 0 {
		t.Errorf("what is offered no more was closed: %v", got)
	}

	if _, ok := m.Offer("aws/big/west"); ok {
		t.Error("an offer that is no more is still there")
	}
}

func TestLossesMoveFromWhatWasToldToWhatIsSeen(t *testing.T) {
	t.Parallel()
	const name = "aws/big/east/spot"
	losses := func(m *provision.Catalog) float64 {
		o, _ := m.Offer(name)
		open := m.Available(noon)
		i := slices.IndexFunc(open, func(o fleet.Offer) bool { return o.Name == name })
		if open[i].LossRate != o.LossRate {
			t.Errorf("Open says %g and Offer %g", open[i].LossRate, o.LossRate)
		}

		return o.LossRate
	}

	m := provision.NewCatalog(stalls())
	if got := losses(m); got != 0.1 {
		t.Errorf("before anything was seen: %g, want what the price file says", got)
	}

	m.Uptime(name, 24*time.Hour, noon)

	if got := losses(m); math.Abs(got-0.05) > 1e-9 {
		t.Errorf("after a day without a loss: %g, want half", got)
	}

	m.Interrupted(name, noon)

	if got := losses(m); got <= 0.05 {
		t.Errorf("after a loss: %g, want more than before", got)
	}

	for range 1000 { // one every two hours
		m.Uptime(name, 2*time.Hour, noon)
		m.Interrupted(name, noon)
	}

	if got := losses(m); math.Abs(got-0.5) > 0.02 {
		t.Errorf("after much was seen: %g, want 0.5", got)
	}

	m.Uptime(name, 0, noon.AddDate(1, 0, 0))

	if got := losses(m); math.Abs(got-0.1) > 0.01 {
		t.Errorf("a year later: %g, want what the price file says", got)
	}

	unknown := offer("x", "y", "", "", 1, 1e6, true)
	unknown.LossRate = 0
	if o, _ := provision.NewCatalog([]fleet.Offer{unknown}).Offer(unknown.Name); o.LossRate <= 0 {
		t.Error("a spot node of which nothing is known is thought to be never taken back")
	}

	if o, _ := m.Offer("aws/big/east"); o.LossRate != 0 {
		t.Error("a node on demand is thought to be taken back")
	}
}

func TestOfARefusalAndAGrantAtOnceTheRefusalCounts(t *testing.T) {
	t.Parallel()
	const name = "aws/big/west"

	later := noon.Add(time.Hour)
	for order, tell := range map[string]func(m *provision.Catalog){
		"granted first": func(m *provision.Catalog) {
			m.Granted(name, later)
			m.Refused(name, fleet.RefusedCapacity, later)
		},
		"refused first": func(m *provision.Catalog) {
			m.Refused(name, fleet.RefusedCapacity, later)
			m.Granted(name, later)
		},
	} {
		for _, before := range []time.Time{noon, later.Add(-time.Second)} {
			m := provision.NewCatalog(stalls())
			m.Refused(name, fleet.RefusedCapacity, before)
			tell(m)

			closed := m.Backoffs(later)
			if len(closed) != 1 || closed[0].Times != 1 || !closed[0].Until.Equal(later.Add(time.Minute)) {
				t.Errorf("%s, refused before at %s: closed is %v", order, before, closed)
			}
		}
	}
}

func TestALeaseThatEndedTellsWhetherItsNodeWasTakenBack(t *testing.T) {
	t.Parallel()
	spot, onDemand := stalls()[1], stalls()[0]
	for name, c := range map[string]struct {
		lease fleet.Lease
		want  float64 // losses of the spot offer
	}{
		"taken back":       {fleet.Lease{Offer: spot, Granted: noon, Ended: noon.Add(24 * time.Hour)}, (0.1*24 + 1) / 48},
		"given back":       {fleet.Lease{Offer: spot, Granted: noon, Released: noon, Ended: noon.Add(24 * time.Hour)}, 0.1 * 24 / 48},
		"never given":      {fleet.Lease{Offer: spot, Ended: noon.Add(24 * time.Hour)}, 0.1},
		"not a spot lease": {fleet.Lease{Offer: onDemand, Granted: noon, Ended: noon.Add(24 * time.Hour)}, 0.1},
	} {
		m := provision.NewCatalog(stalls())
		m.Refused(spot.Name, fleet.RefusedQuota, noon)

		m.Ended(&c.lease)
		if o, _ := m.Offer(spot.Name); math.Abs(o.LossRate-c.want) > 1e-12 {
			t.Errorf("%s: losses are %g, want %g", name, o.LossRate, c.want)
		}

		if open := len(m.Backoffs(noon)) == 0; open != (c.lease.Offer.Spot && !c.lease.Granted.IsZero()) {
			t.Errorf("%s: closed is %v", name, m.Backoffs(noon))
		}
	}
}

// TestReplayRemembersTheSame lets a yard provision at random, tells one market of it as it
// happens and another one afterwards, from the leases alone.
func TestReplayRemembersTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		live, now := provision.NewCatalog(stalls()), noon
		var leases []fleet.Lease
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 30, 600, 5000}).Draw(t, "seconds")) * time.Second)
			held := slices.IndexFunc(leases, func(l fleet.Lease) bool { return l.State == fleet.LeaseActive })
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what == 0 && held >= 0, what == 1 && held >= 0:
				l := &leases[held]
				l.State, l.Since, l.Ended = fleet.LeaseEnded, now, now
				if what == 0 {
					l.Released = now.Add(-time.Second)
				}

				live.Ended(l)
			default:
				o := rapid.SampledFrom(stalls()).Draw(t, "offer")
				l := fleet.Lease{ID: id.NewLease(uint64(i + 1)), Seq: 1, Offer: o, Requested: now, Since: now}

				if what == 2 {
					code := rapid.SampledFrom([]string{fleet.RefusedCapacity, fleet.RefusedQuota, fleet.RefusedPrice, fleet.RefusedInvalid, fleet.RefusedDenied, ""}).
						Draw(t, "code")
					l.State, l.Reason = fleet.LeaseRefused, "out of luck"
					if code != "" {
						l.Reason = code + ": out of luck"
					}

					live.Refused(o.Name, code, now)
				} else {
					l.State, l.Granted = fleet.LeaseActive, now
					live.Granted(o.Name, now)
				}

				leases = append(leases, l)
			}
		}

		again := provision.NewCatalog(stalls())
		shuffled := rapid.Permutation(leases).Draw(t, "stored order")
		again.Replay(shuffled)

		for _, at := range []time.Time{now, now.Add(time.Minute), now.Add(3 * time.Hour)} {
			if diff := cmp.Diff(live.Backoffs(at), again.Backoffs(at)); diff != "" {
				t.Fatalf("at %s: %s", at, diff)
			}

			if diff := cmp.Diff(live.Available(at), again.Available(at)); diff != "" {
				t.Fatalf("at %s: %s", at, diff)
			}
		}
	})
}

// TestNothingIsOpenAndClosed checks the two lists against each other.
func TestNothingIsOpenAndClosed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, now := provision.NewCatalog(stalls()), noon
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "seconds")) * time.Second)
			o := rapid.SampledFrom(stalls()).Draw(t, "offer")

			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				m.Granted(o.Name, now)
			case 1:
				m.Released(o.Name, now)
			default:
				m.Refused(
					o.Name,
					rapid.SampledFrom([]string{fleet.RefusedCapacity, fleet.RefusedQuota, fleet.RefusedPrice}).Draw(t, "code"),
					now,
				)

				if slices.Contains(names(m.Available(now)), o.Name) {
					t.Fatalf("%s was refused and is open", o.Name)
				}
			}

			closed := m.Backoffs(now)
			if (len(closed) == 0) != (len(m.Available(now)) == len(stalls())) {
				t.Fatalf("%d are open and closed is %v", len(m.Available(now)), closed)
			}

			for _, c := range closed {
				if wait := c.Until.Sub(c.Since); wait < time.Minute || wait > 6*time.Hour || !now.Before(c.Until) {
					t.Fatalf("%v is closed for %s", c, wait)
				}
			}
		}

		if open := m.Available(now.Add(6 * time.Hour)); len(open) != len(stalls()) {
			t.Fatalf("%d are open after the longest wait", len(open))
		}
	})
}

func TestReasonsOfRefusedLeasesBeginWithTheirCode(t *testing.T) {
	t.Parallel()

	for reason, want := range map[string]string{
		"no_capacity: none left": fleet.RefusedCapacity, "no_quota": fleet.RefusedQuota, "spot_price: $3": fleet.RefusedPrice,
		"bad_offer: what": fleet.RefusedInvalid, "denied: you": fleet.RefusedDenied, "we have no_capacity": "", "": "",
	} {
		if got := provision.RefusalCode(reason); got != want {
			t.Errorf("%q has the code %q, want %q", reason, got, want)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	offers := manyOffers(500)
	m := provision.NewCatalog(offers)
	for i := range 20 {
		m.Refused(offers[i*7].Name, fleet.RefusedCapacity, noon)
	}

	for b.Loop() {
		m.Uptime(offers[1].Name, time.Second, noon) // so that it has to look again

		if len(m.Available(noon)) == 0 {
			b.Fatal("nothing is open")
		}
	}
}

// manyOffers makes offers of 50 types in several regions, half of them spot.
func manyOffers(n int) []fleet.Offer {
	models := []struct {
		name   string
		size   job.Bytes
		tflops float64
		price  float64
	}{{"H100 80GB", 80, 989, 6.9}, {"A100 80GB", 80, 312, 3.4}, {"L40S", 48, 362, 1.9}, {"A10G", 24, 70, 1.0}, {"T4", 16, 65, 0.5}}

	var offers []fleet.Offer

	for i := range n {
		g := models[i%len(models)]
		gpus := 1 << (i / len(models) % 4)
		kind := i / len(models) / 4 % 3
		spot := i%2 == 1

		price := g.price * float64(gpus) * (1 + float64(i%11)/20)
		if spot {
			price *= 0.35
		}

		o := fleet.Offer{
			Provider:   "aws",
			Type:       fmt.Sprintf("t%d.%d.%d", i%len(models), gpus, kind),
			Region:     fmt.Sprintf("r%d", i/60),
			Zone:       fmt.Sprintf("z%d", i%60),
			Spot:       spot,
			GPU:        g.name,
			GPUs:       gpus,
			GPUMemory:  g.size * gib,
			TFLOPS:     g.tflops,
			CPUs:       job.CPUs(gpus) * 8000 << kind,
			Memory:     job.Bytes(gpus) * 64 * gib << kind,
			Hourly:     job.Money(price * 1e6),
			Boot:       job.Duration(3 * time.Minute),
			MinBilling: job.Duration(time.Minute),
		}

		if spot {
			o.LossRate = 0.02 * float64(1+i%3)
		}

		switch i % 7 { // some differ in their terms
		case 1:
			o.Boot = job.Duration(time.Minute)
		case 2:
			o.BillingIncrement = job.Duration(time.Hour)
		case 3:
			o.MaxNodes = 2
		case 4:
			o.MinBilling = job.Duration(time.Hour)
		}

		o.Name = o.NameOf()
		offers = append(offers, o)
	}

	return offers
}

// A provider whose first node does not divide its GPUs is not asked for another because of that, also after its prices
// have changed.
func TestProvidersWhoseNodesDoNotDivideTheirGPUs(t *testing.T) {
	t.Parallel()
	offers := []fleet.Offer{
		{Name: "p/a", Provider: "p", GPUs: 1, Shares: "1"}, {Name: "p/b", Provider: "p", GPUs: 1, Shares: "1"},
		{Name: "q/a", Provider: "q", GPUs: 1, Shares: "1"},
	}

	m := provision.NewCatalog(offers)
	before := m.All()
	m.Undivided(&offers[0])
	m.Update(offers)

	for _, o := range m.Available(time.Time{}) {
		if (o.Shares == "1") != (o.Provider == "q") {
			t.Errorf("%s divides its GPUs: %q", o.Name, o.Shares)
		}
	}

	if before[0].Shares != "1" || m.All()[0].Shares != "" {
		t.Errorf("what was given away is changed: %+v, %+v", before, m.All())
	}
}
