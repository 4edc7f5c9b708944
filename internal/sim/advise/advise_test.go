package advise_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim/advise"
)

const hour = time.Hour

// Every day two urgent jobs come at once, and there is one local node: one of them is
// provisioned for. Its node is kept for 5 minutes after it.
func twoADay(second time.Duration) *advise.History {
	return &advise.History{
		Jobs: daily(lasted(0, 20*hour, job.ObjectiveTime), lasted(time.Minute, second, job.ObjectiveTime)),
		Nodes: []advise.Node{
			box("local-1", fleet.Local, 1),
		},
		Offers: []fleet.Offer{offer("v1", 2, false, 0)},
		Idle:   5 * time.Minute,
	}
}

func TestOneMoreReservedNodePaysWhereMuchIsProvisioned(t *testing.T) {
	t.Parallel()
	h := twoADay(20 * hour)
	h.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "V100", Class: fleet.Reserved, Hourly: []money.PerHour{0.5}}}}
	r := ask(t, advise.Question{History: h})

	// A node for 20 h 5 m at $2 each day, against a node at $0.50 for all of it.
	provisioned := (20 + 5.0/60) * 28
	near(t, "on-demand hours a month", r.Base.OnDemand, provisioned*monthly, 0.1)
	near(t, "cost a month", r.Base.Cost, 2*provisioned*monthly, 0.02)

	a := find(t, r, "Reserve one more node with 1× V100 16GB")
	if a.Verdict != advise.Worth || a.Confidence != (advise.Confidence{Unit: "week", PaidOff: 4, Of: 4, Chance: 1}) {
		t.Errorf("%s, %+v", show(a), a.Confidence)
	}

	near(t, "saved", a.Saved, (2*provisioned-0.5*28*24)*monthly, 0.02)
	near(t, "hours avoided", a.OnDemand, provisioned*monthly, 0.1)
	near(t, "break-even", *a.BreakEven, 2*provisioned/(28*24), 0.01)
	near(t, "price", *a.Price, 0.5, 0)
	near(t, "later by", a.Mean, 0, 0)

	if r.Advice[0].What != a.What {
		t.Errorf("first comes %s", show(r.Advice[0]))
	}
}

func TestOneMoreReservedNodeDoesNotPayWhereLittleIsProvisioned(t *testing.T) {
	t.Parallel()
	h := twoADay(hour)
	h.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "V100", Class: fleet.Reserved, Hourly: []money.PerHour{0.5}}}}
	a := find(t, ask(t, advise.Question{History: h}), "Reserve one more node")
	provisioned := (1 + 5.0/60) * 28

	if a.Verdict != advise.NotWorth || a.Confidence.PaidOff != 0 || a.Confidence.Chance != 0 {
		t.Errorf("%s, %+v", show(a), a.Confidence)
	}

	near(t, "saved", a.Saved, (2*provisioned-0.5*28*24)*monthly, 0.02)
	near(t, "break-even", *a.BreakEven, 2*provisioned/(28*24), 0.01)
}

func TestANodeWithoutAPriceIsReckonedAtThePriceOnDemandOrAsTold(t *testing.T) {
	t.Parallel()
	h := twoADay(20 * hour)
	a := find(t, ask(t, advise.Question{History: h}), "Reserve one more node")
	near(t, "price", *a.Price, 2, 0)

	if a.Priced != "on-demand price" || a.Verdict == advise.Worth {
		t.Errorf("%s, known by %q", show(a), a.Priced)
	}

	a = find(
		t,
		ask(t, advise.Question{History: twoADay(20 * hour), Prices: map[string]money.PerHour{"V100": 1.25}}),
		"Reserve one more node",
	)

	near(t, "price", *a.Price, 1.25, 0)
	near(t, "saved", a.Saved, (2*(20+5.0/60)*28-1.25*28*24)*monthly, 0.02)
}

func TestDroppingANodePaysWhenItIdles(t *testing.T) {
	t.Parallel()
	h := &advise.History{
		Jobs: daily(lasted(0, 8*hour, job.ObjectiveBalanced), lasted(12*hour, 8*hour, job.ObjectiveBalanced)),
		Nodes: []advise.Node{
			box("local-1", fleet.Local, 1),
			box("local-2", fleet.Local, 1),
		},
		Tariff: rent(0.3),
		Idle:   5 * time.Minute,
		Cost:   2 * 0.3 * 28 * 24,
	}

	r := ask(t, advise.Question{History: h})
	a := find(t, r, "Drop one local node with 1× V100 16GB (local-2)")
	if a.Verdict != advise.Worth || a.Confidence.PaidOff != 4 || a.Mean != 0 {
		t.Errorf("%s, %+v", show(a), a.Confidence)
	}

	near(t, "saved", a.Saved, 0.3*28*24*monthly, 0.02)
	near(t, "break-even", *a.BreakEven, 0, 0)

	if off := r.Trust.CostOff; off == nil || *off != 0 || *r.Trust.CompletionOff != 0 {
		t.Errorf("the replay is off: %s", r.Trust.Sentence)
	}
}

func TestDroppingANodeThatIsNeededDoesNotPay(t *testing.T) {
	t.Parallel()
	h := twoADay(20 * hour)
	h.Nodes = append(h.Nodes, box("local-2", fleet.Local, 1))
	h.Tariff = rent(0.3)
	a := find(t, ask(t, advise.Question{History: h}), "Drop one local node")
	provisioned := (20 + 5.0/60) * 28

	if a.Verdict != advise.NotWorth || a.Confidence.PaidOff != 0 {
		t.Errorf("%s, %+v", show(a), a.Confidence)
	}

	near(t, "saved", a.Saved, (0.3*28*24-2*provisioned)*monthly, 0.02)
	near(t, "on-demand hours avoided", a.OnDemand, -provisioned*monthly, 0.1)
	near(t, "break-even", *a.BreakEven, 2*provisioned/(28*24), 0.01)
}

func TestSpotPaysWithFewLossesAndNotWithMany(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name   string
		losses float64
		want   advise.Verdict
	}{
		{"one loss in a hundred hours", 0.01, advise.Worth},
		{"ten losses an hour", 10, advise.NotWorth},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := twoADay(20 * hour)
			a := find(
				t,
				ask(t, advise.Question{History: h, ExtraOffers: []fleet.Offer{offer("v1", 0.6, true, tc.losses)}}),
				"Provision spot nodes",
			)

			if a.Verdict != tc.want {
				t.Errorf("%s, %+v", show(a), a)
			}

			if few := tc.losses < 1; few && (a.Saved < 1.3*20*28*0.9 || a.SpotLosses == 0 || a.SpotLosses > 20) {
				t.Errorf("it saves %v with %d losses; about 5.6 are expected in 560 hours: %s", a.Saved, a.SpotLosses, a.Why)
			}
		})
	}
}

func TestLossesComeAtTheirRate(t *testing.T) {
	t.Parallel()

	// Two spot nodes at 0.05 an hour for 20 hours a day each: 56 losses a month expected.
	h := &advise.History{
		Jobs:   daily(lasted(0, 20*hour, job.ObjectiveTime), lasted(time.Minute, 20*hour, job.ObjectiveTime)),
		Offers: []fleet.Offer{offer("v1", 0.6, true, 0.05)}, Idle: 5 * time.Minute,
	}

	h.From, h.To, h.Policy = begin, begin.Add(span), "rules"
	a, err := advise.Again(t.Context(), advise.Question{History: h, Policy: policies, Seed: 1, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	if a.SpotLosses < 35 || a.SpotLosses > 80 {
		t.Errorf("%d spot nodes were lost, want about 56", a.SpotLosses)
	}
}

func TestTooLittleIsRefused(t *testing.T) {
	t.Parallel()
	h := twoADay(hour)
	h.Jobs = h.Jobs[:12]
	h.From, h.To, h.Policy = begin, begin.Add(span), "rules"
	_, err := advise.Advise(t.Context(), advise.Question{History: h, Policy: policies})
	if err == nil || !strings.HasPrefix(err.Error(), "only 12 jobs in the period; at least 30 are needed") {
		t.Errorf("error is %v", err)
	}

	h = twoADay(hour)
	h.From, h.To, h.Policy = begin, begin.Add(25*hour), "rules"
	if _, err := advise.Advise(
		t.Context(),
		advise.Question{History: h, Policy: policies},
	); err == nil ||
		!strings.HasPrefix(err.Error(), "the period covers 1.0 days; at least 3 are needed") {
		t.Errorf("error is %v", err)
	}
}
