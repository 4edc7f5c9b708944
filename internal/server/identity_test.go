package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/store"
)

// renewed has the certificate of a node renewed for a new key and returns who uses that.
func (n *node) renewed() *node {
	n.y.t.Helper()
	next, err := n.identity.Successor()
	n.y.must(err)
	csr, err := next.CSR(string(n.name))
	n.y.must(err)
	proof, err := n.identity.Prove(csr)
	n.y.must(err)
	reply, err := n.Renew(n.y.t.Context(), api.RenewRequest{CSR: string(csr), Proof: proof})
	n.y.must(err)
	n.y.must(next.Install([]byte(reply.Certificate)))

	out := &node{y: n.y, name: n.name, identity: next, changed: make(chan struct{})}
	out.Client = api.NewClient(n.y.url, "", next.TLS())
	n.y.t.Cleanup(out.Close)

	return out
}

func (y *yard) events(kind string) []api.Event {
	y.t.Helper()
	events, err := y.store.Events(y.t.Context(), store.EventFilter{Kind: kind, Limit: 100})
	y.must(err)

	list := make([]api.Event, len(events))
	for i := range events {
		list[i] = toEvent(&events[i])
	}

	return list
}

func TestTheUseOfARenewedCertificateEndsTheOneBefore(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := y.join("n1").process(alpha("p1", time.Minute))
	y.must(first.heartbeat())
	y.advance(time.Hour)
	second := first.renewed().process(alpha("p1", time.Minute))

	// Until the new one is used its answer may have been lost.
	y.advance(time.Hour)
	y.must(first.heartbeat())
	y.must(second.heartbeat())
	y.must(first.heartbeat()) // on its way
	y.advance(6 * time.Minute)
	y.must(second.heartbeat())

	wantFault(t, first.heartbeat(), fault.Denied, "certificate_replaced")

	if n, err := y.admin().Node(t.Context(), "n1"); err != nil || n.Problem != nil {
		t.Errorf("the agent's own old certificate makes an alarm: %+v, %v", n.Problem, err)
	}

	// Another process with the old one has it from somewhere else.
	thief := first.copied(beta("p2"))
	wantFault(t, thief.heartbeat(), fault.Denied, "certificate_replaced")

	n, err := y.admin().Node(t.Context(), "n1")
	if err != nil || n.Problem == nil || n.Problem.Cause != fleet.CauseIdentity {
		t.Fatalf("nobody is told that somebody else has the key: %+v, %v", n.Problem, err)
	}

	if alarms := y.events("node.identity_alarm"); len(alarms) != 1 || alarms[0].Address != "127.0.0.1" {
		t.Errorf("the alarms are %+v", alarms)
	}

	if _, err := y.admin().AcceptNode(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}

	// It goes on trying, which is worth nothing: one alarm is enough.
	wantFault(t, thief.heartbeat(), fault.Denied, "certificate_replaced")

	if n, err := y.admin().Node(t.Context(), "n1"); err != nil || n.Problem != nil {
		t.Errorf("accepted it has the problem %+v, %v", n.Problem, err)
	}

	renewals := y.events("node.renewed")
	if len(renewals) != 1 || renewals[0].From == renewals[0].To || renewals[0].Address != "127.0.0.1" {
		t.Errorf("the renewals on record are %+v", renewals)
	}
}

func TestACertificateIsNotRenewedForAKeyThatItsOwnDidNotSign(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")
	other, err := auth.NewNodeIdentity(y.ca.PEM())
	y.must(err)
	csr, err := other.CSR("n1")
	y.must(err)
	_, err = n.Renew(t.Context(), api.RenewRequest{CSR: string(csr)})
	wantFault(t, err, fault.Denied, "renewal_not_signed")

	proof, err := other.Prove(csr) // with the new key
	y.must(err)
	_, err = n.Renew(t.Context(), api.RenewRequest{CSR: string(csr), Proof: proof})
	wantFault(t, err, fault.Denied, "renewal_not_signed")

	if list := y.events("node.renewed"); len(list) != 0 {
		t.Errorf("on record: %+v", list)
	}
}

func TestReportsWhoseNumbersDoNotIncreaseAreNoticed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1").process(alpha("p1", time.Minute))
	thief := n.copied(alpha("p1", time.Minute)) // who has read all that the agent says of itself

	for i := range uint64(10) {
		for _, each := range []struct {
			*node
			number uint64
		}{{n, 100 + i}, {thief, 1 + i}} {
			_, err := each.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "p1", Seq: each.number})
			y.must(err)
		}
	}

	if alarms := y.events("node.identity_alarm"); len(alarms) != 1 || !strings.Contains(alarms[0].Reason,
		"two processes") {
		t.Errorf("the alarms are %+v", alarms)
	}
}

// Agents of earlier versions do not say who they are, but which start of them reports.
func TestAStartThatReportsAgainAfterALaterOneIsNoticed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")

	for i := range uint64(10) {
		for _, boot := range []string{"b1", "b2"} {
			_, err := n.Report(t.Context(), api.Report{Capability: 6, Boot: boot, Seq: 1 + i})
			y.must(err)
		}

		if alarms := len(y.events("node.identity_alarm")); i < 4 && alarms != 0 {
			t.Fatalf("%d alarms after a report that may have been late", alarms)
		}
	}

	if alarms := y.events("node.identity_alarm"); len(alarms) != 1 {
		t.Errorf("the alarms are %+v", alarms)
	}
}

func TestTextsOfAnInventoryAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")

	for name, change := range map[string]func(*fleet.Inventory){
		"long":    func(inv *fleet.Inventory) { inv.Kernel = strings.Repeat("x", 300) },
		"escapes": func(inv *fleet.Inventory) { inv.Version = "\x1b[2J" },
		"a GPU":   func(inv *fleet.Inventory) { inv.GPUs = []fleet.GPU{{Model: strings.Repeat("x", 300)}} },
	} {
		inv := someInventory()
		change(&inv)

		_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
		if err == nil {
			t.Errorf("%s: it is taken", name)
			continue
		}

		wantFault(t, err, fault.Invalid, "bad_inventory")
	}
}

// A node that goes on saying that a run is alive could never be removed.
func TestANodeIsRemovedByForceAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, root, n := y.researcher("ada"), y.admin(), y.join("n1")
	n.listen()
	j, run := n.started(c)

	wantFault(t, root.RemoveNode(t.Context(), "n1", false), fault.Conflict, "node_busy")
	y.must(root.RemoveNode(t.Context(), "n1", true))

	_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b",
		Ranks: []api.RankReport{{Run: run, State: "running"}}})
	wantFault(t, err, fault.Denied, "node_removed")

	// Its agent may still run the job until its contact lease has expired.
	other := y.join("n2")
	other.listen()

	d, err := c.Job(t.Context(), j)
	y.must(err)

	if d.State != "recovering" && d.State != "pending" || d.Why == nil || d.Why.NotBefore == nil && d.Why.Start == nil {
		t.Fatalf("the job is %s (%s), why %+v", d.State, d.Reason, d.Why)
	}

	for _, e := range y.events("node.removed") {
		if e.Actor != "root" || e.Token == "" || e.Address != "127.0.0.1" {
			t.Errorf("on record: %+v", e)
		}
	}

	for range 12 {
		y.advance(30 * time.Second)
		y.must(other.heartbeat())
	}

	other.awaitRun(j, 2)
}

func TestCallsThatAreRefusedAreOnRecord(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.submit(y.researcher("ada"), "run: a")

	bob := y.token("bob", "researcher", "submit")
	y.raw(y.http, http.MethodGet, "/api/v1/users", bob, "")
	y.raw(y.http, http.MethodGet, "/api/v1/jobs/j1", bob, "")
	y.raw(y.http, http.MethodGet, "/api/v1/jobs", "wrong", "")

	want := map[string]string{"not_allowed": "bob", "job_not_found": "bob", "token_malformed": "unknown"}

	for len(y.events("access.refused")) < len(want) {
		y.advance(time.Second)
		time.Sleep(5 * time.Millisecond)
	}

	for _, e := range y.events("access.refused") {
		for code, actor := range want {
			if strings.Contains(e.Reason, code) && e.Actor == actor && e.Count == 1 && e.Address == "127.0.0.1" {
				delete(want, code)
			}
		}
	}

	if len(want) > 0 {
		t.Errorf("not on record: %v of %+v", want, y.events("access.refused"))
	}
}
