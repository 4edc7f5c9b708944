package e2e_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cloud/process"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/test/yardtest"
)

// owed is what a machine costs by the rules of its type, computed here from the cloud's
// own log of its start and end, and from nothing that the yard or the offer computes.
type owed struct {
	hourly  float64
	charged func(kept time.Duration) time.Duration
}

func TestTheBooksSayWhatTheCloudCharges(t *testing.T) {
	t.Parallel()
	byTheSecond := func(kept time.Duration) time.Duration { return kept }
	prices := map[string]owed{
		"second": {36, byTheSecond},
		"tens": {72, func(kept time.Duration) time.Duration {
			return time.Duration(math.Ceil(float64(kept)/float64(10*time.Second))) * 10 * time.Second
		}},
		"least": {18, func(kept time.Duration) time.Duration { return max(kept, 5*time.Second) }},
	}

	// The margin is wide, so that a stretch is not begun by a machine that is slow to end.
	h := newHybrid(t, yardtest.Cloud{Provision: "{idle: 1s, margin: 3s, list_every: 500ms, settle: 2s}", Offers: `
{type: second, gpu: A100, gpu_memory: 40GB, cpus: 2, memory: 4GB, hourly: $36}
{type: tens, gpu: V100, gpu_memory: 16GB, cpus: 2, memory: 4GB, hourly: $72, billing_increment: 10s}
{type: least, gpu: T4, gpu_memory: 16GB, cpus: 2, memory: 4GB, hourly: $18, min_billing: 5s}`})

	var ids []string
	for _, j := range []struct {
		gpu     string
		seconds float64
	}{{"A100", 4}, {"V100", 2}, {"T4", 0.2}, {"A100", 6}} {
		file := strings.Replace(onGPU("", fmt.Sprint("sleep ", j.seconds)), "gpus: 1}", "gpu: "+j.gpu+"}", 1)
		ids = append(ids, h.submit(t, file))
	}

	h.succeed(t, append([]string{"wait"}, ids...)...)
	h.awaitEmpty(t)

	launched, want := map[id.Lease]time.Time{}, map[id.Lease]float64{}

	total := 0.0
	for _, e := range h.books(t) {
		if e.Event == process.EventLaunched {
			launched[e.Lease] = e.At
			continue
		}

		p := prices[strings.TrimPrefix(e.Offer, yardtest.Provider+"/")]
		want[e.Lease] = p.hourly * p.charged(e.At.Sub(launched[e.Lease])).Hours()
		total += want[e.Lease]
	}

	if len(want) < 3 {
		t.Fatalf("%d machines were provisioned, and there are three kinds: %v", len(want), want)
	}

	books, err := h.client.UsageReport(t.Context(), api.UsageQuery{By: []string{"lease"}})
	if err != nil {
		t.Fatal(err)
	}

	got := map[id.Lease]float64{}
	for _, row := range books.Rows {
		got[id.Lease(row.Keys[0])] = row.NodeCost
	}

	for lease, money := range want {
		near(t, fmt.Sprintf("the books on lease %s", lease), got[lease], money)
	}

	near(t, "the sum of the books", books.Total.NodeCost, total)

	for _, l := range h.leases(t) {
		near(t, fmt.Sprintf("lease %s (%s)", l.ID, l.Offer.Type), l.Cost, want[l.ID])

		if l.Billed == nil {
			t.Errorf("the bill of lease %s was not taken over", l.ID)
			continue
		}

		near(t, fmt.Sprintf("the bill of lease %s", l.ID), *l.Billed, want[l.ID])
	}

	usage, err := h.client.Usage(t.Context(), api.UsageQuery{})
	if err != nil {
		t.Fatal(err)
	}

	if len(usage.OnDemand) == 0 || usage.OnDemand[0].Creations != len(want) {
		t.Fatalf("the usage report: %+v, want %d creations", usage.OnDemand, len(want))
	}

	near(t, "the estimate of the usage report", usage.OnDemand[0].Estimated, total)
}

// near fails unless an amount of money is what it should be within one per cent.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()

	if math.Abs(got-want) > 0.01*want {
		t.Errorf("%s: $%.6f, want $%.6f", what, got, want)
	}

	t.Logf("%s: $%.6f, by the cloud's log $%.6f", what, got, want)
}

// costly is a machine at a dollar a second.
const costly = "{type: big, gpu: A100, gpu_memory: 40GB, gpus: 1, cpus: 2, memory: 4GB, hourly: $3600}"

// spender is a job whose first run goes on for ever. It is thought to be short, so that
// its forecast fits into the budget.
func spender(record string) string {
	file := onGPU("checkpoint: {dir: ckpt}\n",
		"note() { echo $1 $TRAINYARD_EPOCH >> "+record+"; }", "trap 'note saved; exit 1' TERM", "note begun", "echo begun",
		"if test $TRAINYARD_EPOCH -gt 1; then exit 0; fi", "while true; do sleep 0.05; done")

	return strings.Replace(file, "expect: 10m", "expect: 1s", 1)
}

// spends lets the spender run, and then sets a budget that it uses up at once: how long its machine boots, and what
// that costs, depends on how busy this one is.
func (h *hybrid) spends(t *testing.T, record string, exceeded tenant.OnExceeded) string {
	t.Helper()
	h.limit(t, api.QuotaRequest{Budget: 1_000_000_000, Period: "day", OnExceeded: exceeded})

	name := h.submit(t, spender(record))
	h.awaitOutput(t, name, "begun")
	h.limit(t, api.QuotaRequest{Budget: 1_000_000, Period: "day", OnExceeded: exceeded})

	return name
}

func TestAJobWhoseOwnersBudgetIsUsedUpSavesItselfAndWaits(t *testing.T) {
	t.Parallel()
	h := newHybrid(t, yardtest.Cloud{Provision: soon, Offers: costly})
	record := filepath.Join(h.Folder, "record")
	name := h.spends(t, record, "stop")
	var d api.JobDetail
	h.await(t, "the job was stopped and waits", func() bool {
		d = h.job(t, name)
		return d.State == job.Recovering && len(d.Runs) == 1
	})

	if got := awaitFile(t, record); got != "begun 1\nsaved 1\n" {
		t.Errorf("the job did this: %q", got)
	}

	if !strings.Contains(d.Reason, "admin") {
		t.Errorf("it does not say whose budget it waits for: %q", d.Reason)
	}

	h.awaitEmpty(t) // nobody pays for a machine that nothing may use

	used := h.eventsOf(t, "budget.used_up")
	if len(used) == 0 {
		t.Error("the feed does not tell that the budget is used up")
	}

	h.limit(t, api.QuotaRequest{Budget: 1_000_000_000, Period: "day", OnExceeded: "stop"})
	h.succeed(t, "wait", name)

	if got := awaitFile(t, record); got != "begun 1\nsaved 1\nbegun 2\n" {
		t.Errorf("when the budget was raised: %q", got)
	}

	h.awaitEmpty(t)
}

func TestWhatRunsGoesOnAndNothingNewStartsWhereABudgetSaysAsk(t *testing.T) {
	t.Parallel()
	h := newHybrid(t, yardtest.Cloud{Provision: soon, Offers: costly})
	first := h.spends(t, filepath.Join(h.Folder, "record"), "ask")
	h.await(t, "the budget is used up", func() bool { return len(h.eventsOf(t, "budget.used_up")) > 0 })
	second := h.submit(t, onGPU("", "echo begun"))
	h.await(t, "the second job was considered", func() bool {
		d := h.job(t, second)
		return d.Why != nil || d.Reason != "queued"
	})

	if d := h.job(t, second); d.State != job.Pending {
		t.Errorf("the second job is %s (%s)", d.State, d.Reason)
	}

	if d := h.job(t, first); d.State != job.Running || len(d.Runs) != 1 {
		t.Errorf("the first job is %s (%s)", d.State, d.Reason)
	}

	h.succeed(t, "cancel", first, second)
	h.exits(t, 103, "wait", first)

	if launched, _ := h.machines(t); launched != 1 {
		t.Errorf("%d machines were provisioned", launched)
	}

	h.awaitEmpty(t)
}
