package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/engine/agents"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// readiness is what /readyz says.
func readiness(y *yard) string {
	y.t.Helper()
	req, err := http.NewRequestWithContext(y.t.Context(), http.MethodGet, y.url+"/readyz", nil)
	y.must(err)
	resp, err := y.http.Do(req)
	y.must(err)
	defer func() { _ = resp.Body.Close() }()

	body := make([]byte, 500)
	n, _ := resp.Body.Read(body)

	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body[:n])))
}

func TestAStoreThatFailsIsNotReadyAndNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	y.submit(c, "run: before")
	awaitReady(t, y)

	if got := readiness(y); got != "200 ready" {
		t.Errorf("it says %q", got)
	}

	y.store.fail(fault.New(fault.Unavailable, "store_unavailable", "the disk is full"))
	var waiting sync.WaitGroup
	var reply api.SubmitReply
	var err error
	waiting.Go(func() { reply, err = c.Submit(t.Context(), api.SubmitRequest{File: "run: during"}, "k") })
	eventually(t, "the loop is stuck", func() bool { return y.loop.Stuck() != "" })

	if got := readiness(y); got != "503 not ready: the disk is full" {
		t.Errorf("it says %q", got)
	}

	for _, call := range []func() error{
		func() error {
			_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: x"}, "")
			return err
		},
		func() error {
			_, err := c.CancelJob(t.Context(), "j1")
			return err
		},
	} {
		wantFault(t, call(), fault.Unavailable, "store_down")
	}

	// What changes nothing is answered.
	if _, err := c.Nodes(t.Context(), api.Page{}); err != nil {
		t.Errorf("nodes: %v", err)
	}

	if _, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: x", DryRun: true}, ""); err != nil {
		t.Errorf("dry run: %v", err)
	}

	if page, err := c.Jobs(t.Context(), api.JobFilter{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("meanwhile the list has %d jobs, %v", len(page.Jobs), err)
	}

	metrics := y.raw(y.http, http.MethodGet, "/metrics", "", "")
	if !strings.Contains(string(metrics.body), "\ntrainyard_ready 0\n") {
		t.Errorf("the metrics do not say that it is not ready:\n%s", metrics.body)
	}

	// It goes on with what it was at, and only then answers.
	y.store.mend()
	waiting.Wait()
	y.must(err)

	if reply.Jobs[0].ID != "j2" || reply.Replay {
		t.Errorf("got %+v", reply)
	}

	awaitReady(t, y)
	detail, err := c.Job(t.Context(), "j2")
	y.must(err)

	if detail.State != job.Pending {
		t.Errorf("got %+v", detail)
	}

	if again, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: during"}, "k"); err != nil || !again.Replay {
		t.Errorf("asked again: %+v, %v", again, err)
	}
}

// TestAServerThatStopsLetsGoOfItsStore: a health check went on beside the closing of the store, and opened its files
// again.
func TestAServerThatStopsLetsGoOfItsStore(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.store.hang()
	eventually(t, "a health check uses the store", func() bool { return y.store.pings.Load() > 0 })
	y.cancel()

	select {
	case <-y.beside:
		t.Error("the server has stopped while its health check uses the store")
	case <-time.After(100 * time.Millisecond): // it waits
	}

	y.store.mend()
	<-y.beside
}

func TestAStoreThatHangsIsNotReady(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.Timeout = checkTimeout / 10 }))
	c := y.researcher("ada")
	awaitReady(t, y)
	arrived := y.store.hang()
	_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "k")
	wantFault(t, err, fault.Unavailable, "no_answer")
	<-arrived

	eventually(t, "it says that it is not ready", func() bool {
		// The check hangs as well; that it has not come back is what tells.
		if why := y.srv.health.why(); why != "" {
			return true
		}

		y.clock.advance(checkTimeout / 10)

		return false
	})

	if got := readiness(y); !strings.HasPrefix(got, "503 not ready: ") {
		t.Errorf("it says %q", got)
	}

	y.store.mend()
	awaitReady(t, y)

	eventually(t, "what hung is stored", func() bool {
		reply, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "k")
		return err == nil && reply.Replay
	})
}

func TestALoopWhoseStoreHasAnotherWriterEnds(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	y.store.fail(store.ErrNotLeader)
	_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "")
	wantFault(t, err, fault.Unavailable, api.CodeLostLead)

	var f *fault.Error
	if err := <-y.ended; !errors.As(err, &f) || f.Code != "not_leader" {
		t.Errorf("the loop ended with %v", err)
	}

	// Whoever comes later is not left to wait.
	_, err = c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "")
	wantFault(t, err, fault.Unavailable, "stopping")
	_, err = c.Nodes(t.Context(), api.Page{})
	wantFault(t, err, fault.Unavailable, "stopping")

	if page, err := c.Jobs(t.Context(), api.JobFilter{}); err != nil || len(page.Jobs) != 0 {
		t.Errorf("there are %d jobs, %v", len(page.Jobs), err)
	}
}

func TestAQueryThatPanicsFailsAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	err := y.loop.Query(t.Context(), func(*yardmaster.Yard) { panic("oh") })
	wantFault(t, err, fault.Internal, "internal")
	y.submit(y.researcher("ada"), "run: a")
}

func TestAHandlerThatPanicsFailsAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.srv.mux.mux.HandleFunc("GET /oh", func(http.ResponseWriter, *http.Request) { panic("oh") })

	got := y.raw(y.http, http.MethodGet, "/oh", "", "")
	if text := says(&got.p); text != "500 internal: internal server error" {
		t.Errorf("got %q", text)
	}

	y.submit(y.researcher("ada"), "run: a")
}

func TestManySubmissionsShareACommit(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	const many = 1000

	submit := func(i int) {
		spec := &job.Spec{Run: "a", Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000}}
		answer, err := y.loop.Do(
			t.Context(),
			yardmaster.Submit{Owner: "ada", Key: fmt.Sprint(i), Jobs: []yardmaster.NewJob{{Spec: spec}}},
		)

		if got, ok := answer.(yardmaster.Submitted); err != nil || !ok || len(got.Jobs) != 1 {
			t.Errorf("got %+v, %v", answer, err)
		}
	}

	var wg sync.WaitGroup
	arrived := y.store.hang()
	wg.Go(func() { submit(0) })
	<-arrived // while one commit is under way the others gather

	for i := range many {
		wg.Go(func() { submit(i + 1) })
	}

	eventually(t, "all have gathered", func() bool { return len(y.loop.in) >= many })
	defer y.clock.hold()() // however long it takes, nothing becomes due meanwhile

	before := y.store.commits.Load()
	y.store.mend()
	wg.Wait()

	if commits := y.store.commits.Load() - before; commits > 5 { // the one, theirs, and what was due before
		t.Errorf("%d submissions took %d commits", many, commits)
	}

	if got := y.store.rows.Load(); got <= many {
		t.Errorf("%d jobs were committed", got)
	}
}

// slow is a policy whose rounds are so dear that the loop rests after each.
type slow struct{ seen atomic.Int64 }

func (*slow) Name() string { return "slow" }

func (*slow) Revises() bool { return false }

func (p *slow) Plan(v *place.View) place.Plan {
	time.Sleep(4 * roundCheap)
	p.seen.Store(int64(v.Queue.Len()))
	return place.Plan{}
}

func TestARoundThatWasPutOffIsMadeUpFor(t *testing.T) {
	t.Parallel()
	policy := &slow{}
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.Policy = policy }))
	ada := y.researcher("ada")

	const jobs = 20
	for range jobs {
		y.submit(ada, "run: a")
	}

	// Nothing more is said to the yard.
	eventually(t, "the policy is shown all jobs", func() bool { return policy.seen.Load() == jobs })
}

// plainStore is a store that takes whatever is committed.
type plainStore struct{ store.Store }

func (plainStore) Commit(context.Context, ...*yardmaster.Batch) error { return nil }

// dear is a policy whose rounds take as long as is said, in the time of a bubble. It plans as another does, or nothing.
type dear struct {
	of    place.Policy
	takes time.Duration
	began []time.Time
}

func (*dear) Name() string { return "dear" }

func (*dear) Revises() bool { return false }

func (p *dear) Plan(v *place.View) place.Plan {
	p.began = append(p.began, v.Now)
	time.Sleep(p.takes)

	if p.of == nil {
		return place.Plan{}
	}

	return p.of.Plan(v)
}

// dearLoop runs a loop in a bubble, on a yard with the user ada, until the test calls end. do sends a message to it.
func dearLoop(t *testing.T, policy place.Policy) (do func(yardmaster.Message), end func()) {
	t.Helper()

	wall := clock.Wall{}
	core := yardmaster.New(yardmaster.Defaults(policy))
	core.Load(wall.Now(), yardmaster.State{})

	l := NewLoop(LoopConfig{
		Yard: core, Store: plainStore{}, Engine: agents.New(nil), Clock: wall, Log: slog.New(slog.DiscardHandler),
	})

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()

	do = func(m yardmaster.Message) {
		if _, err := l.Do(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}

	do(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "test"})

	return do, func() {
		cancel()

		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// oneCPU is a submission of a job that takes one CPU.
func oneCPU() yardmaster.Submit {
	spec := &job.Spec{
		Run: "a", Place: job.PlaceAny, Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
	}

	return yardmaster.Submit{Owner: "ada", Jobs: []yardmaster.NewJob{{Spec: spec}}}
}

// TestARoundThatWasPutOffBeginsWhenTheRestIsOver: and not with the tick after it.
func TestARoundThatWasPutOffBeginsWhenTheRestIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes = 4 * roundCheap

		policy := &dear{takes: takes}
		do, end := dearLoop(t, policy)
		time.Sleep(tickEvery / 2)

		began := time.Now()
		do(oneCPU()) // its round is dear
		do(oneCPU()) // its round is put off
		time.Sleep(10 * tickEvery)
		end()

		// The rest ends between two ticks.
		want := []time.Time{began, began.Add(takes + roundRest*takes)}
		if !slices.EqualFunc(policy.began, want, time.Time.Equal) {
			t.Errorf("rounds began at %v, want %v", policy.began, want)
		}
	})
}

// TestTheRestIsShorterWhenARunHasEnded: its GPUs are idle until the next round.
func TestTheRestIsShorterWhenARunHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes = 4 * roundCheap

		policy := &dear{of: ordered.FIFO{}, takes: takes}
		do, end := dearLoop(t, policy)

		do(yardmaster.AddToken{By: "test", Token: tenant.Token{
			ID: "join", Kind: tenant.JoinToken, Owner: "ada", Class: string(fleet.Local), UsesLeft: 1,
			Expires: time.Now().Add(time.Hour),
		}})
		do(yardmaster.Join{
			Token: "join", Name: "a", Key: "a", Inventory: fleet.Inventory{CPUs: 1000, Memory: 1 << 30, MixUsers: true},
		})
		do(yardmaster.NodeReport{Node: "a"})
		do(oneCPU()) // runs there
		time.Sleep(10 * tickEvery)
		do(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{
			{Run: id.NewRun("j1", 1), State: job.RunRunning, Started: time.Now()},
		}})
		time.Sleep(10 * tickEvery)
		policy.began = nil
		time.Sleep(tickEvery / 2)

		began := time.Now()
		do(oneCPU()) // its round is dear, and finds no room
		do(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{
			{Run: id.NewRun("j1", 1), State: job.RunEnded, Started: began, Ended: began},
		}})
		time.Sleep(10 * tickEvery)
		end()

		want := []time.Time{began, began.Add(takes + freedRest*takes)}
		if len(policy.began) < 2 || !slices.EqualFunc(policy.began[:2], want, time.Time.Equal) {
			t.Errorf("rounds began at %v, want %v", policy.began, want)
		}
	})
}
