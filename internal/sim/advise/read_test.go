package advise_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"trainyard/internal/sim/advise"
	"trainyard/internal/tenant"
)

// yard tells what a test says.
type yard struct {
	role   tenant.Role
	events []api.Event // numbered from 1
	books  []api.UsageRow
	asked  int // pages of the feed
}

func at(hours float64) time.Time { return begin.Add(time.Duration(hours * float64(hour))) }

func (y *yard) Info(context.Context) (api.Info, error) {
	return api.Info{Policy: "rules:time=80", Now: at(28 * 24)}, nil
}

func (y *yard) Whoami(context.Context) (api.Whoami, error) {
	return api.Whoami{User: "root", Role: y.role}, nil
}

func (y *yard) Nodes(_ context.Context, p api.Page) (api.NodePage, error) {
	gpu := api.GPU{Model: "V100", Memory: 16 << 30, TFLOPS: 90, Origin: "measured", Measured: 90}
	if p.Cursor == "" {
		return api.NodePage{Next: "more", Nodes: []api.Node{
			{
				ID:     "box",
				Class:  fleet.Local,
				State:  "idle",
				CPUs:   8000,
				Memory: 64 << 30,
				GPUs:   []api.GPU{gpu, gpu},
				Price:  &api.Price{NodeCost: 0.5, EnergyCost: 0.3, Hourly: 0.8, Idle: 0.6},
			},
			{ID: "provisioned", Class: fleet.OnDemand, State: "running", GPUs: []api.GPU{gpu}},
		}}, nil
	}

	return api.NodePage{Nodes: []api.Node{{ID: "late", Class: fleet.Reserved, State: "idle", GPUs: []api.GPU{gpu}}}}, nil
}

func (y *yard) Job(_ context.Context, j id.Job) (api.JobDetail, error) {
	if j != "j1" {
		return api.JobDetail{}, fault.New(fault.NotFound, "job_not_found", "there is no job %s", j)
	}

	return api.JobDetail{
		Job: api.Job{
			ID:        j,
			Owner:     "ada",
			Submitted: at(-50),
			Ended:     new(at(4)),
		},
		Spec: json.RawMessage(specOf(2, `,"checkpoint":{"dir":"c"}`)),
		Runs: []api.Run{
			{ID: "j1.1", Epoch: 1, Ordered: at(-50), Started: new(at(-49)), Ended: new(at(-40)), Cause: job.CausePreempted},
			{ID: "j1.2", Epoch: 2, Ordered: at(-5), Started: new(at(-4)), Ended: new(at(4))},
		},
	}, nil
}

func (y *yard) Events(_ context.Context, f api.EventFilter) (api.EventPage, error) {
	y.asked++
	after, _ := strconv.Atoi(f.Cursor)
	if f.Tail > 0 {
		after = len(y.events) - f.Tail
	}

	page := api.EventPage{}
	for _, e := range y.events[min(after, len(y.events)):] {
		if len(page.Events) == f.Limit {
			break
		}

		if !f.Specs {
			e.Spec = nil
		}

		page.Events = append(page.Events, e)
	}

	return page, nil
}

func (y *yard) Offers(context.Context, api.OfferFilter) (api.OfferPage, error) {
	return api.OfferPage{Offers: []fleet.Offer{offer("v1", 2, false, 0)}}, nil
}

func (y *yard) Leases(context.Context, api.LeaseFilter) (api.LeasePage, error) {
	return api.LeasePage{Leases: []api.Lease{
		{
			ID:    "l2",
			Offer: offer("old", 3, false, 0),
			State: fleet.LeaseEnded,
		},
		{ID: "l1", Offer: offer("v1", 2, false, 0), State: fleet.LeaseRefused},
	}}, nil
}

func (y *yard) Quotas(context.Context, api.Page) (api.QuotaPage, error) {
	return api.QuotaPage{Quotas: []api.Quota{{Subject: "each/user", QuotaRequest: api.QuotaRequest{GPUs: 8}}}}, nil
}

func (y *yard) Datasets(context.Context, api.Page) (api.DatasetPage, error) {
	return api.DatasetPage{
		Datasets: []api.Dataset{{ID: "mri", DatasetRequest: api.DatasetRequest{Place: job.PlaceLocal}}},
	}, nil
}

func (y *yard) UsageReport(_ context.Context, q api.UsageQuery) (api.UsageReport, error) {
	if len(q.By) == 0 {
		return api.UsageReport{Total: api.Amounts{Cost: 321.5}}, nil
	}

	if by, where := strings.Join(q.By, ","), strings.Join(q.Where, ","); by != "run,job,node,gpu,offer" ||
		where != "account=use" {
		return api.UsageReport{}, fmt.Errorf("unexpected question by %s where %s", by, where)
	}

	return api.UsageReport{Rows: y.books}, nil
}

func specOf(gpus int, more string) string {
	return fmt.Sprintf(
		`{"run":"x","place":"any","objective":"time","resources":{"gpus":"%d","nodes":"1","cpus":"1"}%s}`,
		gpus,
		more,
	)
}

// tell adds an event.
func (y *yard) tell(hours float64, kind string, e api.Event) {
	e.Seq, e.At, e.Kind = uint64(len(y.events)+1), at(hours), kind
	y.events = append(y.events, e)
}

// goes tells how a run went.
func (y *yard) goes(
	j id.Job,
	epoch int,
	ordered, started, ended float64,
	cause job.Cause,
	to job.State,
	node, offer string,
	gpuHours float64,
) {
	run := id.NewRun(j, epoch)
	y.tell(ordered, "job.starting", api.Event{Job: j, Run: run, To: "starting"})
	y.tell(started, "job.running", api.Event{Job: j, Run: run, To: "running"})
	y.tell(ended, "run.ended", api.Event{Job: j, Run: run, To: string(cause)})
	y.tell(ended, "job."+string(to), api.Event{Job: j, Run: run, To: string(to)})

	y.books = append(
		y.books,
		api.UsageRow{
			Keys:    []string{string(run), string(j), node, "V100-SXM2-16GB", offer},
			Amounts: api.Amounts{GPUSeconds: gpuHours * 3600},
		},
	)
}

func (y *yard) submit(hours float64, j id.Job, spec string) {
	y.tell(hours, "job.submitted", api.Event{Job: j, Owner: "ada", To: "pending", Spec: json.RawMessage(spec)})
}

func TestAPeriodIsReadFromEventsAndUsage(t *testing.T) {
	t.Parallel()
	y := &yard{role: tenant.Admin}
	for i := range 700 { // of before the period
		y.tell(-100+float64(i)/10, "token.added", api.Event{})
	}

	y.books = append(
		y.books,
		api.UsageRow{Keys: []string{"j1.2", "j1", "box", "V100", ""}, Amounts: api.Amounts{GPUSeconds: 8 * 3600}},
	)

	y.tell(1, "node.joined", api.Event{Node: "late", To: "ready"})
	y.tell(1.5, "node.cordoned", api.Event{Node: "box"})
	y.tell(1.75, "node.uncordoned", api.Event{Node: "box"})
	y.submit(2, "j2", specOf(1, ""))

	y.tell(
		2,
		"lease.refused",
		api.Event{Job: "j2", Lease: "l1", To: "refused"},
	) // says nothing of the job itself

	y.goes("j2", 1, 2, 2.5, 4, job.CauseNodeLost, job.Recovering, "provisioned", "cloud/old", 2) // without a checkpoint: lost

	y.goes("j2", 2, 5, 5, 8, job.CauseNone, job.Succeeded, "box", "", 3)
	y.submit(3, "j3", specOf(1, ""))
	y.tell(4, "job.cancelled", api.Event{Job: "j3", To: "cancelled"})
	y.submit(5, "j4", specOf(1, "")) // waits

	y.submit(
		6,
		"j5",
		`{"run":"x","place":"any","objective":"cost","resources":{"gpus":"1..4","nodes":"1","cpus":"1"},"needs":["j4"]}`,
	)

	y.goes("j5", 1, 10, 10, 12, job.CauseUserCode, job.Failed, "provisioned", "cloud/v1", 4)
	y.submit(24*20+1, "j6", specOf(1, "")) // after the period

	h, err := advise.Read(t.Context(), y, advise.Period{From: begin, To: at(24 * 20), Idle: 7 * time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}

	type short struct {
		Job       id.Job
		Submitted float64
		Ended     float64
		Carried   bool
		Ran       []advise.Stretch
	}

	var got []short
	for _, j := range h.Jobs {
		got = append(got, short{j.ID, j.Submitted.Sub(begin).Hours(), j.Ended.Sub(begin).Hours(), j.Carried, j.Stretches})
	}

	v100 := func(lasted time.Duration, tflops float64, gpus int, lost bool) []advise.Stretch {
		return []advise.Stretch{
			{Lasted: lasted, GPU: "V100", Memory: 16 << 30, TFLOPS: tflops, GPUs: gpus, Nodes: 1, Wasted: lost},
		}
	}

	want := []short{
		{"j1", 0, 4, true, v100(4*hour, 90, 2, false)},
		{"j2", 2, 8, false, append(v100(90*time.Minute, 93.75, 1, true), v100(3*hour, 90, 1, false)...)},
		{"j5", 6, 12, false, v100(2*hour, 93.75, 2, false)},
	}

	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	if len(h.Nodes) != 2 || !h.Nodes[1].Came.Equal(at(1)) || len(h.Nodes[0].Away) != 1 ||
		!h.Nodes[0].Away[0].To.Equal(at(1.75)) ||
		h.Cost != 321.5 ||
		h.Idle != 7*time.Minute {
		t.Errorf("nodes %+v, cost %v", h.Nodes, h.Cost)
	}

	if p := h.Tariff.Of(&h.Nodes[0].Node); p == nil || h.Tariff.Rate(p, 0) != 0.6 || h.Tariff.Rate(p, 1) != 0.7 ||
		h.Tariff.Rate(p, 2) != 0.8 ||
		h.Tariff.Of(&h.Nodes[1].Node) != nil {
		t.Errorf("tariff %+v", h.Tariff)
	}

	if len(h.Offers) != 2 || len(h.Quotas) != 1 || h.Quotas[0].Subject.Each != "user" || len(h.Data) != 1 {
		t.Errorf("offers %v, limits %v, data %v", h.Offers, h.Quotas, h.Data)
	}

	if d := cmp.Diff([]string{"ended before they started: 1 job", "still queued: 1 job"}, h.LeftOut); d != "" {
		t.Error(d)
	}

	text := strings.Join(h.Gaps, "\n")
	for _, part := range []string{"refused 1 node", "work that remained: 1 job", "their price is unknown: 1 local or reserved node", "the jobs they need: 1 job"} {
		if !strings.Contains(text, part) {
			t.Errorf("the gaps do not say %q:\n%s", part, text)
		}
	}

	if y.asked > 20 {
		t.Errorf("the feed was asked %d times: the beginning is to be found by halves", y.asked)
	}
}

func TestOnlyAnAdminMayAsk(t *testing.T) {
	t.Parallel()
	_, err := advise.Read(t.Context(), &yard{role: tenant.Researcher}, advise.Period{Last: 30 * 24 * hour}, nil)
	if fault.KindOf(err) != fault.Denied {
		t.Errorf("error is %v", err)
	}
}

func TestAnEmptyPeriodIsRefused(t *testing.T) {
	t.Parallel()
	_, err := advise.Read(t.Context(), &yard{role: tenant.Admin}, advise.Period{From: at(5), To: at(5)}, nil)
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("error is %v", err)
	}
}
