package ledger_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// lease is one of a node with a GPU for $6 an hour.
func lease(state fleet.LeaseState) *fleet.Lease {
	l := &fleet.Lease{
		ID:        "l1",
		State:     state,
		Owner:     "ann",
		Job:       "j1",
		Requested: noon,
		Granted:   noon,
		Instance:  "i-1",
		Offer: fleet.Offer{
			Name:      "aws/g",
			Provider:  "aws",
			Type:      "g",
			GPU:       "A10G",
			GPUs:      1,
			GPUMemory: 24 << 30,
			CPUs:      4000,
			Hourly:    6_000_000,
		},
	}

	if state == fleet.LeaseActive || state == fleet.LeaseReleasing || state == fleet.LeaseEnded {
		l.Node, l.Joined = "provisioned", after(10)
	}

	return l
}

func provisionedNode() *fleet.Node {
	n := lease(fleet.LeaseActive).Offer.Node()
	n.ID, n.Lease, n.State = "provisioned", "l1", fleet.Ready
	return n
}

func cents(t *testing.T, postings []ledger.Posting) map[ledger.Account]int {
	t.Helper()
	sum := map[ledger.Account]int{}
	for _, p := range postings {
		sum[p.Account] += int(math.Round(p.Cost().Dollars() * 100))
	}

	return sum
}

func TestAProvisionedMachineIsPaidForFromWhenItWasGivenUntilItIsGone(t *testing.T) {
	t.Parallel()
	charged := 0.0
	b := ledger.New(nil, func(p *ledger.Posting) { charged += p.Cost().Dollars() })
	run := ledger.Holder{Run: "j1.1", Job: "j1", Owner: "ann", GPUs: 1}
	b.Lease(noon, lease(fleet.LeaseBooting))
	b.Node(after(10), provisionedNode(), 0, nil, lease(fleet.LeaseActive))
	b.Node(after(20), provisionedNode(), 0, []ledger.Holder{run}, lease(fleet.LeaseActive))
	b.Node(after(50), provisionedNode(), 0, nil, lease(fleet.LeaseActive))
	gone := lease(fleet.LeaseEnded)
	gone.Ended = after(60)
	b.Lease(after(75), gone) // the yard hears of it later
	out := b.Take()
	got := cents(t, out.Postings)
	for _, want := range []struct {
		account ledger.Account
		cents   int
	}{{ledger.Boot, 100}, {ledger.Idle, 200}, {ledger.Use, 300}} {
		if got[want.account] != want.cents {
			t.Errorf("%s came to %d cents, want %d; all: %v", want.account, got[want.account], want.cents, got)
		}
	}

	if math.Abs(charged-6) > 1e-6 {
		t.Errorf("ann was charged $%g, want $6 for the hour", charged)
	}

	for i, p := range out.Postings {
		if p.Seq != uint64(i+1) {
			t.Errorf("posting %d has number %d", i, p.Seq)
		}
	}

	closed := map[id.Node]bool{}
	for _, n := range out.Closed {
		closed[n] = true
	}

	if !closed["provisioned"] || !closed["machine-l1"] || len(out.Meters) != 0 {
		t.Errorf(
			"closed %v with %d meters left, want both names of the machine closed and none left",
			out.Closed,
			len(out.Meters),
		)
	}
}

func TestLedgerGoesOnAfterARestartAsIfNothingHadHappened(t *testing.T) {
	t.Parallel()
	run := ledger.Holder{Run: "j1.1", Job: "j1", Owner: "ann", GPUs: 1}
	history := func(restart bool) []ledger.Posting {
		var all []ledger.Posting
		b := ledger.New(nil, func(*ledger.Posting) {})
		steps := []func(){
			func() { b.Lease(noon, lease(fleet.LeaseBooting)) },
			func() { b.Node(after(10), provisionedNode(), 0, []ledger.Holder{run}, lease(fleet.LeaseActive)) },
			func() { b.Roll(after(65)) },
			func() { b.Node(after(70), provisionedNode(), 0, nil, lease(fleet.LeaseActive)) },
			func() {
				l := lease(fleet.LeaseEnded)
				l.Ended = after(80)
				b.Lease(after(80), l)
			},
		}

		kept := map[id.Node]ledger.State{}
		var last uint64

		for _, step := range steps {
			step()
			out := b.Take()
			all = append(all, out.Postings...)

			for _, n := range out.Closed {
				delete(kept, n)
			}

			for _, m := range out.Meters {
				kept[m.Node] = m
			}

			if len(out.Postings) > 0 {
				last = out.Postings[len(out.Postings)-1].Seq
			}

			if !restart {
				continue
			}

			s := ledger.Stored{LastPosting: last}
			for _, m := range kept {
				s.Meters = append(s.Meters, m)
			}

			b = ledger.New(nil, func(*ledger.Posting) {})
			if err := b.Load(s); err != nil {
				t.Fatal(err)
			}
		}

		return all
	}

	plain, restarted := history(false), history(true)
	if len(plain) != len(restarted) {
		t.Fatalf("%d postings, %d with restarts", len(plain), len(restarted))
	}

	for i := range plain {
		if plain[i] != restarted[i] {
			t.Errorf("posting %d is %+v, with restarts %+v", i, plain[i], restarted[i])
		}
	}
}

func TestWhatIsWatchedIsPostedAtOnce(t *testing.T) {
	t.Parallel()
	b := ledger.New(nil, func(*ledger.Posting) {})

	n := &fleet.Node{
		ID:        "a",
		Class:     fleet.Local,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Model: "A100"}}},
	}

	b.Node(noon, n, 0, []ledger.Holder{{Run: "j1.1", Job: "j1", Owner: "ann", GPUs: 1}}, nil)
	b.Settle(after(7), func(s *ledger.State) bool { return s.Holders[0].Owner == "bob" })

	if out := b.Take(); len(out.Postings) != 0 {
		t.Errorf("posted %v for nobody who is watched", out.Postings)
	}

	b.Settle(after(7), func(s *ledger.State) bool { return s.Holders[0].Owner == "ann" })

	if out := b.Take(); len(out.Postings) != 1 || out.Postings[0].GPUTime != ledger.Span((7*time.Minute).Milliseconds()) {
		t.Errorf("posted %v, want seven minutes of ann's", out.Postings)
	}

	if price := b.Rate(n, &job.Rank{GPUs: []int{0}}, nil); price != 0 {
		t.Errorf("an hour costs $%g without a tariff", price)
	}
}
