package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestAssignmentsAreWholeAndGrow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	early := y.submit(c, "run: a")[0].ID // before the agent is there
	n.listen()
	n.awaitRun(early, 1)
	later := y.submit(c, "run: b\ngrace: 7s")[0].ID

	got := n.await(func(a api.Assignments) bool { return len(a.Runs) == 2 })
	if got.Server != "start-1" || got.Runs[0].Run != id.NewRun(early, 1) || got.Runs[1].Run != id.NewRun(later, 1) {
		t.Errorf("got %+v", got)
	}

	if l := got.Runs[1].Launch; l.Command != "b" || l.Grace != job.Duration(7*time.Second) || l.Owner != "ada" ||
		l.CPUs != 1000 {
		t.Errorf("the launch is %+v", l)
	}

	reply, err := n.Report(t.Context(), api.Report{Capability: 1, Boot: "b", Seq: 1})
	y.must(err)

	if reply.Generation != got.Generation || reply.Interval != job.Duration(time.Second) ||
		reply.Lease != job.Duration(time.Minute) || reply.Grace != job.Duration(5*time.Second) ||
		reply.Server != got.Server || reply.Standby {
		t.Errorf("the reply to a report is %+v, and the generation %d", reply, got.Generation)
	}

	n.starts(id.NewRun(early, 1), 0)
	n.ends(id.NewRun(early, 1), 0, 0)
	n.await(func(a api.Assignments) bool { return len(a.Runs) == 1 && a.Runs[0].Run == id.NewRun(later, 1) })
	n.mu.Lock()
	defer n.mu.Unlock()

	if !slices.IsSortedFunc(n.seen, func(a, b api.Assignments) int {
		if a.Generation < b.Generation {
			return -1
		}

		return 1
	}) {
		t.Errorf("the generations do not grow: %+v", n.seen)
	}
}

func TestJoiningTwiceMakesOneNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.joinToken(3)
	identity, err := auth.NewNodeIdentity(y.ca.PEM())
	y.must(err)
	var wg sync.WaitGroup

	names := make([]id.Node, 8)
	for i := range names {
		wg.Go(func() {
			csr, err := identity.CSR("x")
			if err != nil {
				t.Error(err)
				return
			}

			reply, err := y.client("").
				Join(t.Context(), api.JoinRequest{Capability: 1, Token: token, Name: "GPU Box", CSR: string(csr),
					Inventory: someInventory()})
			if err != nil {
				t.Error(err)
				return
			}

			names[i] = reply.Node

			if err := identity.Install([]byte(reply.Certificate)); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()

	if got := slices.Compact(names); len(got) != 1 || got[0] != "gpu-box" {
		t.Errorf("the names are %v", got)
	}

	other := y.join("gpu-box")
	if other.name != "gpu-box-2" {
		t.Errorf("another machine of that name is called %s", other.name)
	}

	root := y.admin()
	list, err := root.Tokens(t.Context(), "root", api.Page{})
	y.must(err)

	if !slices.ContainsFunc(list.Tokens, func(k api.Token) bool { return k.Kind == "join" && k.UsesLeft == 2 }) {
		t.Errorf("joining again took more than one use: %+v", list.Tokens)
	}
}

func TestANodeRenewsItsCertificate(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")
	before := n.identity.Expires()
	y.advance(10 * 24 * time.Hour)
	csr, err := n.identity.CSR("whatever")
	y.must(err)
	reply, err := n.Renew(t.Context(), api.RenewRequest{CSR: string(csr)})
	y.must(err)
	y.must(n.identity.Install([]byte(reply.Certificate)))

	if !n.identity.Expires().After(before) || n.identity.Node() != "n1" {
		t.Errorf("the certificate is of %s until %s, before until %s", n.identity.Node(), n.identity.Expires(), before)
	}

	fresh := api.NewClient(y.url, "", n.identity.TLS())
	defer fresh.Close()

	_, err = fresh.Report(t.Context(), api.Report{Capability: 1, Boot: "b"})
	y.must(err)
}

func TestARemovedNodeIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, root, n := y.researcher("ada"), y.admin(), y.join("n1")
	n.listen()
	_, run := n.started(c)
	n.upload(run, 0, 0, output(t, "o:a\n"), false)
	n.ends(run, 0, 0)
	n.await(func(a api.Assignments) bool { return len(a.Runs) == 0 && a.Generation > 1 })
	stream := make(chan error, 1)
	seen := make(chan struct{}, 10)
	go func() {
		stream <- n.Assignments(context.Background(), func(api.Assignments) error {
			seen <- struct{}{}
			return nil
		})
	}()

	<-seen
	y.must(root.RemoveNode(t.Context(), "n1", false))

	if err := <-stream; err != nil {
		t.Errorf("its stream ended with %v", err)
	}

	csr, err := n.identity.CSR("n1")
	y.must(err)
	renewal, err := json.Marshal(api.RenewRequest{CSR: string(csr)})
	y.must(err)

	for _, try := range []struct{ method, path, body string }{
		{http.MethodPost, "/agent/v1/reports", `{"capability":1,"boot":"b","seq":1}`},
		{http.MethodPost, "/agent/v1/renew", string(renewal)},
		{http.MethodGet, "/agent/v1/assignments", ""},
		{http.MethodPost, "/agent/v1/logs/" + string(run) + "/0?offset=0", "x"},
		{http.MethodGet, "/agent/v1/files/" + digestOf("x"), ""},
	} {
		got := y.raw(n.http, try.method, try.path, "", try.body)
		if text := says(&got.p); text != "403 node_removed: node n1 has been removed from the yard" {
			t.Errorf("%s: %s", try.path, text)
		}
	}

	_, err = root.Node(t.Context(), "n1")
	wantFault(t, err, fault.NotFound, "node_not_found")

	// With a new key the machine may join again, under a new name.
	if again := y.join("n1"); again.name == "n1" {
		t.Errorf("it is called %s again", again.name)
	}
}

func TestARemovedNodeStaysOutAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var kept, removed *node
	t.Run("first", func(t *testing.T) {
		y := startYard(t, dir)
		kept, removed = y.join("kept"), y.join("removed")
		y.must(y.admin().RemoveNode(t.Context(), "removed", false))
	})

	t.Run("second", func(t *testing.T) {
		y := startYard(t, dir)
		for n, want := range map[*node]bool{kept: true, removed: false} {
			c := api.NewClient(y.url, "", n.identity.TLS())
			defer c.Close()

			_, err := c.Report(t.Context(), api.Report{Capability: 1, Boot: "b"})
			if (err == nil) != want {
				t.Errorf("%s: %v", n.name, err)
			}
		}
	})
}

func TestADrainedNodeGetsNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, root, n := y.researcher("ada"), y.admin(), y.join("n1")
	n.listen()
	_, run := n.started(c)
	got, err := root.DrainNode(t.Context(), "n1")
	y.must(err)

	if !got.Cordoned || got.State != "running" {
		t.Errorf("got %+v", got)
	}

	n.await(func(a api.Assignments) bool {
		return len(a.Runs) == 1 && a.Runs[0].Run == run && a.Runs[0].Stop == job.StopTerm
	})
	waits := y.submit(c, "run: b")[0].ID
	detail, err := c.Job(t.Context(), waits)
	y.must(err)

	if detail.State != job.Pending || detail.Why == nil || detail.Why.Sentence == "" {
		t.Errorf("got %+v", detail)
	}

	n.tell(
		api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(), Cause: job.CauseCancelled, Signalled: true},
	)
	got, err = root.UncordonNode(t.Context(), "n1")
	y.must(err)

	if got.Cordoned {
		t.Errorf("got %+v", got)
	}

	n.awaitRun(waits, 1)
}

func TestAReportNeverBringsTheYardDown(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	_, run := n.started(c)
	odd := time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)
	_, err := n.Report(t.Context(), api.Report{Foreign: []int{-1, 64, 1 << 40}, Ranks: []api.RankReport{
		{
			Run:   "nonsense",
			Rank:  -5,
			State: "dancing",
		},
		{Run: run, Rank: 99, State: job.RunEnded},
		{Run: run, Rank: -1, State: job.RunRunning},
		{
			Run:   run,
			State: "dancing",
		},
		{
			Run:      run,
			State:    job.RunEnded,
			Started:  odd,
			Ended:    odd,
			ExitCode: 1 << 40,
			Signal:   "\x00",
			Cause:    "odd\x00",
			Reason:   "\x00\xff",
		},
	}})

	y.must(err)

	if _, err := c.Nodes(t.Context(), api.Page{}); err != nil {
		t.Error(err)
	}
}
