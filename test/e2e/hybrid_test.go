package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cloud/process"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// The tests of hybrid*_test.go have a yard that may provision. The cloud is real as far as it
// can be on one machine: its machines are processes that boot, join, run jobs, cost
// money by the cloud's own log, and end.

// hybrid is a yard that may provision.
type hybrid struct {
	*yard
	cloud  *yardtest.Cloud
	client *api.Client
}

// soon are terms for tests: an idle machine goes back after a second.
const soon = "{idle: 1s, margin: 200ms, list_every: 500ms, settle: 2s}"

// oneA100 is a cloud's whole price list.
const oneA100 = "{type: big, gpu: A100, gpu_memory: 40GB, gpus: 1, cpus: 2, memory: 4GB, hourly: $3.60}"

// newHybrid starts a yard that may provision what is offered, on these terms.
func newHybrid(t *testing.T, c yardtest.Cloud, flags ...string) *hybrid {
	t.Helper()
	c.Folder = newFolder(t)
	if c.Boot == "" {
		c.Boot = "300ms"
	}

	provisions, err := c.Flags()
	if err != nil {
		t.Fatal(err)
	}

	h := &hybrid{cloud: &c}
	h.yard = newYard(t, append(provisions, flags...)...)
	if err := h.Trust(t.Context()); err != nil {
		t.Fatal(err)
	}

	token := strings.TrimSpace(h.succeed(t, "tokens", "create", "--scope", "admin", "-q").out)
	h.client, err = h.Client(token)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(h.client.Close)

	return h
}

// onGPU is a job file that runs a shell script on one GPU. What it expects to take is
// long enough for a machine to be worth provisioning.
func onGPU(more string, lines ...string) string {
	return strings.Replace(
		script(lines...),
		"resources: {cpus: 0.5}",
		"resources: {cpus: 0.5, gpus: 1}",
		1,
	) + "objective: time\nexpect: 10m\n" + more
}

// books are what the cloud itself has written down.
func (h *hybrid) books(t *testing.T) []process.Entry {
	t.Helper()
	entries, err := h.cloud.Machines()
	if err != nil {
		t.Fatal(err)
	}

	return entries
}

// machines counts the machines that the cloud has started and that have ended.
func (h *hybrid) machines(t *testing.T) (launched, ended int) {
	t.Helper()

	for _, e := range h.books(t) {
		switch e.Event {
		case process.EventLaunched:
			launched++
		case process.EventEnded:
			ended++
		}
	}

	return launched, ended
}

// leases returns every lease, oldest first.
func (h *hybrid) leases(t *testing.T) []api.Lease {
	t.Helper()
	page, err := h.client.Leases(t.Context(), api.LeaseFilter{Page: api.Page{Limit: 100}})
	if err != nil {
		t.Fatal(err)
	}

	slices.Reverse(page.Leases)

	return page.Leases
}

// awaitEmpty waits until every machine has ended and the yard knows it, and checks that
// nothing is left: no lease that has not ended, no node, no process of a machine.
func (h *hybrid) awaitEmpty(t *testing.T) {
	t.Helper()
	h.await(t, "every lease has ended", func() bool {
		return !slices.ContainsFunc(h.leases(t), func(l api.Lease) bool { return !l.State.Final() })
	})

	if launched, ended := h.machines(t); launched != ended || launched == 0 {
		t.Errorf("the cloud started %d machines and ended %d", launched, ended)
	}

	h.await(t, "no process of a machine is left", func() bool {
		left, err := yardtest.Processes(h.cloud.Dir())
		if err != nil {
			t.Fatal(err)
		}

		return len(left) == 0
	})

	var page api.NodePage
	h.decode(t, &page, "nodes", "-o", "json")
	for _, n := range page.Nodes {
		if n.Class == fleet.OnDemand {
			t.Errorf("node %s is still in the yard: %s (%s)", n.ID, n.State, n.Reason)
		}
	}

	report, err := h.client.Reaper(t.Context())
	if err != nil || report.Live != 0 || len(report.Overdue)+len(report.Strays) != 0 {
		t.Errorf("the reaper's report: %+v, %v", report, err)
	}
}

// eventsOf returns the events of a kind, oldest first.
func (h *hybrid) eventsOf(t *testing.T, kind string) []api.Event {
	t.Helper()
	page, err := h.client.Events(t.Context(), api.EventFilter{Kind: kind, Page: api.Page{Limit: 100}})
	if err != nil {
		t.Fatal(err)
	}

	return page.Events
}

// open makes the file that a job waits for.
func open(t *testing.T, gate string) {
	t.Helper()

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAMachineIsProvisionedForAJobAndGoesBackWhenItIsIdle(t *testing.T) {
	t.Parallel()
	h := newHybrid(t, yardtest.Cloud{Provision: soon, Offers: oneA100})
	id := h.submit(t, onGPU("", "echo on $TRAINYARD_NODE", "sleep 0.5"))
	h.succeed(t, "wait", id)

	d := h.job(t, id)
	if len(d.Runs) != 1 || !strings.HasPrefix(nodeOf(t, d, 1), "cloud-") {
		t.Errorf("the job ran %d times, first on %s", len(d.Runs), nodeOf(t, d, 1))
	}

	h.awaitEmpty(t)

	all := h.leases(t)
	if len(all) != 1 {
		t.Fatalf("%d leases, want 1: %+v", len(all), all)
	}

	l := all[0]
	if l.State != fleet.LeaseEnded || l.Job != d.ID || l.Owner != "admin" || l.Offer.Name != yardtest.Provider+"/big" ||
		string(l.Node) != nodeOf(t, d, 1) {
		t.Errorf("the lease is %+v", l)
	}

	if !strings.Contains(l.Reason, "idle") && !strings.Contains(l.Reason, "released") {
		t.Errorf("the lease does not say why it ended: %q", l.Reason)
	}

	if provisioned := h.eventsOf(t, "lease.requested"); len(provisioned) != 1 || provisioned[0].Reason == "" ||
		provisioned[0].Job != d.ID {
		t.Errorf("the feed tells of the provisioning: %+v", provisioned)
	}
}

func TestTheServerDiesWhileAMachineBootsOrRunsAndNothingHappensTwice(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, boot string
		until      func(t *testing.T, h *hybrid, job string)
	}{
		{"while it boots", "3s", func(t *testing.T, h *hybrid, _ string) {
			t.Helper()
			h.await(t, "a machine boots", func() bool {
				all := h.leases(t)
				return len(all) == 1 && all[0].State == fleet.LeaseBooting
			})
		}},
		{"while its job runs", "300ms", func(t *testing.T, h *hybrid, job string) {
			t.Helper()
			h.awaitOutput(t, job, "begun")
		}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHybrid(t, yardtest.Cloud{Provision: soon, Boot: tt.boot, Offers: oneA100})
			record := filepath.Join(h.Folder, "record")
			name := h.submit(
				t,
				onGPU(
					"",
					"echo begun",
					"echo begun $TRAINYARD_EPOCH >> "+record,
					"sleep 2",
					"echo ended $TRAINYARD_EPOCH >> "+record,
				),
			)

			tt.until(t, h, name)

			if err := h.Server().Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}

			<-h.Server().Gone()

			if err := h.StartServer(); err != nil {
				t.Fatal(err)
			}

			if err := h.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}

			h.succeed(t, "wait", name)

			if got := awaitFile(t, record); got != "begun 1\nended 1\n" {
				t.Errorf("the job did this: %q", got)
			}

			h.awaitEmpty(t)

			if launched, _ := h.machines(t); launched != 1 || len(h.leases(t)) != 1 {
				t.Errorf("%d machines and leases %+v, want one of each", launched, h.leases(t))
			}
		})
	}
}

func TestAMachineEndsItselfWhenTheServerIsDeadForLongerThanItsLease(t *testing.T) {
	t.Parallel()
	h := newHybrid(
		t,
		yardtest.Cloud{Provision: "{term: 5s, idle: 1s, margin: 200ms, list_every: 500ms, settle: 2s}", Offers: oneA100},
	)

	record := filepath.Join(h.Folder, "record")
	name := h.submit(t, "retry: 2\n"+onGPU(
		"",
		"trap 'echo stopped $TRAINYARD_EPOCH >> "+record+"; exit 1' TERM",
		"echo begun",
		"echo begun $TRAINYARD_EPOCH >> "+record,
		"if test $TRAINYARD_EPOCH -gt 1; then exit 0; fi",
		"while true; do sleep 0.05; done",
	))

	h.awaitOutput(t, name, "begun")

	if err := h.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	died := time.Now()

	h.await(t, "the machine has ended itself", func() bool {
		_, ended := h.machines(t)
		return ended == 1
	})

	t.Logf(
		"the machine ended itself %s after the server died; its lease is 5s",
		time.Since(died).Round(100*time.Millisecond),
	)

	entries := h.books(t)
	if last := entries[len(entries)-1]; last.Why != "agent" && last.Why != "deadline" {
		t.Errorf("the cloud says that it ended because of %q", last.Why)
	}

	if got := awaitFile(t, record); got != "begun 1\nstopped 1\n" {
		t.Errorf("what ran there did this: %q", got)
	}

	if err := h.StartServer(); err != nil {
		t.Fatal(err)
	}

	if err := h.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	back := time.Now()
	h.succeed(t, "wait", name)
	t.Logf("the job was done %s after the server was back", time.Since(back).Round(100*time.Millisecond))

	if got := awaitFile(t, record); got != "begun 1\nstopped 1\nbegun 2\n" {
		t.Errorf("after the server was back: %q", got)
	}

	h.awaitEmpty(t)

	if launched, _ := h.machines(t); launched != 2 {
		t.Errorf("%d machines, want one for each of the two runs", launched)
	}
}

// limit sets what admin may have.
func (h *hybrid) limit(t *testing.T, l api.QuotaRequest) {
	t.Helper()

	if _, err := h.client.PutQuota(t.Context(), "user/admin", l); err != nil {
		t.Fatal(err)
	}
}

func TestASecondJobWaitsWhileTheQuotaOfProvisionedNodesIsUsed(t *testing.T) {
	t.Parallel()
	h := newHybrid(t, yardtest.Cloud{Provision: soon, Offers: oneA100})
	h.limit(t, api.QuotaRequest{Nodes: 1})
	gate := filepath.Join(h.Folder, "gate")
	first := h.submit(t, onGPU("", "echo begun", "while ! test -e "+gate+"; do sleep 0.05; done"))
	h.awaitOutput(t, first, "begun")
	second := h.submit(t, onGPU("", "echo begun"))
	var d api.JobDetail
	h.await(t, "the second job was considered", func() bool {
		d = h.job(t, second)
		return d.Why != nil
	})

	if launched, _ := h.machines(t); d.State != job.Pending || launched != 1 {
		t.Errorf("the second job is %s (%s, %+v) and there are %d machines", d.State, d.Reason, d.Why, launched)
	}

	h.limit(t, api.QuotaRequest{Nodes: 2})
	h.succeed(t, "wait", second)

	if d := h.job(t, first); d.State != job.Running {
		t.Errorf("the first job, whose node was not to be had, is %s (%s)", d.State, d.Reason)
	}

	open(t, gate)
	h.succeed(t, "wait", first)
	h.awaitEmpty(t)

	if launched, _ := h.machines(t); launched != 2 {
		t.Errorf("%d machines, want one for each job", launched)
	}
}

func TestDataOfTheBuildingStaysThereUnlessSomebodyWritesDownWhyNot(t *testing.T) {
	t.Parallel()
	h := newHybrid(t, yardtest.Cloud{Provision: soon, Offers: oneA100, DataRoots: os.TempDir()})
	h.join(t, []string{"north"}, "--fake-gpus", "1xV100:16GB", "--data-roots", os.TempDir())
	source := filepath.Join(h.Folder, "patients.csv")
	open(t, source)

	if _, err := h.client.PutDataset(
		t.Context(),
		"patients",
		api.DatasetRequest{Place: job.PlaceLocal, Size: 1 << 20, Source: source},
	); err != nil {
		t.Fatal(err)
	}

	gate := filepath.Join(h.Folder, "gate")
	first := h.submit(t, onGPU("data: [patients]\n", "echo begun", "while ! test -e "+gate+"; do sleep 0.05; done"))
	h.awaitOutput(t, first, "begun")
	waits := h.submit(t, onGPU("data: [patients]\n", "echo over"))

	// A job that may go anywhere is provisioned for meanwhile, so the cloud has what the other one wants.
	anywhere := h.submit(t, onGPU("", "echo over"))
	h.succeed(t, "wait", anywhere)

	if got := nodeOf(t, h.job(t, anywhere), 1); !strings.HasPrefix(got, "cloud-") {
		t.Fatalf("the job without data ran on %s", got)
	}

	if d := h.job(t, waits); d.State != job.Pending || len(d.Runs) != 0 {
		t.Errorf("the job with data of the building is %s with %d runs (%s)", d.State, len(d.Runs), d.Reason)
	}

	audit := func() api.Audit {
		a, err := h.client.AuditDataset(t.Context(), "patients", 0)
		if err != nil {
			t.Fatal(err)
		}

		return a
	}

	if a := audit(); a.Left || a.Inside != 1 || a.Outside != 0 {
		t.Errorf("before the override the audit says %+v", a)
	}

	if _, err := h.client.Override(
		t.Context(),
		id.Job(waits),
		api.OverrideRequest{Place: job.PlaceAny, Why: "the ethics board agreed"},
	); err != nil {
		t.Fatal(err)
	}

	h.succeed(t, "wait", waits)

	if got := nodeOf(t, h.job(t, waits), 1); !strings.HasPrefix(got, "cloud-") {
		t.Errorf("with the override it ran on %s", got)
	}

	a := audit()
	if !a.Left || a.Outside != 1 || a.Against != 1 || a.Last == nil || a.Last.Job != id.Job(waits) ||
		!strings.Contains(a.Last.Override, "the ethics board agreed") {
		t.Errorf("after the override the audit says %+v", a)
	}

	if told := h.eventsOf(t, "data.override"); len(told) != 1 || told[0].Actor != "admin" ||
		!strings.Contains(told[0].Reason, "the ethics board agreed") {
		t.Errorf("the feed tells of the override: %+v", told)
	}

	open(t, gate)
	h.succeed(t, "wait", first)
	h.awaitEmpty(t)
}
