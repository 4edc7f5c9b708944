package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func someOffers() []fleet.Offer {
	return []fleet.Offer{
		{
			Name:      "aws/g6/north/spot",
			GPU:       "NVIDIA L4",
			GPUs:      1,
			GPUMemory: 24 << 30,
			CPUs:      8000,
			Memory:    32 << 30,
			Hourly:    301_000,
			Spot:      true,
			LossRate:  0.05,
			Boot:      job.Duration(90 * time.Second),
		},
		{
			Name:             "lab/a100",
			GPU:              "A100",
			GPUs:             8,
			GPUMemory:        80 << 30,
			CPUs:             96000,
			Memory:           1 << 40,
			Hourly:           22_000_000,
			BillingIncrement: job.Duration(time.Hour),
		},
		{Name: "aws/c7", CPUs: 64000, Memory: 128 << 30, Hourly: 2_500},
	}
}

func someLeases() []api.Lease {
	offers := someOffers()
	return []api.Lease{
		{
			ID:        "l9",
			Offer:     offers[0],
			State:     fleet.LeaseActive,
			Since:     ago(50 * time.Minute),
			Reason:    "its node joined",
			Job:       "j7",
			Owner:     "grace",
			Project:   "vision",
			Requested: ago(time.Hour),
			Granted:   new(ago(58 * time.Minute)),
			Joined:    new(ago(50 * time.Minute)),
			Ends:      new(now.Add(10 * time.Minute)),
			Instance:  "i-0abc",
			Node:      "g6-1",
			Kept:      3480,
			Cost:      0.291,
		},
		{
			ID:        "l8",
			Offer:     offers[1],
			State:     fleet.LeaseRefused,
			Since:     ago(2 * time.Hour),
			Reason:    "no_capacity: there is none",
			Job:       "j7",
			Owner:     "grace",
			Requested: ago(2 * time.Hour),
		},
		{
			ID:        "l7",
			Offer:     offers[1],
			State:     fleet.LeaseEnded,
			Since:     ago(26 * time.Hour),
			Reason:    "idle for 5m",
			Owner:     "ada",
			Requested: ago(30 * time.Hour),
			Granted:   new(ago(30 * time.Hour)),
			Released:  new(ago(26 * time.Hour)),
			Ended:     new(ago(26 * time.Hour)),
			Kept:      14400,
			Cost:      88,
			Billed:    new(87.5),
			Stray:     true,
		},
	}
}

// books is a yard with something in every book.
func withBooks(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.answer("GET /api/v1/offers", api.OfferPage{Offers: someOffers(), Closed: []api.Closing{
		{
			What:   "aws p5.48xlarge in us-east-1",
			Why:    "there is none now",
			Since:  ago(time.Minute),
			Until:  now.Add(3 * time.Minute),
			Times:  2,
			Offers: 4,
		},
	}})

	y.answer("GET /api/v1/retention", api.Retention{
		Limits: api.RetentionLimits{Unused: job.Duration(24 * time.Hour), Output: job.Duration(30 * 24 * time.Hour),
			MaxOutput: 1e11, MaxSaved: 5e12},
		Disks: []api.Disk{{Path: "/var/lib/trainyard", Free: 40e9, Total: 100e9, Reserve: 1 << 30}},
		Collected: &api.Collection{
			At: ago(20 * time.Minute), Removed: "removed 3 outputs of ended jobs, 1.2 GB in total", Jobs: 12,
			Files: api.Amount{Count: 340, Bytes: 2e9}, Chunks: api.Amount{Count: 12000, Bytes: 48e9},
			Output: api.Amount{Count: 12, Bytes: 3e8},
		},
		Users: []api.RetentionShare{{User: "ada", Jobs: 10, Output: 2e8, Checkpoints: 48e9}, {User: "bob", Jobs: 2,
			Output: 1e8}},
	})

	y.answer("GET /api/v1/leases", api.LeasePage{Leases: someLeases()})
	y.answer("GET /api/v1/leases/l9", someLeases()[0])
	y.answer("GET /api/v1/leases/l7", someLeases()[2])

	y.answer("GET /api/v1/reaper", api.ReaperReport{
		At:      now,
		Live:    3,
		States:  map[string]int{"active": 2, "releasing": 1},
		Overdue: someLeases()[:1],
		Strays: []api.Event{
			{
				Seq:    7,
				At:     ago(time.Hour),
				Kind:   "lease.stray",
				Lease:  "l7",
				Reason: "a machine that the yard has not provisioned is given back",
			},
		},
		Unclear:  []api.Event{{Seq: 5, At: ago(2 * time.Hour), Kind: "lease.unclear", Lease: "l5", Reason: "timed out"}},
		Failures: []api.Event{{Seq: 6, At: ago(90 * time.Minute), Kind: "provider.failed", Reason: "aws does not answer"}},
		Failing:  []api.FailingProvider{{Provider: "aws", Why: "503 Service Unavailable"}},
	})

	limit := api.Quota{
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

	each := api.Quota{
		Subject:      "each/user",
		QuotaRequest: api.QuotaRequest{GPUHours: 100, Period: tenant.Week, OnExceeded: tenant.ExceededAsk, WarnAt: 0.8},
	}

	y.answer("GET /api/v1/quotas", api.QuotaPage{Quotas: []api.Quota{each, limit}, Usage: []api.QuotaUsage{
		{
			Subject:  "project/vision",
			GPUs:     1.5,
			Ends:     now.Add(30 * 24 * time.Hour),
			Cost:     api.PeriodUsage{Used: 12.5, Expected: 20},
			GPUHours: api.PeriodUsage{Used: 40, Expected: 44},
		},
		{
			Subject:  "user/ada",
			Quota:    &limit,
			GPUs:     4,
			Nodes:    1,
			Ends:     now.Add(30 * 24 * time.Hour),
			Cost:     api.PeriodUsage{Limit: 500, Used: 425.5, Expected: 610, UsedUp: new(now.Add(50 * time.Hour))},
			GPUHours: api.PeriodUsage{Used: 12},
		},
		{
			Subject:  "user/bob",
			Quota:    &each,
			Ends:     now.Add(24 * time.Hour),
			GPUHours: api.PeriodUsage{Limit: 100, Used: 101, Expected: 101, UsedUp: new(now)},
		},
	}})

	scans := api.Dataset{ID: "scans", Owner: "ada", Created: ago(48 * time.Hour), DatasetRequest: api.DatasetRequest{
		Place:  job.PlaceLocal,
		Size:   40 << 30,
		Source: "/data/scans",
		Copies: []api.Copy{{Node: "box1", Path: "/data/scans"}, {Pool: "lab"}},
	}}

	y.answer(
		"GET /api/v1/datasets",
		api.DatasetPage{
			Datasets: []api.Dataset{
				{ID: "cifar10", Owner: "bob", Created: ago(time.Hour), DatasetRequest: api.DatasetRequest{Place: job.PlaceAny}},
				scans,
			},
		},
	)

	y.answer("GET /api/v1/datasets/scans", scans)

	use := api.DatasetUse{
		At:       ago(time.Hour),
		Run:      "j7.1",
		Job:      "j7",
		Owner:    "ada",
		Node:     "cloud1",
		Outside:  true,
		Override: "root: the paper is due",
	}

	y.answer("GET /api/v1/datasets/scans/audit", api.Audit{
		Dataset:  "scans",
		Place:    job.PlaceLocal,
		Left:     true,
		Answer:   "Yes: first on 2026-03-01 11:00 UTC, by j7.1 of ada on node cloud1.",
		First:    &use,
		Last:     &use,
		Inside:   30,
		Outside:  1,
		Against:  1,
		Complete: true,
		Copies:   []api.Copy{},
		Uses:     []api.DatasetUse{use, {At: ago(2 * time.Hour), Run: "j6.1", Owner: "ada", Node: "box1"}},
	})

	amounts := api.Amounts{NodeSeconds: 36000, GPUSeconds: 144000, NodeCost: 10, EnergyCost: 2.25, Cost: 12.25, Energy: 9}
	y.answer(
		"GET /api/v1/usage/report",
		api.UsageReport{
			From:  new(ago(7 * 24 * time.Hour)),
			Group: []string{"researcher", "class"},
			Total: amounts,
			Rows: []api.UsageRow{
				{
					Keys:    []string{"", "local"},
					Amounts: api.Amounts{NodeSeconds: 3600, Cost: 0.004, EnergyCost: 0.004},
				},
				{Keys: []string{"ada", "ondemand"}, Amounts: amounts},
			},
		},
	)

	y.answer(
		"GET /api/v1/savings",
		api.Savings{
			From:  new(ago(7 * 24 * time.Hour)),
			To:    &now,
			Group: []string{"kind"},
			Total: api.SavingRow{Count: 4, Money: 7.26, Seconds: -8100},
			Rows: []api.SavingRow{
				{Keys: []string{"preemption"}, Count: 1, Money: -0.24, Seconds: -900},
				{Keys: []string{"wait"}, Count: 3, Money: 7.5, Seconds: -7200},
			},
			Decisions: []api.SavingReason{
				{
					At: ago(time.Hour), Job: "j7", Owner: "ada", Kind: "wait", Money: 5, Seconds: -3600,
					Reason: "provision aws/p4d (8× A100 40GB)",
				},
				{
					At: ago(2 * time.Hour), Job: "j5", Owner: "ben", Kind: "preemption", Money: -0.24, Seconds: -900,
					Reason: "continue on box1",
				},
			},
		},
	)

	y.answer("GET /api/v1/usage", someUsage())
	y.answer("GET /api/v1/waste", api.Waste{
		From: ago(7 * 24 * time.Hour), To: now, JobsChecked: 12,
		Findings: []api.Finding{
			{
				Kind: api.WasteIdleNode, Subject: "box1", Evidence: "reserved node, used 4% of 400 GPU-hours",
				Remedy: "trainyard recommend replays the period with one reserved node less", GPUSeconds: 1.4e6, Cost: 120.5,
			},
			{
				Kind: api.WasteFailures, Subject: "resnet", Owner: "ada", Evidence: "7 of 9 jobs failed",
				Remedy: "trainyard job j9 says why the newest failed", Jobs: []id.Job{"j9", "j8"}, JobCount: 7, GPUSeconds: 7200,
			},
		},
	})

	return y
}

func someUsage() api.Usage {
	u := api.Usage{
		From: new(ago(7 * 24 * time.Hour)),
		To:   &now,
		UseRate: []api.UseRate{
			{
				Class:         fleet.Local,
				BusyNode:      360000,
				AvailableNode: 600000,
				NodeRate:      0.6,
				BusyGPU:       1.8e6,
				AvailableGPU:  4.8e6,
				GPURate:       0.375,
			},
			{
				Class:         fleet.Local,
				Node:          "box1",
				BusyNode:      360000,
				AvailableNode: 600000,
				NodeRate:      0.6,
				BusyGPU:       1.8e6,
				AvailableGPU:  4.8e6,
				GPURate:       0.375,
			},
			{Class: fleet.Local, Node: "cpu1", BusyNode: 60, AvailableNode: 60, NodeRate: 1},
		},
		OnDemand: []api.Provisioned{
			{Creations: 3, NodeSeconds: 7200, GPUSeconds: 57600, Estimated: 44, Billed: 43.5, BilledLeases: 2},
			{
				Offer:        "lab/a100",
				Creations:    3,
				NodeSeconds:  7200,
				GPUSeconds:   57600,
				Estimated:    44,
				Billed:       43.5,
				BilledLeases: 2,
			},
		},
		Own: []api.OwnTime{{Researcher: "ada", Class: fleet.Local, NodeSeconds: 360000, GPUSeconds: 1.8e6, Cost: 100}},
		OnDemandBy: []api.Provisioned{
			{Creations: 1, Estimated: 2},
			{Researcher: "ada", Creations: 2, NodeSeconds: 7200, GPUSeconds: 57600, Estimated: 42},
		},
		Unused: []api.Unused{{Class: fleet.Local, Account: "idle", NodeSeconds: 240000, GPUSeconds: 3e6, Cost: 60}},
	}

	for i := range 7 {
		u.Trend = append(
			u.Trend,
			api.Trend{Label: "2026-02-2" + string(rune('2'+i)), GPUSeconds: float64(i) * 36000, Cost: float64(7-i) * 3},
		)
	}

	return u
}

func TestTablesOfMachinesAndMoney(t *testing.T) {
	t.Parallel()
	y := withBooks(t)
	for name, args := range map[string][]string{
		"offers-closed": {"offers", "--closed"}, "leases": {"leases", "--all"}, "leases-wide": {"leases", "-o", "wide"}, "leases-quiet": {"leases", "-q"},
		"lease": {"leases", "l9"}, "lease-ended": {"leases", "l7"}, "leases-report": {"leases", "report"}, "quota": {"quota"},
		"data": {"data"}, "data-quiet": {"data", "list", "-q"}, "data-show": {"data", "show", "scans"},
		"usage": {"usage", "--last", "7d"}, "usage-by": {"usage", "--by", "researcher,class", "--last", "7d"}, "savings": {"savings", "--last", "7d"},
		"usage-by-json": {"usage", "--by", "researcher,class", "-o", "json"}, "help-quota-set": {"quota", "set", "--help"}, "help-usage": {"usage", "--help"},
		"retention": {"retention"}, "waste": {"waste", "--last", "7d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			if code := p.types(t.Context(), args...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			if text := p.stderr.String(); text != "" {
				t.Errorf("stderr has %q", text)
			}

			golden(t, name, p.stdout.String())
		})
	}

	for name, args := range map[string][]string{"offers": {"offers", "--gpu", "A100"}, "data-audit": {"data",
		"audit", "scans"}} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Fatalf("exit code %d: %s", code, p.stderr)
		}

		golden(t, name, p.stdout.String()+p.stderr.String())
	}
}

// TestANodeTellsWhatIsWrongWithItsGPUs shows GPUs in every state, and who is at work there.
func TestANodeTellsWhatIsWrongWithItsGPUs(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	g := func(index int, state fleet.GPUState) api.GPU {
		return api.GPU{
			Index:     index,
			UUID:      "GPU-" + string(rune('a'+index)),
			Model:     "NVIDIA L4",
			Memory:    24 << 30,
			State:     state,
			Since:     new(ago(time.Hour)),
			TFLOPS:    60.5,
			Origin:    "measured",
			Bandwidth: 300,
			Watts:     72,
			Driver:    "550.1",
		}
	}

	n := api.Node{
		ID:       "box1",
		Class:    fleet.Local,
		State:    "error",
		Reason:   "joined",
		Problem:  &fleet.Problem{Cause: "no_space", Reason: "less than 256 MB free on the disk that holds /data"},
		Since:    ago(time.Hour),
		OS:       "linux",
		Arch:     "amd64",
		CPUs:     8000,
		CPUsFree: 8000,
		Memory:   1 << 30,
		MemFree:  1 << 30,
		GPUs: []api.GPU{
			g(0, fleet.GPURunning),
			g(1, fleet.GPUError),
			g(2, fleet.GPUForeign),
			g(3, fleet.GPUIdle),
		},
		Jobs:  []id.Job{"j7"},
		Runs:  []api.NodeRun{{Run: "j7.1", Job: "j7", GPUs: []int{0}, Share: 0.5, Since: ago(time.Hour)}},
		Lease: &api.NodeLease{ID: "l4", Offer: "lab/l4", State: fleet.LeaseActive, Ends: new(now.Add(time.Hour))},
		Price: &api.Price{NodeCost: 2, Hourly: 2, Idle: 2},
	}

	n.GPUs[0].Job, n.Shares, n.MPS = "j7", "1", true
	n.GPUs[0].Shares = []api.GPUShare{
		{Job: "j7", Owner: "ada", Share: 0.5, Class: job.ShareGuaranteed, Limit: 0.5, Memory: 20 << 30, Use: &api.ShareUse{
			Got: 0.31, Wanted: 1, Mode: "token", Memory: 3 << 30, ShortSince: new(ago(time.Minute)),
		}},
		{Job: "j8", Owner: "ada", Share: 0.25, Class: job.ShareNormal, Use: &api.ShareUse{Mode: job.ShareModeMPS}},
		{Job: "j9", Owner: "bob", Share: 0.25, Class: job.ShareNormal},
	}
	n.GPUs[1].Error, n.GPUs[1].Health = "it fell off the bus", "Xid 79 at 10:58"
	n.GPUs[2].Foreign = []api.ForeignProcess{{GPU: 2, PID: 4711, User: "eve", Program: "python", Memory: 3 << 30}}
	n.GPUs[3].Health = "2 corrected memory errors"
	y.answer("GET /api/v1/nodes/box1", n)
	y.answer("POST /api/v1/nodes/box1/gpus/1/clear-error", n)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "node", "box1"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	golden(t, "node-broken", p.stdout.String())

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "nodes", "clear-error", "box1", "1"); code != exit.OK ||
		p.stdout.String() != "GPU 1 of box1 returns to service with the next report of its agent\n" {
		t.Errorf("exit code %d: %s%s", code, p.stdout, p.stderr)
	}

	if code := newPerson(t).at(t, y).types(t.Context(), "nodes", "clear-error", "box1", "first"); code != exit.Usage {
		t.Errorf("exit code %d for a GPU that is no number", code)
	}
}

func TestChangesOfMachinesAndMoney(t *testing.T) {
	t.Parallel()
	y := withBooks(t)

	limit := api.Quota{
		Subject: "user/ada",
		QuotaRequest: api.QuotaRequest{
			GPUs:       4,
			Nodes:      1,
			Budget:     250_000_000,
			GPUHours:   9,
			Period:     tenant.Week,
			OnExceeded: tenant.ExceededStop,
			Borrow:     true,
			WarnAt:     0.9,
		},
	}

	y.answer("PUT /api/v1/quotas/user/ada", limit)

	y.answer(
		"PUT /api/v1/quotas/each/project",
		api.Quota{Subject: "each/project", QuotaRequest: api.QuotaRequest{Nodes: 2}},
	)

	y.mux.HandleFunc("DELETE /api/v1/quotas/{kind}/{name}", noContent)
	y.mux.HandleFunc("DELETE /api/v1/datasets/{name}", noContent)

	y.refuse(
		"GET /api/v1/datasets/cats",
		http.StatusNotFound,
		api.Problem{Detail: "there is no dataset cats", Kind: "not_found", Code: "no_dataset"},
	)

	y.answer(
		"PUT /api/v1/datasets/{name}",
		api.Dataset{ID: "cats", Owner: "ada", Created: now, DatasetRequest: api.DatasetRequest{Place: job.PlaceCloud}},
	)

	y.answer("POST /api/v1/jobs/j7/override", api.Job{ID: "j7"})
	y.answer("POST /api/v1/leases/l9/release", someLeases()[0])

	for _, tt := range []struct {
		args []string
		call string // the one that changes something
		body string
		says string
	}{
		{
			[]string{"quota", "set", "user/ada", "--gpus", "4", "--nodes", "1", "--budget", "$250", "--gpu-hours", "9",
				"--period", "week", "--on-exceeded", "stop", "--warn-at", "90%"}, "PUT /api/v1/quotas/user/ada",
			`{"gpus":4,"nodes":1,"gpu_hours":9,"budget":"$250","period":"week","on_exceeded":"stop","borrow":true,"warn_at":0.9}`,
			"user/ada: 4 GPUs at once (more while no other job is queued), 1 on-demand node at once, $250.00 per week, 9 GPU-hours per week; warning at 90%, when exceeded: stop\n",
		},
		{[]string{"quota", "set", "each/project", "--nodes", "2", "--borrow=false"}, "PUT /api/v1/quotas/each/project", `{"nodes":2}`, "each/project: 2 on-demand nodes at once\n"},
		{[]string{"quota", "remove", "user/ada"}, "DELETE /api/v1/quotas/user/ada", "", "quota of user/ada removed\n"},
		{[]string{"data", "add", "cats", "--place", "cloud", "--size", "3GB", "--copy", "pool=lab", "--copy",
			"at=cloud:/cats"}, "PUT /api/v1/datasets/cats",
			`{"place":"cloud","size":"3GB","copies":[{"pool":"lab"},{"at":"cloud","path":"/cats"}]}`, ""},
		{[]string{"data", "set", "scans", "--place", "any"}, "PUT /api/v1/datasets/scans",
			`{"place":"any","size":"40GB","source":"/data/scans","copies":[{"node":"box1","path":"/data/scans"},{"pool":"lab"}]}`, ""},
		{[]string{"data", "remove", "scans"}, "DELETE /api/v1/datasets/scans", "",
			"Dataset scans removed; the data itself was not touched.\n"},
		{[]string{"override", "j7", "--place", "any", "--why", "agreed"}, "POST /api/v1/jobs/j7/override", `{"place":"any","why":"agreed"}`, "j7 may run on any nodes despite the rules of its datasets; this was recorded\n"},
		{[]string{"release", "l9", "-y"}, "POST /api/v1/leases/l9/release", "", ""},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), tt.args...); code != exit.OK {
			t.Errorf("%v: exit code %d: %s", tt.args, code, p.stderr)
			continue
		}

		body, _ := y.sent(tt.call)
		if diff := cmp.Diff(tt.body, strings.TrimSpace(string(body))); diff != "" {
			t.Errorf("%v sent (-want +got):\n%s", tt.args, diff)
		}

		if tt.says != "" && p.stdout.String() != tt.says {
			t.Errorf("%v says %q, want %q", tt.args, p.stdout, tt.says)
		}

		if !strings.HasSuffix(y.called()[len(y.called())-1], tt.call) {
			t.Errorf("%v called %v last", tt.args, y.called()[len(y.called())-1])
		}
	}
}

func TestMistakesInFlagsOfMoneyAreToldBeforeAnythingIsChanged(t *testing.T) {
	t.Parallel()
	y := withBooks(t)
	for want, args := range map[string][]string{
		`--last must be a duration such as 24h or 7d, or all; got "soon"`: {"usage", "--last", "soon"},
		`--from: "yesterday" is not a time`:                               {"usage", "--from", "yesterday"},
		`--to: "1.1." is not a time`:                                      {"savings", "--to", "1.1."},
		`invalid subject "ada"`:                                           {"quota", "set", "ada", "--gpus", "1"},
		`--budget: value must be an amount of money, got "much"`:          {"quota", "set", "user/ada", "--budget", "much"},
		`--warn-at must be a share such as 80% or 0.8, got "200%"`:        {"quota", "set", "user/ada", "--warn-at", "200%"},
		`--period must be day, week or month, got "year"`:                 {"quota", "set", "user/ada", "--period", "year"},
		`--on-exceeded must be warn, ask, downgrade or stop, got "cry"`:   {"quota", "set", "user/ada", "--on-exceeded", "cry"},
		`--place cannot be "moon"`:                                        {"override", "j7", "--place", "moon", "--why", "x"},
		`--why is required`:                                               {"override", "j7", "--place", "any"},
		`--copy: invalid copy "box1"`:                                     {"data", "set", "scans", "--copy", "box1"},
		`--limit must be from 1 to 500`:                                   {"data", "audit", "scans", "--limit", "0"},
		`missing argument: lease`:                                         {"release"},
		`dataset scans already exists`:                                    {"data", "add", "scans"},
		`[csv output] were all set`:                                       {"usage", "--csv", "-o", "json"},
		`--where requires --by`:                                           {"usage", "--where", "class=local"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(
			t.Context(),
			args...); code != exit.Usage && code != exit.Refused ||
			!strings.Contains(p.stderr.String(), want) {
			t.Errorf("%v: exit code %d, %q; want %q", args, code, p.stderr, want)
		}
	}

	for _, call := range y.called() {
		if !strings.HasPrefix(call, "GET ") {
			t.Errorf("something was changed: %s", call)
		}
	}
}

func TestReportsAskForTheirPeriod(t *testing.T) {
	t.Parallel()
	y := withBooks(t)
	for want, args := range map[string][]string{
		"GET /api/v1/usage?from=2026-01-30T12%3A00%3A00Z": {"usage"},
		"GET /api/v1/usage?researcher=ada":                {"usage", "--last", "all", "--researcher", "ada"},
		"GET /api/v1/usage/report?by=day&from=2026-02-28T12%3A00%3A00Z&where=class%3Dondemand&where=class%3Dlocal": {"usage", "--by", "day", "--last", "24h", "--where", "class=ondemand", "--where", "class=local"},
		"GET /api/v1/usage/report?by=researcher%2Cclass&from=2026-02-01T00%3A00%3A00Z&to=2026-02-08T06%3A30%3A00Z": {"usage", "--by", "researcher,class", "--from", "2026-02-01", "--to", "2026-02-08T06:30"},
		"GET /api/v1/savings?by=kind&from=2026-02-07T00%3A00%3A00Z&to=2026-02-08T00%3A00%3A00Z":                    {"savings", "--last", "1d", "--to", "2026-02-08"},
		"GET /api/v1/waste?from=2026-02-28T12%3A00%3A00Z&owner=ada":                                                {"waste", "--last", "24h", "--owner", "ada"},
		"GET /api/v1/waste?from=1970-01-01T00%3A00%3A00Z":                                                          {"waste", "--last", "all"},
		"GET /api/v1/leases?limit=500&live=true&owner=ada":                                                         {"leases", "--owner", "ada"},
		"GET /api/v1/leases?job=j7&limit=500":                                                                      {"leases", "--all", "--job", "j7"},
		"GET /api/v1/offers?gpu=A100%3A80GB&limit=500&provider=aws&region=north&spot=false":                        {"offers", "--gpu", "A100:80GB", "--provider", "aws", "--region", "north", "--spot=false"},
	} {
		before := len(y.called())
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Errorf("%v: exit code %d: %s", args, code, p.stderr)
		}

		if diff := cmp.Diff([]string{want}, y.called()[before:]); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
}

func TestReportsAsCSVComeAsTheyAre(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	for report, command := range map[string]string{"usage": "usage", "usage/report": "usage --by day",
		"savings": "savings"} {
		y.mux.HandleFunc("GET /api/v1/"+report, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") != "text/csv" {
				t.Errorf("%s was asked for as %q", report, r.Header.Get("Accept"))
			}

			w.Header().Set("Content-Type", "text/csv")
			_, _ = w.Write([]byte("a,b\n1," + report + "\n"))
		})

		p := newPerson(t).at(t, y)
		if code := p.types(
			t.Context(),
			append(strings.Fields(command), "--csv")...); code != exit.OK ||
			p.stdout.String() != "a,b\n1,"+report+"\n" {
			t.Errorf("exit code %d: %q %s", code, p.stdout, p.stderr)
		}
	}
}

func TestEmptyBooksSayWhatToDo(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/offers", api.OfferPage{})
	y.answer("GET /api/v1/leases", api.LeasePage{})
	y.answer("GET /api/v1/quotas", api.QuotaPage{})
	y.answer("GET /api/v1/datasets", api.DatasetPage{})
	y.answer("GET /api/v1/usage", api.Usage{})
	y.answer("GET /api/v1/usage/report", api.UsageReport{})
	y.answer("GET /api/v1/savings", api.Savings{})

	for command, want := range map[string]string{
		"offers": "no offers: the server has no cloud provider", "leases": "no leases", "quota": "no quotas", "data": "no datasets",
		"usage": "no usage", "usage --by day": "no usage", "savings": "no savings",
	} {
		p := newPerson(t).at(t, y)
		p.terminal = true
		if code := p.types(t.Context(), strings.Fields(command)...); code != exit.OK ||
			!strings.Contains(p.stderr.String(), want) || !strings.Contains(p.stderr.String(), "\nNext:\n  trainyard ") ||
			p.stdout.String() != "" {
			t.Errorf("%s: exit code %d, says %q and %q", command, code, p.stdout, p.stderr)
		}

		p = newPerson(t).at(t, y)
		if code := p.types(
			t.Context(),
			append(strings.Fields(command), "-o", "json")...); code != exit.OK ||
			!json.Valid([]byte(p.stdout.String())) {
			t.Errorf("%s -o json: exit code %d, %q", command, code, p.stdout)
		}
	}
}

// "$0.00" where no tariff was given reads as free (newcomer, missing list 16).
func TestWithoutATariffCostsAreUnknownNotNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	u := someUsage()
	u.NoTariff = true

	for i := range u.Trend {
		u.Trend[i].Cost = 0
	}

	for i := range u.Own {
		u.Own[i].Cost = 0
	}

	y.answer("GET /api/v1/usage", u)
	y.answer("GET /api/v1/usage/report", api.UsageReport{
		NoTariff: true, Group: []string{"class"}, Total: api.Amounts{NodeSeconds: 3600},
		Rows: []api.UsageRow{{Keys: []string{"local"}, Amounts: api.Amounts{NodeSeconds: 3600}}},
	})
	y.answer("GET /api/v1/quotas", api.QuotaPage{NoTariff: true, Usage: []api.QuotaUsage{{Subject: "user/ada", Ends: now}}})

	for _, command := range []string{"usage", "usage --by class", "quota"} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), strings.Fields(command)...); code != exit.OK ||
			strings.Contains(p.stdout.String(), "$0.00") {
			t.Errorf("%s: exit code %d:\n%s", command, code, p.stdout)
		}

		if said := strings.Contains(p.stderr.String(), "--tariff"); said != strings.HasPrefix(command, "usage") {
			t.Errorf("%s says of the tariff: %s", command, p.stderr)
		}
	}
}

// A quota of one's own replaces the quota for everyone with all that it limits, which was not said (newcomer 34).
func TestAQuotaOfOnesOwnSaysWhatItReplaces(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	own := api.Quota{Subject: "user/ada", QuotaRequest: api.QuotaRequest{Budget: 500_000_000, Period: tenant.Month}}
	each := api.Quota{Subject: "each/user", QuotaRequest: api.QuotaRequest{GPUs: 8, Budget: 10_000_000, Period: tenant.Month}}
	known := []api.Quota{each}
	y.mux.HandleFunc("GET /api/v1/quotas", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, api.QuotaPage{Quotas: known})
	})
	y.answer("PUT /api/v1/quotas/user/ada", own)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "quota", "set", "user/ada", "--budget", "500"); code != exit.OK ||
		!strings.Contains(p.stderr.String(), "each/user does not apply to it any more (8 GPUs at once)") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	known = append(known, own)
	p = newPerson(t).at(t, y)

	if code := p.types(t.Context(), "quota", "set", "user/ada", "--budget", "500"); code != exit.OK ||
		p.stderr.String() != "" {
		t.Errorf("a change of it: exit code %d: %s", code, p.stderr)
	}
}

func TestAnAnswerOfNoReturnsNothing(t *testing.T) {
	t.Parallel()
	y := withBooks(t)
	p := newPerson(t).at(t, y)
	p.terminal, p.env.Stdin = true, strings.NewReader("n\n")
	if code := p.types(t.Context(), "release", "l9"); code != exit.Error || len(y.called()) != 0 {
		t.Errorf("exit code %d, calls %v", code, y.called())
	}
}
