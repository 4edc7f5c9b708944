package server

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// process lets a node's requests say who sends them.
func (n *node) process(a fleet.Agent) *node {
	n.As(&a)
	return n
}

// copied is a second agent with the identity of a node.
func (n *node) copied(a fleet.Agent) *node {
	n.y.t.Helper()
	c := &node{y: n.y, name: n.name, identity: n.identity, changed: make(chan struct{})}
	c.Client = api.NewClient(n.y.url, "", n.identity.TLS()).As(&a)
	n.y.t.Cleanup(c.Close)

	return c
}

// heartbeat reports nothing but that the agent is alive.
func (n *node) heartbeat(ranks ...api.RankReport) error {
	_, err := n.Report(n.y.t.Context(), api.Report{Capability: api.Capability, Boot: "b", Ranks: ranks})
	return err
}

// eventsOf lists the reasons of the stored events of a kind.
func (y *yard) eventsOf(kind string) []string {
	y.t.Helper()
	events, err := y.store.Events(y.t.Context(), store.EventFilter{Kind: kind, Limit: 100})
	y.must(err)

	var reasons []string
	for i := range events {
		reasons = append(reasons, events[i].Reason)
	}

	return reasons
}

func alpha(process string, started time.Duration) fleet.Agent {
	return fleet.Agent{Process: process, Machine: "m1", Boot: "b1", Folder: "801:2", Started: started, Host: "alpha"}
}

func beta(process string) fleet.Agent {
	return fleet.Agent{Process: process, Machine: "m2", Boot: "b2", Folder: "801:2", Started: time.Hour, Host: "beta"}
}

func TestNothingThatACopyOfANodeSendsCounts(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := y.join("n1").process(alpha("p1", time.Minute))
	y.must(first.heartbeat())
	first.listen()
	j, run := first.started(y.researcher("ada"))
	text := output(t, "o:hello\n")
	first.upload(run, 0, 0, text, false)

	seen := func() time.Time {
		var at time.Time
		y.must(y.loop.Query(t.Context(), func(core *yardmaster.Yard) {
			info, _ := core.NodeByName("n1")
			at = info.Seen
		}))

		return at
	}

	before := seen()
	y.advance(time.Second)

	second := first.copied(beta("p2"))
	wantFault(t, second.heartbeat(api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(),
		Ended: y.clock.Now()}), fault.Conflict, api.CodeAgentCopied)

	if got := seen(); !got.Equal(before) {
		t.Errorf("the report of the copy counts as contact: %s, before %s", got, before)
	}

	_, err := second.UploadLog(t.Context(), run, "", 0, int64(len(text)), output(t, "o:other\n"), true)
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted)

	_, err = second.Renew(t.Context(), api.RenewRequest{})
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted)

	_, err = second.FetchFile(t.Context(), strings.Repeat("0", 64))
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted)

	_, err = second.PushMetrics(t.Context(), api.MetricsReport{})
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted)

	err = second.Assignments(t.Context(), func(api.Assignments) error {
		t.Error("the copy gets assignments")
		return context.Canceled
	})
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted)

	reasons := y.eventsOf("node.copy_refused")
	if len(reasons) != 1 || !strings.Contains(reasons[0], "host alpha") || !strings.Contains(reasons[0], "host beta") {
		t.Errorf("events %q, want one that names both hosts", reasons)
	}

	detail, err := y.admin().Job(t.Context(), j)
	y.must(err)

	if detail.State != job.Running {
		t.Errorf("the job is %s", detail.State)
	}

	more := output(t, "o:more\n")
	if got := first.upload(run, 0, int64(len(text)), more, true); got != int64(len(text)+len(more)) {
		t.Errorf("the log has %d bytes, want %d", got, len(text)+len(more))
	}

	first.ends(run, 0, 0)
}

func TestARestartedAgentTakesOver(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := y.join("n1").process(alpha("p1", time.Minute))
	y.must(first.heartbeat())

	ended := make(chan error, 1)
	open := make(chan struct{})
	go func() {
		ended <- first.Assignments(context.WithoutCancel(t.Context()), func(api.Assignments) error {
			close(open)
			return nil
		})
	}()

	<-open

	second := first.copied(alpha("p2", 2*time.Minute))

	_, err := second.UploadLog(t.Context(), "j1.1", "", 0, 0, nil, false)
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted) // before its first report

	y.must(second.heartbeat())
	y.must(<-ended) // its stream, without being cancelled
	wantFault(t, first.heartbeat(), fault.Conflict, api.CodeAgentReplaced)

	if reasons := slices.Concat(y.eventsOf("node.copy_refused"), y.eventsOf("node.moved")); len(reasons) != 0 {
		t.Errorf("a restart makes events: %q", reasons)
	}
}

func TestACopyIsRefusedAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var first *node

	t.Run("first server", func(t *testing.T) {
		y := startYard(t, dir)
		first = y.join("n1").process(alpha("p1", time.Minute))
		y.must(first.heartbeat())
	})

	y := startYard(t, dir)
	again := &node{y: y, name: first.name, identity: first.identity}
	second, again := again.copied(beta("p2")), again.copied(alpha("p1", time.Minute))

	_, err := second.UploadLog(t.Context(), "j1.1", "", 0, 0, nil, false)
	wantFault(t, err, fault.Conflict, api.CodeAgentNotAdmitted)
	wantFault(t, second.heartbeat(), fault.Conflict, api.CodeAgentCopied)
	y.must(again.heartbeat())
}

func TestAHeaderThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")

	for _, path := range []string{"/agent/v1/reports", "/agent/v1/logs/j1.1/0?offset=0"} {
		got := y.raw(n.http, "POST", path, "", `{"capability":6,"boot":"b","seq":1}`, api.AgentHeader+": nonsense")
		if got.status != 422 || got.p.Code != "bad_agent_header" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestAnExpiredCertificateIsRenewedByKeyAndToken is about a machine that was off for longer than its certificate is
// valid, while its job was not given up because the server was off as well.
func TestAnExpiredCertificateIsRenewedByKeyAndToken(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")
	n.listen()
	j, _ := n.started(y.researcher("ada"))
	y.advance(31 * 24 * time.Hour)

	rejoin := func(identity *auth.NodeIdentity, token string) (api.JoinReply, error) {
		csr, err := identity.CSR("n1")
		y.must(err)

		c := api.NewClient(y.url, "", identity.JoinTLS())
		defer c.Close()

		return c.Join(t.Context(), api.JoinRequest{Capability: api.Capability, Token: token, Name: "n1", CSR: string(csr),
			Inventory: someInventory()})
	}

	old := n.copied(alpha("p0", time.Second))
	wantFault(t, old.heartbeat(), fault.Unavailable, "unreachable") // the server ends the handshake

	if _, err := rejoin(n.identity, "tyj_wrong"); err == nil {
		t.Error("the key alone is enough")
	}

	reply, err := rejoin(n.identity, y.joinToken(1))
	y.must(err)

	if reply.Node != "n1" {
		t.Errorf("joined as %s, want n1", reply.Node)
	}

	y.must(n.identity.Install([]byte(reply.Certificate)))
	y.must(n.copied(alpha("p1", time.Minute)).heartbeat())

	detail, err := y.admin().Job(t.Context(), j)
	y.must(err)

	if detail.State != job.Running || len(detail.Runs) != 1 {
		t.Errorf("the job is %s after %d runs", detail.State, len(detail.Runs))
	}

	// Another machine that asks for the name is another node, and the event says why.
	stranger, err := auth.NewNodeIdentity(y.ca.PEM())
	y.must(err)

	reply, err = rejoin(stranger, y.joinToken(1))
	y.must(err)

	joined := y.eventsOf("node.joined")
	if reply.Node != "n1-2" || !strings.Contains(joined[len(joined)-1], "the name n1 belongs to a machine with another key") {
		t.Errorf("another key joined as %s: %q", reply.Node, joined)
	}
}

// TestACopyIsNotHeardWhileACommitHangs is about the time in which reports count as signs of life without the yard.
func TestACopyIsNotHeardWhileACommitHangs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	first := y.join("n1").process(alpha("p1", time.Minute))
	y.must(first.heartbeat())
	second := first.copied(beta("p2"))

	arrived := y.store.hang()
	submitted := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "k")
		submitted <- err
	}()

	<-arrived
	y.clock.advance(stallAfter)
	eventually(t, "it is stuck", func() bool { return y.loop.Stuck() != "" })

	reported := make(chan error, 1)
	go func() { reported <- second.heartbeat() }()
	eventually(t, "the copy waits", func() bool { return len(y.loop.in)+len(reported) > 0 })
	wantFault(t, first.heartbeat(), fault.Unavailable, api.CodeHeard)
	y.store.mend()
	y.must(<-submitted)
	wantFault(t, <-reported, fault.Conflict, api.CodeAgentCopied)
}
