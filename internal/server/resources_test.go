package server

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// provisionFIFO starts jobs in line, and provisions the cheapest offer for those that find no place.
type provisionFIFO struct{ ordered.FIFO }

func (p provisionFIFO) Plan(v *place.View) place.Plan {
	plan := p.FIFO.Plan(v)
	for _, it := range v.Queue.Items() {
		placed := slices.ContainsFunc(plan.Starts, func(s place.Start) bool { return s.Item == it })
		provisioned := slices.ContainsFunc(v.Leases, func(l *fleet.Lease) bool { return l.Job == it.Job })
		if !placed && !provisioned && len(v.Offers) > 0 {
			plan.Provisions = append(
				plan.Provisions,
				place.Provision{Item: it, Offer: v.Offers[0].Name, Count: 1, Cost: 1, Reason: "nothing is free"},
			)
		}
	}

	return plan
}

// provisioning is a yard that provisions, has prices, and takes silence for nothing.
func provisioning(_ *Config, c *yardmaster.Config) {
	c.Policy, c.SuspectAfter = provisionFIFO{}, 0
	c.Tariff = &fleet.Tariff{
		Energy: 0.5,
		PUE:    2,
		Nodes:  []fleet.NodePrice{{Class: fleet.Local, Watts: []float64{100, 400, 700}, Hourly: []money.PerHour{1}}},
	}

	for _, o := range []fleet.Offer{
		{Type: "big", GPU: "A100", GPUs: 8, GPUMemory: 80 << 30, Hourly: 20_000_000},
		{Type: "small", GPU: "L4", GPUs: 1, GPUMemory: 24 << 30, Hourly: 1_000_000,
			BillingIncrement: job.Duration(time.Hour)},
		{Type: "small", Spot: true, GPU: "L4", GPUs: 1, GPUMemory: 24 << 30, Hourly: 1_200_000},
		{Type: "mid", Region: "north", GPU: "A100", GPUs: 2, GPUMemory: 40 << 30, Hourly: 5_000_000},
	} {
		o.Provider, o.CPUs, o.Memory = "testcloud", 64000, 1<<40
		o.Name = o.NameOf()
		c.Offers = append(c.Offers, o)
	}
}

// requested waits until a lease is requested: after a round that took long, jobs wait a moment for the next one.
func (y *yard) requested(l id.Lease) {
	y.t.Helper()
	eventually(y.t, "lease "+string(l)+" is requested", func() bool {
		known := false
		y.must(y.loop.Query(y.t.Context(), func(core *yardmaster.Yard) { known = core.Lease(l) != nil }))

		return known
	})
}

// grant lets the provider grant a lease that was requested.
func (y *yard) grant(l id.Lease) {
	y.t.Helper()
	y.requested(l)

	machine := fleet.Instance{ID: "i-1", Lease: l, State: fleet.InstanceUp, Billed: -1}
	y.do(yardmaster.LeaseGranted{Lease: l, Provider: "testcloud", Machine: machine})
}

func TestOffersAreListedByPriceAndWhatIsClosedIsExplained(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada := y.researcher("ada")
	names := func(f api.OfferFilter) string {
		page, err := ada.Offers(t.Context(), f)
		y.must(err)

		var list []string
		for _, o := range page.Offers {
			list = append(list, o.Name)
		}

		return strings.Join(list, " ") + " > " + page.Next
	}

	yes := true
	for want, f := range map[string]api.OfferFilter{
		"testcloud/small testcloud/small/spot testcloud/mid/north testcloud/big > ": {},
		"testcloud/small testcloud/small/spot > testcloud/small/spot":               {Page: api.Page{Limit: 2}},
		"testcloud/mid/north testcloud/big > ":                                      {Page: api.Page{Limit: 2, Cursor: "testcloud/small/spot"}},
		"testcloud/mid/north > testcloud/mid/north":                                 {GPU: "A100", Page: api.Page{Limit: 1}},
		"testcloud/big > ":        {GPU: "A100:80GB"},
		"testcloud/small/spot > ": {Spot: &yes, Provider: "testcloud"},
		"testcloud/mid/north >  ": {Region: "north"},
		" > ":                     {Provider: "othercloud"},
	} {
		if got := names(f); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%+v lists %q, want %q", f, got, want)
		}
	}

	_, err := ada.Offers(t.Context(), api.OfferFilter{Page: api.Page{Cursor: "nothing"}})
	wantFault(t, err, fault.Invalid, "bad_cursor")

	y.submit(ada, "run: a\nresources: {memory: 900GB}")
	y.requested("l1")
	y.do(yardmaster.LeaseRefused{Lease: "l1", Code: fleet.RefusedCapacity, Why: "there is none"})
	page, err := ada.Offers(t.Context(), api.OfferFilter{})
	y.must(err)

	if len(page.Closed) != 1 || page.Closed[0].Times != 1 || page.Closed[0].Offers != 1 ||
		!page.Closed[0].Until.After(y.clock.Now()) ||
		!strings.Contains(page.Closed[0].What, "small") ||
		page.Closed[0].Why == "" {
		t.Errorf("closed is %+v", page.Closed)
	}

	if len(page.Offers) != 3 || page.Offers[0].Name != "testcloud/small/spot" {
		t.Errorf("open are %+v", page.Offers)
	}
}

func TestALeaseIsSeenByWhoPaysAndReturnedByAnAdmin(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada := y.researcher("ada")
	bob := y.researcher("bob")
	root := y.admin()

	for i, c := range []*api.Client{ada, bob, ada} {
		y.submit(c, "run: a\nresources: {memory: 900GB}")
		y.requested(id.Lease("l" + strconv.Itoa(i+1)))
	}

	y.grant("l1")

	y.advance(5 * time.Minute)

	list := func(c *api.Client, f api.LeaseFilter) string {
		page, err := c.Leases(t.Context(), f)
		y.must(err)

		var all []string
		for _, l := range page.Leases {
			all = append(all, string(l.ID))
		}

		return strings.Join(all, " ") + " > " + page.Next
	}

	for _, tt := range []struct {
		who  *api.Client
		f    api.LeaseFilter
		want string
	}{
		{root, api.LeaseFilter{}, "l3 l2 l1 > "}, {ada, api.LeaseFilter{}, "l3 l1 > "}, {bob,
			api.LeaseFilter{Live: true}, "l2 > "},
		{root, api.LeaseFilter{Owner: "bob"}, "l2 > "}, {root, api.LeaseFilter{Job: "j3"}, "l3 > "}, {root,
			api.LeaseFilter{Project: "p"}, " > "},
		{root, api.LeaseFilter{Page: api.Page{Limit: 2}}, "l3 l2 > l2"}, {root,
			api.LeaseFilter{Page: api.Page{Limit: 2, Cursor: "l2"}}, "l1 > "},
		{root, api.LeaseFilter{To: y.clock.Now().Add(-time.Hour)}, " > "}, {root,
			api.LeaseFilter{From: y.clock.Now()}, "l3 l2 l1 > "},
	} {
		if got := list(tt.who, tt.f); got != tt.want {
			t.Errorf("%+v lists %q, want %q", tt.f, got, tt.want)
		}
	}

	l, err := ada.Lease(t.Context(), "l1")
	y.must(err)

	if l.State != fleet.LeaseBooting || l.Instance != "i-1" || l.Kept < 300 || l.Kept > 500 || l.Cost != 1 ||
		l.Job != "j1" ||
		l.Granted == nil ||
		l.Reason == "" ||
		l.Billed != nil {
		t.Errorf("the lease is %+v: five minutes of what is billed by the hour cost $1", l)
	}

	_, err = bob.Lease(t.Context(), "l1")
	wantFault(t, err, fault.NotFound, "lease_not_found")
	_, err = root.Lease(t.Context(), "l99")
	wantFault(t, err, fault.NotFound, "lease_not_found")
	_, err = ada.ReleaseLease(t.Context(), "l1")
	wantFault(t, err, fault.Denied, "not_allowed")
	back, err := root.ReleaseLease(t.Context(), "l1")
	y.must(err)

	if back.State != fleet.LeaseReleasing || !strings.Contains(back.Reason, "root") {
		t.Errorf("given back: %+v", back)
	}

	y.do(yardmaster.MachineGone{Lease: "l1"})
	_, err = root.ReleaseLease(t.Context(), "l1")
	wantFault(t, err, fault.Conflict, "lease_state")
}

func TestTheReaperSaysWhatItFound(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	root := y.admin()
	r, err := root.Reaper(t.Context())
	y.must(err)

	if r.Live != 0 || r.Strays == nil || len(r.Strays)+len(r.Unclear)+len(r.Failures)+len(r.Failing)+len(r.Overdue) != 0 {
		t.Errorf("with nothing provisioned it says %+v", r)
	}

	y.submit(y.researcher("ada"), "run: a\nresources: {memory: 900GB}")
	y.requested("l1")
	y.do(yardmaster.OutcomeUnknown{Lease: "l1", Why: "timed out"})

	y.do(
		yardmaster.InstancesListed{
			Provider: "testcloud",
			CalledAt: y.clock.Now(),
			Machines: []fleet.Instance{{ID: "i-9", Type: "small", State: fleet.InstanceUp, Billed: -1}},
		},
	)

	y.do(yardmaster.ProviderFailed{Provider: "testcloud", Why: "503"})
	r, err = root.Reaper(t.Context())
	y.must(err)

	if len(r.Strays) != 1 || r.Strays[0].Lease != "l2" || len(r.Unclear) != 1 || r.Unclear[0].Lease != "l1" ||
		len(r.Failures) != 1 {
		t.Errorf("it found %+v", r)
	}

	if diff := cmp.Diff([]api.FailingProvider{{Provider: "testcloud", Why: "503"}}, r.Failing); diff != "" {
		t.Errorf("failing (-want +got):\n%s", diff)
	}

	if r.Live != 2 || r.States["requested"] != 1 || r.States["releasing"] != 1 || len(r.Overdue) != 1 ||
		r.Overdue[0].ID != "l2" {
		t.Errorf("live leases: %+v", r)
	}

	y.do(yardmaster.InstancesListed{Provider: "testcloud", CalledAt: y.clock.Now()})
	y.advance(time.Minute)
	y.do(yardmaster.Tick{})

	r, err = root.Reaper(t.Context())
	if err != nil || len(r.Failing) != 0 || len(r.Failures) != 2 {
		t.Errorf("when it answers again: %+v, %v", r, err)
	}
}

func TestLimitsAreSetByAdminsAndSeenByWhomTheyBind(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada := y.researcher("ada")
	bob := y.researcher("bob")
	root := y.admin()
	l, err := root.PutQuota(
		t.Context(),
		"user/ada",
		api.QuotaRequest{GPUs: 8, Budget: 500_000_000, OnExceeded: tenant.ExceededDowngrade, Borrow: true},
	)

	y.must(err)

	want := api.Quota{
		Subject: "user/ada",
		QuotaRequest: api.QuotaRequest{
			GPUs:       8,
			Budget:     500_000_000,
			Period:     tenant.Month,
			OnExceeded: tenant.ExceededDowngrade,
			Borrow:     true,
			WarnAt:     0.8,
		},
	}

	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("the limit (-want +got):\n%s", diff)
	}

	_, err = root.PutQuota(t.Context(), "each/user", api.QuotaRequest{GPUHours: 100, Period: tenant.Week})
	y.must(err)
	_, err = root.PutQuota(t.Context(), "project/vision", api.QuotaRequest{Nodes: 2})
	y.must(err)
	_, err = root.PutQuota(t.Context(), "user/nobody", api.QuotaRequest{GPUs: 1})
	wantFault(t, err, fault.NotFound, "user_not_found")
	_, err = root.PutQuota(t.Context(), "each/dog", api.QuotaRequest{GPUs: 1})
	wantFault(t, err, fault.Invalid, "bad_quota")
	_, err = root.PutQuota(t.Context(), "user/ada", api.QuotaRequest{Borrow: true})
	wantFault(t, err, fault.Invalid, "empty_quota")
	_, err = ada.PutQuota(t.Context(), "user/ada", api.QuotaRequest{GPUs: 99})
	wantFault(t, err, fault.Denied, "not_allowed")

	show := func(c *api.Client, p api.Page) string {
		page, err := c.Quotas(t.Context(), p)
		y.must(err)

		var all []string
		for _, l := range page.Quotas {
			all = append(all, l.Subject)
		}

		all = append(all, "|")
		for _, s := range page.Usage {
			word := s.Subject
			if s.Quota != nil {
				word += "<" + s.Quota.Subject
			}

			all = append(all, word)
		}

		return strings.Join(append(all, ">", page.Next), " ")
	}

	for _, tt := range []struct {
		who  *api.Client
		p    api.Page
		want string
	}{
		{root, api.Page{}, "each/user project/vision user/ada | project/vision<project/vision user/ada<user/ada > "},
		{root, api.Page{Limit: 1}, "each/user project/vision user/ada | project/vision<project/vision > project/vision"},
		{root, api.Page{Limit: 1, Cursor: "project/vision"}, "| user/ada<user/ada > "},
		{ada, api.Page{}, "each/user user/ada | user/ada<user/ada > "},
		{bob, api.Page{}, "each/user | user/bob<each/user > "},
	} {
		if got := show(tt.who, tt.p); got != tt.want {
			t.Errorf("%+v shows %q, want %q", tt.p, got, tt.want)
		}
	}

	y.must(root.RemoveQuota(t.Context(), "each/user"))

	if got := show(bob, api.Page{}); got != "| user/bob > " {
		t.Errorf("who is not limited sees %q", got)
	}

	wantFault(t, root.RemoveQuota(t.Context(), "each/user"), fault.NotFound, "quota_not_found")
}

func TestDatasetsBelongToWhoRegisteredThem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	bob := y.researcher("bob")
	root := y.admin()

	in := api.DatasetRequest{
		Place:  job.PlaceLocal,
		Size:   10 << 30,
		Source: "/data/cats",
		Copies: []api.Copy{{Node: "box1", Path: "/data/cats"}},
	}

	d, err := ada.PutDataset(t.Context(), "cats", in)
	y.must(err)

	if d.Owner != "ada" || d.Created.IsZero() {
		t.Errorf("registered as %+v", d)
	}

	if diff := cmp.Diff(in, d.DatasetRequest); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}

	in.Place = job.PlaceAny
	_, err = bob.PutDataset(t.Context(), "cats", in)
	wantFault(t, err, fault.Denied, "not_allowed")
	wantFault(t, bob.RemoveDataset(t.Context(), "cats"), fault.Denied, "not_allowed")
	_, err = bob.AuditDataset(t.Context(), "cats", 0)
	wantFault(t, err, fault.Denied, "not_allowed")
	d, err = root.PutDataset(t.Context(), "cats", in)
	y.must(err)

	if d.Owner != "ada" || d.Place != job.PlaceAny {
		t.Errorf("an admin made it %+v: it is ada's still", d)
	}

	_, err = ada.PutDataset(t.Context(), "Bad Name", in)
	wantFault(t, err, fault.Invalid, "dataset_name")
	_, err = bob.PutDataset(t.Context(), "ants", api.DatasetRequest{Place: job.PlaceCloud})
	y.must(err)
	page, err := bob.Datasets(t.Context(), api.Page{Limit: 1})
	y.must(err)
	rest, err := bob.Datasets(t.Context(), api.Page{Limit: 1, Cursor: page.Next})
	y.must(err)

	if len(page.Datasets) != 1 || page.Datasets[0].ID != "ants" || page.Next != "ants" || len(rest.Datasets) != 1 ||
		rest.Datasets[0].ID != "cats" ||
		rest.Next != "" {
		t.Errorf("pages %+v and %+v", page, rest)
	}

	y.must(ada.RemoveDataset(t.Context(), "cats"))
	_, err = ada.Dataset(t.Context(), "cats")
	wantFault(t, err, fault.NotFound, "no_dataset")
	wantFault(t, ada.RemoveDataset(t.Context(), "cats"), fault.NotFound, "no_dataset")
}

func TestTheAuditSaysWhetherDataLeftTheBuilding(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada, root := y.researcher("ada"), y.admin()
	_, err := ada.PutDataset(t.Context(), "cats", api.DatasetRequest{Place: job.PlaceLocal})
	y.must(err)

	says := func() api.Audit {
		a, err := ada.AuditDataset(t.Context(), "cats", 1)
		y.must(err)
		return a
	}

	if a := says(); a.Left || !a.Complete ||
		a.Answer != "No: it was never used, and no copy is registered outside the premises." {
		t.Errorf("unused: %+v", a)
	}

	n := y.join("box1")
	n.listen()
	j := y.using("ada", "cats")
	n.ends(n.awaitRun(j, 1), 0, 0)

	if a := says(); a.Left || a.Inside != 1 || a.Uses[0].Node != "box1" || a.Uses[0].Outside ||
		a.Answer != "No: every use was on a node on the premises." {
		t.Errorf("used inside: %+v", a)
	}

	_, err = root.CordonNode(t.Context(), "box1")
	y.must(err)

	cloud := y.joinWith(
		"cloud1",
		y.newToken(
			tenant.Token{
				Kind:     tenant.JoinToken,
				Owner:    "root",
				Class:    "reserved",
				UsesLeft: 1,
				Expires:  y.clock.Now().Add(time.Hour),
			},
		),
	)

	cloud.listen()
	j = y.using("ada", "cats")
	_, err = ada.Override(t.Context(), j, api.OverrideRequest{Place: job.PlaceAny, Why: "I want to"})
	wantFault(t, err, fault.Denied, "not_allowed")
	_, err = root.Override(t.Context(), j, api.OverrideRequest{Place: job.PlaceCloud})
	wantFault(t, err, fault.Invalid, "bad_request")
	over, err := root.Override(t.Context(), j, api.OverrideRequest{Place: job.PlaceCloud, Why: "the paper is due"})
	y.must(err)

	if over.ID != j {
		t.Errorf("the answer is %+v", over)
	}

	cloud.ends(cloud.awaitRun(j, 1), 0, 0)

	a := says()
	if !a.Left || a.Outside != 1 || a.Against != 1 || len(a.Uses) != 1 || a.First == nil || a.First.Node != "cloud1" ||
		a.First.Override != "root: the paper is due" {
		t.Errorf("used outside: %+v", a)
	}

	if !strings.HasPrefix(a.Answer, "Yes: first on ") ||
		!strings.HasSuffix(a.Answer, fmt.Sprintf("by %s.1 of ada on node cloud1, allowed by root: the paper is due.", j)) {
		t.Errorf("it says %q", a.Answer)
	}

	_, err = root.Override(t.Context(), j, api.OverrideRequest{Place: job.PlaceAny, Why: "late"})
	wantFault(t, err, fault.Conflict, "job_state")
	y.must(ada.RemoveDataset(t.Context(), "cats"))

	if gone, err := root.AuditDataset(t.Context(), "cats", 0); err != nil || gone.Outside != 1 || gone.Inside != 1 ||
		gone.Place != "" {
		t.Errorf("the record of what was removed: %+v, %v", gone, err)
	}

	_, err = root.AuditDataset(t.Context(), "never", 0)
	wantFault(t, err, fault.NotFound, "no_dataset")
}

func TestTheBooksHaveWhatRunsNow(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada := y.researcher("ada")
	bob := y.researcher("bob")
	root := y.admin()
	n := y.join("box1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{
		{Index: 0, UUID: "GPU-a", Model: "L4", Memory: 24 << 30},
		{Index: 1, UUID: "GPU-b", Model: "L4", Memory: 24 << 30},
	}

	_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	y.must(err)
	y.accept("box1")
	n.listen()
	began := y.clock.Now()

	for _, c := range []*api.Client{ada, bob} {
		j := y.submit(c, "run: a\nresources: {gpus: 1}")[0].ID
		n.starts(n.awaitRun(j, 1), 0)
	}

	y.advance(2 * time.Hour)

	near := func(what string, got, want float64) {
		t.Helper()

		if got < want || got > want*1.05 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}

	all, err := root.UsageReport(
		t.Context(),
		api.UsageQuery{From: began.Add(-time.Minute), By: []string{"researcher", "account"}},
	)

	y.must(err)
	rows := map[string]api.UsageRow{}

	sum := api.Amounts{}
	for _, r := range all.Rows {
		rows[strings.Join(r.Keys, "/")] = r
		sum.Cost, sum.NodeSeconds = sum.Cost+r.Cost, sum.NodeSeconds+r.NodeSeconds
	}

	near("ada's GPU time", rows["ada/use"].GPUSeconds, 7200)
	near("bob's GPU time", rows["bob/use"].GPUSeconds, 7200)
	near("all", all.Total.Cost, 2*(1+0.7*2*0.5)) // two hours of rent and 700 W, twice that for the building, at $0.50
	near("energy", all.Total.Energy, 2*1.4)

	if d := sum.Cost - all.Total.Cost; d > 1e-6 || d < -1e-6 {
		t.Errorf("the rows come to $%v and the total is $%v", sum.Cost, all.Total.Cost)
	}

	mine, err := ada.UsageReport(t.Context(), api.UsageQuery{By: []string{"researcher"}})
	y.must(err)

	if mine.NoTariff {
		t.Error("prices are said to be missing")
	}

	if len(mine.Rows) != 1 || mine.Rows[0].Keys[0] != "ada" || mine.Total != mine.Rows[0].Amounts {
		t.Errorf("ada sees %+v", mine)
	}

	d, err := ada.Job(t.Context(), "j1")
	y.must(err)
	near("the job's cost", d.Cost, mine.Total.Cost*0.99)
	_, err = ada.UsageReport(t.Context(), api.UsageQuery{Where: []string{"researcher=bob"}})
	wantFault(t, err, fault.Denied, "not_allowed")

	for _, where := range []string{"class", "sort=x", "day=monday"} {
		if _, err := root.UsageReport(
			t.Context(),
			api.UsageQuery{Where: []string{where}},
		); fault.KindOf(err) != fault.Invalid {
			t.Errorf("where=%s: %v", where, err)
		}
	}

	_, err = root.UsageReport(t.Context(), api.UsageQuery{By: []string{"colour"}})
	wantFault(t, err, fault.Invalid, "ledger_key")

	before, err := root.UsageReport(t.Context(), api.UsageQuery{})
	y.must(err)
	n.ends("j1.1", 0, 0) // now it is posted, and counts once
	after, err := root.UsageReport(t.Context(), api.UsageQuery{})
	y.must(err)
	near("the total when a job ended", after.Total.Cost, before.Total.Cost)
	near("the total when a job ended", after.Total.NodeSeconds, before.Total.NodeSeconds)

	var text strings.Builder
	y.must(root.CSV(t.Context(), "usage/report", api.UsageQuery{By: []string{"researcher"}}, &text))
	table, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	y.must(err)

	if len(table) < 3 || table[0][0] != "researcher" || table[0][5] != "cost_usd" {
		t.Errorf("as CSV: %s", text.String())
	}

	token := y.token("root", tenant.Admin, tenant.ScopeAdmin)
	if got := y.raw(y.http, http.MethodGet, "/api/v1/usage?format=csv", token,
		""); got.header.Get("Content-Type") != "text/csv; charset=utf-8" ||
		!strings.HasPrefix(string(got.body), "group,class,node,") {
		t.Errorf("usage as CSV: %v %.200s", got.header, got.body)
	}

	if got := y.raw(y.http, http.MethodGet, "/api/v1/usage?format=json", token, "",
		"Accept: text/csv"); got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the format that was asked for counts: %v", got.header)
	}
}

func TestUsageHasTheFourGroups(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada, root := y.researcher("ada"), y.admin()
	n := y.join("box1")
	n.listen()
	n.started(ada)
	y.submit(y.researcher("bob"), "run: b\nresources: {memory: 900GB}")
	y.requested("l1")
	began := y.clock.Now()

	y.grant("l1")

	y.advance(time.Hour)
	u, err := root.Usage(t.Context(), api.UsageQuery{From: began.Add(-time.Hour)})
	y.must(err)

	if len(u.UseRate) != 2 || u.UseRate[0].Class != fleet.Local || u.UseRate[0].Node != "" ||
		u.UseRate[1].Node != "box1" ||
		u.UseRate[0].NodeRate < 0.99 {
		t.Errorf("use rates: %+v", u.UseRate)
	}

	if len(u.OnDemand) != 2 || u.OnDemand[0].Creations != 1 || u.OnDemand[1].Offer != "testcloud/small" ||
		u.OnDemand[0].Estimated < 1 {
		t.Errorf("on-demand: %+v", u.OnDemand)
	}

	if len(u.Own) != 1 || u.Own[0].Researcher != "ada" || u.Own[0].NodeSeconds < 3600 {
		t.Errorf("own time: %+v", u.Own)
	}

	if len(u.OnDemandBy) != 1 || u.OnDemandBy[0].Researcher != "bob" || u.OnDemandBy[0].Creations != 1 {
		t.Errorf("on-demand by researcher: %+v", u.OnDemandBy)
	}

	if !slices.ContainsFunc(
		u.Unused,
		func(x api.Unused) bool { return x.Account == "boot" && x.Class == fleet.OnDemand },
	) {
		t.Errorf("unused: %+v", u.Unused)
	}

	cost := 0.0
	for _, x := range u.Trend {
		cost += x.Cost
	}

	if len(u.Trend) < 2 || len(u.Trend) > 4 || cost < 2 || u.To == nil {
		t.Errorf("the trend of two hours: %+v", u.Trend)
	}

	mine, err := ada.Usage(t.Context(), api.UsageQuery{})
	y.must(err)

	if len(mine.UseRate) != 2 || len(mine.Own) != 1 || mine.OnDemand[0].Creations != 0 || len(mine.OnDemandBy) != 0 ||
		len(mine.Unused) != 0 {
		t.Errorf("ada sees %+v", mine)
	}

	_, err = root.Usage(t.Context(), api.UsageQuery{From: began, To: began.Add(-time.Hour)})
	wantFault(t, err, fault.Invalid, "ledger_period")
}

func TestSavingsAreTheOwnOnesUnlessAnAdminAsks(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning, withYard(func(c *yardmaster.Config) {
		c.Policy = thrifty{}
		c.Tariff = nil
	}))
	ada, root := y.researcher("ada"), y.admin()
	n := y.join("box1")
	n.listen()

	_, first := n.started(ada)
	_, second := n.started(y.researcher("bob"))
	open, err := root.Savings(t.Context(), api.UsageQuery{})
	y.must(err)

	if open.Total.Count != 0 {
		t.Errorf("booked for jobs that have not ended: %+v", open)
	}

	n.ends(first, 0, 0)
	n.ends(second, 0, 1)
	all, err := root.Savings(t.Context(), api.UsageQuery{})
	y.must(err)

	if all.Total.Count != 2 || all.Total.Money != 2 || len(all.Rows) != 1 ||
		all.Rows[0].Keys[0] != "placement" || len(all.Decisions) != 2 ||
		all.Decisions[0].Reason != "provision an L4" {
		t.Errorf("all: %+v", all)
	}

	mine, err := ada.Savings(t.Context(), api.UsageQuery{By: []string{"researcher", "job"}})
	y.must(err)

	if mine.Total.Count != 1 || mine.Total.Money != 1 || len(mine.Decisions) != 1 || mine.Decisions[0].Owner != "ada" ||
		mine.Rows[0].Keys[1] != "j1" {
		t.Errorf("ada sees %+v", mine)
	}

	var text strings.Builder
	y.must(root.CSV(t.Context(), "savings", api.UsageQuery{}, &text))

	if !strings.HasPrefix(text.String(), "kind,decisions,saved_usd,saved_seconds\nplacement,2,2,") {
		t.Errorf("as CSV: %s", text.String())
	}
}

// thrifty says of each start that a node would have been provisioned instead, which is billed by the
// hour.
type thrifty struct{ ordered.FIFO }

func (p thrifty) Plan(v *place.View) place.Plan {
	plan := p.FIFO.Plan(v)
	for i := range plan.Starts {
		plan.Starts[i].Counterfactual = &place.Counterfactual{
			Kind: place.Placement, What: "provision an L4", Offer: "testcloud/small", Count: 1, Ratio: 1,
		}
	}

	return plan
}

func TestTheResourceTableTellsOfGPUsPricesAndLeases(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada := y.researcher("ada")
	n := y.join("box1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{
		{Index: 0, UUID: "GPU-a", Model: "NVIDIA L4", Memory: 24 << 30, Measured: 60, Peak: 121, Bandwidth: 300, Watts: 72},
		{Index: 1, UUID: "GPU-b", Model: "NVIDIA L4", Memory: 24 << 30, Peak: 120, Watts: 72},
	}

	inv.Draw = []float64{30, 80, 130}

	report := func(r api.Report) api.ReportReply {
		r.Capability, r.Boot = api.Capability, "b"
		reply, err := n.Report(t.Context(), r)
		y.must(err)

		return reply
	}

	see := func() api.Node {
		got, err := ada.Node(t.Context(), "box1")
		y.must(err)
		return got
	}

	report(api.Report{Inventory: &inv})
	y.accept("box1")

	got := see()
	if got.State != "idle" || got.TFLOPS != 150 || got.Origin != "mixed" || got.Watts != 144 || got.Draw != 30 ||
		got.Lease != nil {
		t.Errorf("idle: %+v", got)
	}

	if diff := cmp.Diff(&api.Price{NodeCost: 1, EnergyCost: 0.7, Hourly: 1.7, Idle: 1.1}, got.Price); diff != "" {
		t.Errorf("its price (-want +got):\n%s", diff)
	}

	if g := got.GPUs[0]; g.Origin != "measured" || g.TFLOPS != 60 || g.Bandwidth != 300 || g.Peak != 121 || g.Watts != 72 {
		t.Errorf("GPU 0: %+v", g)
	}

	before := y.clock.Now()
	seen := api.ForeignProcess{GPU: 1, PID: 77, User: "eve", Program: "python", Memory: 1 << 30}
	report(api.Report{Foreign: []int{1}, ForeignProcesses: []api.ForeignProcess{seen}})
	y.advance(time.Minute)
	report(api.Report{Foreign: []int{1}, ForeignProcesses: []api.ForeignProcess{seen}})

	got = see()
	if got.State != "foreign" || got.Since.Before(before.Truncate(time.Second)) ||
		got.Since.After(before.Add(30*time.Second)) ||
		got.Draw != 80 {
		t.Errorf("used by another since %s: %+v", before, got)
	}

	if g := got.GPUs[1]; g.State != fleet.GPUForeign || g.Since == nil || !g.Since.Equal(got.Since) ||
		len(g.Foreign) != 1 ||
		g.Foreign[0] != seen {
		t.Errorf("GPU 1: %+v", g)
	}

	n.listen()
	j := y.submit(ada, "run: a\nresources: {gpus: 1}")[0].ID
	n.starts(n.awaitRun(j, 1), 0)

	got = see()
	if got.State != "running" || len(got.Runs) != 1 || got.Runs[0].Job != j || len(got.Runs[0].GPUs) != 1 ||
		!got.Since.Equal(got.Runs[0].Since) ||
		got.GPUs[0].Job != j {
		t.Errorf("running: %+v", got)
	}
}

func TestABrokenGPUIsReleasedByAnAdminAndItsAgentIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	y := startYard(t, dir)
	root := y.admin()
	n := y.join("box1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{
		{Index: 0, UUID: "GPU-a", Model: "L4", Error: "Xid 79: it fell off the bus", Health: "Xid 79"},
		{Index: 1, UUID: "GPU-b", Model: "L4"},
	}

	first, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	y.must(err)

	if len(first.Release) != 0 {
		t.Errorf("nothing was released, and it is told %+v", first.Release)
	}

	got, err := root.Node(t.Context(), "box1")
	y.must(err)

	if got.State != "error" || got.GPUs[0].State != fleet.GPUError || got.GPUs[0].Since == nil ||
		got.GPUs[0].Health != "Xid 79" {
		t.Errorf("broken: %+v", got)
	}

	_, err = root.ClearGPUError(t.Context(), "box1", 1)
	wantFault(t, err, fault.Conflict, "gpu_in_order")
	_, err = root.ClearGPUError(t.Context(), "box1", 9)
	wantFault(t, err, fault.NotFound, "gpu_not_found")
	_, err = root.ClearGPUError(t.Context(), "box7", 0)
	wantFault(t, err, fault.NotFound, "node_not_found")
	_, err = root.ClearGPUError(t.Context(), "box1", 0)
	y.must(err)
	told, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b"})
	y.must(err)

	if len(told.Release) != 1 || told.Release[0].UUID != "GPU-a" || told.Release[0].At.IsZero() {
		t.Errorf("its agent is told %+v", told.Release)
	}

	events, err := root.Events(t.Context(), api.EventFilter{Kind: "gpu"})
	y.must(err)

	if len(events.Events) != 1 || events.Events[0].Actor != "root" ||
		!strings.Contains(events.Events[0].Reason, "fell off the bus") {
		t.Errorf("the feed has %+v", events.Events)
	}

	// A server that starts again has not forgotten what it may not have told.
	if err := y.srv.agents.RecallReleases(t.Context()); err != nil {
		t.Fatal(err)
	}

	again, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b"})
	y.must(err)

	if len(again.Release) != 1 || again.Release[0].UUID != told.Release[0].UUID {
		t.Errorf("after a start it tells %+v", again.Release)
	}
}

// using makes a job that uses a dataset.
func (y *yard) using(owner id.User, data string) id.Job {
	y.t.Helper()
	s := &job.Spec{
		Run:       "a",
		Place:     job.PlaceAny,
		Data:      []string{data},
		Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
	}

	done, ok := y.do(yardmaster.Submit{Owner: owner, Jobs: []yardmaster.NewJob{{Spec: s}}}).(yardmaster.Submitted)
	if !ok {
		y.t.Fatal("it was not submitted")
	}

	return done.Jobs[0]
}

// meanwhile is a store before whose books are read something happens.
type meanwhile struct {
	store.Store
	happens func()
}

func (m meanwhile) Postings(ctx context.Context, f store.PostingFilter, yield func(*ledger.Posting) error) error {
	m.happens()
	return m.Store.Postings(ctx, f, yield)
}

func TestNothingCountsTwiceWhileItIsPosted(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	root := y.admin()
	start := y.clock.Now()
	y.join("box1")
	hours := 0
	y.srv.Store = meanwhile{y.srv.Store, func() { // after what runs up now was looked at, it is posted
		y.do(yardmaster.Cordon{Node: "box1", By: "root", On: hours%2 == 0})
	}}
	for last := ledger.Span(0); hours < 5; hours++ {
		y.advance(time.Hour)
		b, err := root.UsageReport(t.Context(), api.UsageQuery{})
		y.must(err)

		// In milliseconds, as they are booked: sums of seconds that are not whole differ in their last digit.
		got, most := ledger.SpanOf(job.Seconds(b.Total.NodeSeconds)), ledger.SpanOf(y.clock.Now().Sub(start))
		if got > most || got < last+ledger.SpanOf(time.Hour) {
			t.Fatalf("the books have %d ms of one node that was there for %d ms; an hour before they had %d", got, most, last)
		}

		last = got
	}
}

// rolling is a store in which all postings are added up just before totals are read: the first time that is too
// late for who has looked at what runs up.
type rolling struct {
	store.Store
	happens func()
}

func (r rolling) Postings(ctx context.Context, f store.PostingFilter, yield func(*ledger.Posting) error) error {
	r.happens()

	if _, err := r.RollUp(ctx, 100); err != nil {
		return err
	}

	return r.Store.Postings(ctx, f, yield)
}

func TestNothingCountsTwiceWhileItIsAddedUp(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	root := y.admin()
	start := y.clock.Now()
	y.join("box1")

	for _, on := range []bool{true, false} { // so that something is posted
		y.do(yardmaster.Cordon{Node: "box1", By: "root", On: on})
		y.advance(time.Second)
	}

	read, posts := 0, true
	y.srv.Store = rolling{y.srv.Store, func() {
		read++

		if posts { // what has run up, after it was looked at
			posts = false
			y.do(yardmaster.Cordon{Node: "box1", By: "root", On: true})
		}
	}}
	y.advance(90 * time.Minute)

	b, err := root.UsageReport(t.Context(), api.UsageQuery{})
	y.must(err)

	most := y.clock.Now().Sub(start).Seconds()
	if got := b.Total.NodeSeconds; got < 5400 || got > most || read != 2 {
		t.Errorf("%v s of one node that was there for %v s, after the ledger was read %d times", got, most, read)
	}

	u, err := root.Usage(t.Context(), api.UsageQuery{})
	y.must(err)

	if got := u.UseRate[0].AvailableNode; got < 5400 || got > most {
		t.Errorf("%v s of %v were available", got, most)
	}
}
