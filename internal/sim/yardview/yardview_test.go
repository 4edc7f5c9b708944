package yardview_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim/yardview"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// at is a time so many minutes after noon.
func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// fake is a yard that tells what a test says.
type fake struct {
	role   tenant.Role
	nodes  []api.Node
	jobs   []api.JobDetail // oldest first
	events []api.Event
	data   []api.Dataset
}

func (f *fake) Info(context.Context) (api.Info, error) {
	return api.Info{Policy: "fifo", Now: at(60)}, nil
}

func (f *fake) Whoami(context.Context) (api.Whoami, error) {
	return api.Whoami{User: "ada", Role: f.role}, nil
}

// page returns the part of a list after a cursor, two at a time.
func page[T any](all []T, cursor string) (part []T, next string) {
	from, _ := strconv.Atoi(cursor)
	to := min(from+2, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}

	return all[from:to], next
}

func (f *fake) Nodes(_ context.Context, p api.Page) (api.NodePage, error) {
	part, next := page(f.nodes, p.Cursor)
	return api.NodePage{Nodes: part, Next: next}, nil
}

func (f *fake) Jobs(_ context.Context, want api.JobFilter) (api.JobPage, error) {
	var all []api.Job
	for _, d := range slices.Backward(f.jobs) {
		if len(want.States) == 0 || slices.Contains(want.States, d.State) {
			all = append(all, d.Job)
		}
	}

	part, next := page(all, want.Cursor)

	return api.JobPage{Jobs: part, Next: next}, nil
}

func (f *fake) Job(_ context.Context, j id.Job) (api.JobDetail, error) {
	for _, d := range f.jobs {
		if d.ID == j {
			return d, nil
		}
	}

	return api.JobDetail{}, fault.New(fault.NotFound, "job_not_found", "there is no job %s", j)
}

func (f *fake) Datasets(_ context.Context, p api.Page) (api.DatasetPage, error) {
	part, next := page(f.data, p.Cursor)
	return api.DatasetPage{Datasets: part, Next: next}, nil
}

func (f *fake) Users(context.Context, api.Page) (api.UserPage, error) {
	return api.UserPage{Users: []api.User{{ID: "ada", Role: tenant.Admin, Usage: 7200}}}, nil
}

func (f *fake) Events(_ context.Context, want api.EventFilter) (api.EventPage, error) {
	var all []api.Event
	for _, e := range f.events {
		ofKind := want.Kind == "" || e.Kind == want.Kind || strings.HasPrefix(e.Kind, want.Kind+".")
		if (want.Job == "" || e.Job == want.Job) && ofKind {
			all = append(all, e)
		}
	}

	return api.EventPage{Events: all}, nil
}

func node(name string, gpus int, holders ...id.Job) api.Node {
	n := api.Node{
		ID:       id.Node(name),
		Class:    fleet.Local,
		State:    "idle",
		CPUs:     8000,
		CPUsFree: 8000,
		Memory:   64 << 30,
		MemFree:  64 << 30,
	}

	for i := range gpus {
		g := api.GPU{Index: i, Model: "A100", Memory: 40 << 30, State: fleet.GPUIdle}
		if i < len(holders) && holders[i] != "" {
			g.State, g.Job = fleet.GPURunning, holders[i]

			if !slices.Contains(n.Jobs, holders[i]) {
				n.Jobs = append(n.Jobs, holders[i])
			}
		}

		n.GPUs = append(n.GPUs, g)
	}

	return n
}

func detail(j string, owner id.User, state job.State, submitted int, spec string, runs ...api.Run) api.JobDetail {
	return api.JobDetail{
		Job: api.Job{
			ID:        id.Job(j),
			Owner:     owner,
			State:     state,
			Submitted: at(submitted),
			Since:     at(submitted),
			Epoch:     len(runs),
		},
		Spec: json.RawMessage(`{"run":"x","place":"any",` + spec + `}`),
		Runs: runs,
	}
}

func run(j string, epoch, ordered int, ended *time.Time, n string, gpus ...int) api.Run {
	r := api.Run{
		ID:      id.NewRun(id.Job(j), epoch),
		Epoch:   epoch,
		State:   job.RunRunning,
		Ordered: at(ordered),
		Started: new(at(ordered)),
		Ended:   ended,
		Ranks:   []api.Rank{{Node: id.Node(n), GPUs: gpus, State: job.RunRunning}},
	}

	if ended != nil {
		r.State, r.Ranks[0].State = job.RunEnded, job.RunEnded
	}

	return r
}

const oneGPU = `"resources":{"gpus":"1","nodes":"1","cpus":"1"}`

const twoGPUs = `"resources":{"gpus":"2","nodes":"1","cpus":"1"}`

func TestTheYardAsItIsNow(t *testing.T) {
	t.Parallel()
	backoff := detail("j4", "ada", job.Recovering, 20, twoGPUs+`,"expect":"1h"`, run("j4", 1, 20, new(at(30)), "a", 0, 1))
	backoff.Why = &api.Why{Blocker: "backoff", Start: new(at(65))}
	f := &fake{
		role: tenant.Admin,
		nodes: []api.Node{node("a", 4, "j1", "j1"), node("b", 2), func() api.Node {
			n := node("c", 2)
			n.Cordoned, n.State = true, "lost"
			return n
		}()},
		jobs: []api.JobDetail{
			detail("j1", "ada", job.Running, 0, twoGPUs+`,"expect":"2h"`, run("j1", 1, 5, nil, "a", 0, 1)),
			detail("j2", "ada", job.Paused, 1, twoGPUs),
			detail("j3", "ben", job.Pending, 10, twoGPUs+`,"max_duration":"30m"`),
			backoff,
		},
	}

	f.nodes[1].GPUs[1].State = fleet.GPUForeign
	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	yard := yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	yard.Load(v.Now, v.State)

	view := yard.View(v.Now)
	if len(view.Running) != 1 || view.Running[0].Job != "j1" || view.Queue.Len() != 1 ||
		view.Queue.Items()[0].Job != "j3" {
		t.Errorf(
			"%d run, %d wait; want j1 to run, j3 to wait, and neither the paused one nor the one in its back-off in line",
			len(view.Running),
			view.Queue.Len(),
		)
	}

	if view.Rooms[0].Free != 0b1100 || view.Rooms[1].Sound != 0b01 || view.Rooms[2].Open {
		t.Errorf("rooms: %+v", view.Rooms)
	}

	if got := view.Usage["ada"]; got < 7200 {
		t.Errorf("ada has used %v, want at least 7200", got)
	}

	if len(v.Gaps) != 1 || !strings.Contains(v.Gaps[0], "1 job is paused") {
		t.Errorf("gaps: %v", v.Gaps)
	}
}

// TestANodeOffersWhatItOffersInTheYard: a job waits in a simulation for what it would wait for in the yard.
func TestANodeOffersWhatItOffersInTheYard(t *testing.T) {
	t.Parallel()
	able := node("able", 1)
	able.Labels, able.Containers = []string{"fast-disk"}, &fleet.Containers{OK: true}
	able.Shared = []fleet.Shared{{Name: "scratch", OK: true}}
	able.Environments = &fleet.Environments{UV: "uv 0.9"}

	f := &fake{role: tenant.Admin, nodes: []api.Node{node("bare", 1), able}}
	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	for what, need := range map[string]fleet.Need{
		"an image":             {Container: true},
		"a label":              {Labels: "|fast-disk|"},
		"a shared file system": {Shared: "scratch"},
		"an environment":       {Builder: job.BuilderUV},
	} {
		need.Nodes, need.MaxNodes, need.Place = 1, 1, job.PlaceAny
		for i := range v.State.Nodes {
			n := &v.State.Nodes[i]
			want := n.ID == able.ID
			room := fleet.Room{Node: n, Open: true, CPUs: n.Inventory.CPUs, Memory: n.Inventory.Memory}

			if got := fleet.NewMatcher(need).Eligible(&room); got != want {
				t.Errorf("a job with %s on node %s: %v, want %v", what, n.ID, got, want)
			}
		}
	}
}

// TestASuspendedJobIsSeen: j1 has worked for 40 minutes and was suspended twice, the second time at 50, for j2.
func TestASuspendedJobIsSeen(t *testing.T) {
	t.Parallel()

	lends := detail("j1", "ada", job.Running, 0, oneGPU+`,"expect":"2h"`, run("j1", 1, 0, nil, "a", 0))
	lends.Status, lends.Ran = job.StatusSuspended, job.Duration(40*time.Minute)
	a := node("a", 1, "j2")
	a.Snapshots = &fleet.Snapshots{Suspend: fleet.Ability{OK: true}}
	f := &fake{
		role: tenant.Admin, nodes: []api.Node{a, node("b", 1)},
		jobs: []api.JobDetail{
			lends, detail("j2", "ada", job.Running, 45, oneGPU+`,"expect":"10m"`, run("j2", 1, 50, nil, "a", 0)),
		},
		events: []api.Event{
			{Job: "j1", Kind: "run.suspended", At: at(10)}, {Job: "j1", Kind: "run.suspended", At: at(50)},
			{Job: "j1", Kind: "job.running", At: at(55)},
		},
	}

	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if j := v.State.Jobs[0]; !j.Suspended.Equal(at(50)) || j.Status() != job.StatusSuspended {
		t.Errorf("j1 is %s since %s", j.Status(), j.Suspended)
	}

	r := v.State.Runs[0]
	if k := r.Ranks[0]; !k.Suspended.Equal(at(50)) || k.Lent != job.Duration(10*time.Minute) || !k.Suspension.On ||
		r.Worked(v.Now) != 40*time.Minute {
		t.Errorf("its rank is %+v", k)
	}

	if nodes := v.State.Nodes; !nodes[0].Inventory.Lends().OK || nodes[1].Inventory.Lends().OK {
		t.Errorf("nodes %+v", nodes)
	}

	yard := yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	yard.Load(v.Now, v.State)

	if view := yard.View(v.Now); len(view.Running) != 1 || view.Running[0].Job != "j2" || view.Rooms[0].Free != 0 {
		t.Errorf("policies see %d running jobs, and the GPUs %b free", len(view.Running), view.Rooms[0].Free)
	}

	if len(v.Gaps) > 0 {
		t.Errorf("gaps: %v", v.Gaps)
	}
}

func TestLengthsComeFromWhatJobsDeclare(t *testing.T) {
	t.Parallel()
	f := &fake{role: tenant.Admin, nodes: []api.Node{node("a", 8, "j1", "j1", "j2", "j2")}, jobs: []api.JobDetail{
		detail("j1", "ada", job.Running, 0, twoGPUs+`,"expect":"2h"`, run("j1", 1, 0, nil, "a", 0, 1)),
		detail("j2", "ada", job.Running, 0, twoGPUs+`,"expect":"10m"`, run("j2", 1, 0, nil, "a", 2, 3)),
		detail("j3", "ada", job.Pending, 1, twoGPUs+`,"max_duration":"30m"`),
		detail("j4", "ada", job.Pending, 2, twoGPUs+`,"speed":{"work":100,"rates":[{"gpus":2,"per_second":1}]}`),
		detail("j5", "ada", job.Pending, 3, twoGPUs),
	}}

	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if unknown := yardview.NewLengths(v, 0).Unknown(); !slices.Equal(unknown, []id.Job{"j5"}) {
		t.Errorf("unknown are %v, want j5 alone", unknown)
	}

	l := yardview.NewLengths(v, 3*time.Hour)

	want := []struct {
		basis yardview.Basis
		lasts time.Duration
	}{
		{yardview.BasisExpect, 2 * time.Hour},
		{yardview.BasisOverdue, 2 * time.Hour}, // it runs for an hour already
		{yardview.BasisMost, 30*time.Minute - time.Second},
		{yardview.BasisSpeed, 0},
		{yardview.BasisAssumed, 3 * time.Hour},
	}

	for i, w := range want {
		j := v.State.Jobs[i]
		if got := l.Truth(j); l.Basis(j.ID) != w.basis || got.Duration != w.lasts || got.At != j.Submitted.Sub(at(60)) {
			t.Errorf("%s: %s by %s, submitted at %s; want %s by %s", j.ID, got.Duration, l.Basis(j.ID), got.At, w.lasts, w.basis)
		}
	}
}

func TestAResearcherSeesWhatOthersHold(t *testing.T) {
	t.Parallel()
	busy := node("a", 4, "j7", "j7", "j9")
	busy.CPUsFree, busy.MemFree = 3000, 32<<30
	f := &fake{role: tenant.Researcher, nodes: []api.Node{busy, node("b", 2, "j7")}, jobs: []api.JobDetail{
		detail("j9", "ada", job.Running, 0, `"resources":{"gpus":"1","nodes":"1","cpus":"1"}`, run("j9", 1, 0, nil, "a", 2)),
	}}
	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if !slices.Equal(v.Strangers, []id.Job{"j7"}) {
		t.Errorf("strangers are %v, want j7", v.Strangers)
	}

	yard := yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	yard.Load(v.Now, v.State)

	rooms := yard.View(v.Now).Rooms
	if rooms[0].Free != 0b1000 || rooms[0].CPUs != 3000 || rooms[0].Memory != 32<<30 || rooms[1].Free != 0b10 {
		t.Errorf("rooms: %+v", rooms)
	}

	if text := strings.Join(v.Gaps, "\n"); !strings.Contains(text, "queued jobs of other users") ||
		!strings.Contains(text, "fair share") {
		t.Errorf("gaps: %v", v.Gaps)
	}
}

// feed makes the entry of a job that went from one state to another.
func feed(minute int, j string, r id.Run, from, to job.State, reason string) api.Event {
	return api.Event{
		At:     at(minute),
		Kind:   "job." + string(to),
		Job:    id.Job(j),
		Run:    r,
		From:   string(from),
		To:     string(to),
		Reason: reason,
	}
}

func TestTheYardAsItWasWhenARunWasOrdered(t *testing.T) {
	t.Parallel()

	// At 30 minutes j3 was ordered, together with j6.
	retry := feed(29, "j7", "j7.1", job.Running, job.Recovering, "it failed and is tried again")
	retry.NotBefore = new(at(34))

	f := &fake{
		role:  tenant.Admin,
		nodes: []api.Node{node("a", 8), node("b", 2), node("new", 8)},
		jobs: []api.JobDetail{
			detail("j1", "ada", job.Succeeded, 0, twoGPUs, run("j1", 1, 1, new(at(20)), "a", 0, 1)),  // over by then
			detail("j2", "ada", job.Succeeded, 0, twoGPUs, run("j2", 1, 2, new(at(50)), "a", 2, 3)),  // ran then
			detail("j3", "ada", job.Succeeded, 3, twoGPUs, run("j3", 1, 30, new(at(55)), "a", 0, 1)), // this one
			detail("j4", "ben", job.Pending, 4, twoGPUs),                                             // waited, and still does
			detail("j5", "ben", job.Pending, 40, twoGPUs),                                            // came later
			detail("j6", "ben", job.Running, 5, twoGPUs, run("j6", 1, 30, nil, "a", 4, 5)),           // started together
			detail("j7", "ben", job.Succeeded, 6, twoGPUs, run("j7", 1, 7, new(at(29)), "b", 0, 1)),  // in its back-off
			detail("j8", "ben", job.Running, 7, twoGPUs, run("j8", 1, 8, nil, "b", 0)),               // was being stopped
			detail("j9", "ben", job.Cancelled, 8, twoGPUs),                                           // paused then
			detail("j10", "ben", job.Succeeded, 9, twoGPUs, run("j10", 1, 30, new(at(30)), "a", 6, 7)),
		}, // ended when it was ordered: not there
		events: []api.Event{
			{
				At:   at(-60),
				Kind: "node.joined",
				Node: "a",
				To:   "ready",
			},
			{At: at(-60), Kind: "node.joined", Node: "b", To: "ready"},
			{At: at(-50), Kind: "node.joined", Node: "gone", To: "ready"},
			{At: at(10), Kind: "node.cordoned", Node: "b"},
			{At: at(45), Kind: "node.uncordoned", Node: "b"},
			{At: at(45), Kind: "node.removed", Node: "gone", To: "removed"},
			{At: at(50), Kind: "node.joined", Node: "new", To: "ready"},
			{At: at(51), Kind: "node.inventory", Node: "a"},
			feed(30, "j3", "j3.1", job.Pending, job.Starting, "first in line"),
			feed(7, "j7", "j7.1", job.Pending, job.Starting, "x"),
			retry,
			{At: at(29), Kind: "run.stopping", Job: "j8", Run: "j8.1"},
			feed(8, "j8", "j8.1", job.Pending, job.Starting, "x"),
			feed(9, "j9", "", job.Pending, job.Paused, "paused"),
			feed(58, "j9", "", job.Paused, job.Cancelled, "cancelled"),
		},
	}

	for i := range f.jobs {
		if d := &f.jobs[i]; d.State.Final() {
			d.Ended = new(at(58))
			if n := len(d.Runs); n > 0 {
				d.Ended = d.Runs[n-1].Ended
			}
		}
	}

	f.jobs[6].Ended = new(at(58))
	past, err := yardview.Before(t.Context(), f, "j3", 0, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if past.Reason != "first in line" || !past.Now.Equal(at(30)) || !slices.Equal(past.And, []id.Job{"j6"}) {
		t.Errorf("ordered at %s because %q together with %v", past.Now, past.Reason, past.And)
	}

	yard := yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	yard.Load(past.Now, past.State)
	view := yard.View(past.Now)

	var line, runs, nodes []string
	for _, it := range view.Queue.Items() {
		line = append(line, string(it.Job))
	}

	for _, r := range view.Running {
		runs = append(runs, string(r.Job))

		if (r.Job == "j8") != r.Stopping {
			t.Errorf("%s is being stopped: %v", r.Job, r.Stopping)
		}
	}

	for _, r := range view.Rooms {
		nodes = append(nodes, string(r.Node.ID))
	}

	if !slices.Equal(line, []string{"j3", "j4", "j6"}) || !slices.Equal(runs, []string{"j2", "j8"}) ||
		!slices.Equal(nodes, []string{"a", "b"}) {
		t.Errorf("in line %v, running %v, nodes %v", line, runs, nodes)
	}

	if view.Rooms[0].Free != 0b11110011 || view.Rooms[1].Open {
		t.Errorf("rooms: %+v", view.Rooms)
	}

	text := strings.Join(past.Gaps, "\n")
	for _, want := range []string{"node gone existed then", "hardware or agent of node a", "fair share"} {
		if !strings.Contains(text, want) {
			t.Errorf("it is not said that %q: %v", want, past.Gaps)
		}
	}
}

func TestAYardThatIsAskedTooOftenIsAskedAgain(t *testing.T) {
	t.Parallel()
	f := &impatient{
		fake: &fake{
			role:  tenant.Admin,
			nodes: []api.Node{node("a", 2)},
			jobs:  []api.JobDetail{detail("j1", "ada", job.Pending, 0, twoGPUs)},
		},
		left: 1,
	}

	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil || len(v.State.Jobs) != 1 {
		t.Errorf("got %v", err)
	}
}

// impatient refuses at first because it is asked too often.
type impatient struct {
	*fake
	left int
}

func (f *impatient) Job(ctx context.Context, j id.Job) (api.JobDetail, error) {
	f.left--
	if f.left >= 0 {
		return api.JobDetail{}, fault.New(fault.OverLimit, "too_often", "too many requests")
	}

	return f.fake.Job(ctx, j)
}

func TestForecastsSayHowLongJobsTake(t *testing.T) {
	t.Parallel()

	forecast := func(made int, basis job.Basis, low, mid, high time.Duration) *api.Forecast {
		return api.NewForecast(&job.Forecast{At: at(made), Basis: basis, Remaining: job.Band{
			Low: low.Seconds(), Mid: mid.Seconds(), High: high.Seconds(),
		}})
	}

	f := &fake{role: tenant.Admin, nodes: []api.Node{node("a", 8, "j1", "j1")}, jobs: []api.JobDetail{
		detail("j1", "ada", job.Running, 0, twoGPUs+`,"expect":"9h"`, run("j1", 1, 0, nil, "a", 0, 1)),
		detail("j2", "ada", job.Pending, 1, twoGPUs+`,"expect":"2h"`),
		detail("j3", "ada", job.Pending, 1, twoGPUs),
	}}
	f.jobs[0].Forecast = forecast(50, job.BasisCurve, time.Hour, 2*time.Hour, 4*time.Hour) // ten minutes ago
	f.jobs[1].Forecast = forecast(60, job.BasisExpect, time.Hour, 2*time.Hour, 6*time.Hour)
	f.jobs[2].Forecast = forecast(60, job.BasisHistory, time.Hour, 3*time.Hour, 4*time.Hour)

	v, err := yardview.Live(t.Context(), f, yardview.Options{})
	if err != nil {
		t.Fatal(err)
	}

	l := yardview.NewLengths(v, 0)

	const up = 1.2816 // the upper end of an 80 % interval

	for i, w := range []struct {
		basis         yardview.Basis
		lasts, longer time.Duration
	}{
		// It has run for an hour; what is left is 1h50m, or twice that.
		{yardview.BasisForecast, 2*time.Hour + 50*time.Minute, time.Hour + 220*time.Minute},
		{yardview.BasisExpect, 2 * time.Hour, 6 * time.Hour},
		{yardview.BasisForecast, 3 * time.Hour, 4 * time.Hour},
	} {
		j := v.State.Jobs[i]

		mid, long := l.Truth(j).Duration.Round(time.Second), l.Drawn(j, up).Duration.Round(time.Second)
		if l.Basis(j.ID) != w.basis || mid != w.lasts || long != w.longer {
			t.Errorf("%s: %s or %s by %s; want %s or %s by %s", j.ID, mid, long, l.Basis(j.ID), w.lasts, w.longer, w.basis)
		}
	}
}

func TestAYardWithTooManyJobsIsNotRead(t *testing.T) {
	t.Parallel()

	f := &fake{role: tenant.Admin, jobs: []api.JobDetail{
		detail("j1", "ada", job.Pending, 1, twoGPUs), detail("j2", "ada", job.Pending, 2, twoGPUs),
	}}

	if _, err := yardview.Live(t.Context(), f, yardview.Options{MaxJobs: 1}); fault.KindOf(err) != fault.OverLimit {
		t.Errorf("reading 2 jobs of at most 1: %v", err)
	}
	if _, err := yardview.Live(t.Context(), f, yardview.Options{MaxJobs: 2}); err != nil {
		t.Errorf("reading 2 jobs of at most 2: %v", err)
	}
}
