package server

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster/nodes"
)

// joinAs joins a machine, whose agent says where it is, with this inventory.
func (y *yard) joinAs(name string, at fleet.Agent, inv fleet.Inventory) (*node, api.JoinReply) {
	y.t.Helper()
	identity, err := auth.NewNodeIdentity(y.ca.PEM())
	y.must(err)
	csr, err := identity.CSR(name)
	y.must(err)

	reply, err := y.client("").As(&at).Join(y.t.Context(), api.JoinRequest{
		Capability: api.Capability, Token: y.joinToken(1), Name: name, CSR: string(csr), Inventory: inv,
	})
	y.must(err)
	y.must(identity.Install([]byte(reply.Certificate)))

	n := &node{y: y, name: reply.Node, identity: identity, changed: make(chan struct{})}
	n.Client = api.NewClient(y.url, "", identity.TLS()).As(&at)
	y.t.Cleanup(n.Close)
	y.must(n.heartbeat())

	return n, reply
}

func TestTheServerSaysItsTimeAndWarnsOfClocksThatDiffer(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")

	before := y.clock.Now()
	reply, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Seq: 1})
	y.must(err)

	if reply.Time.Before(before) || reply.Time.After(y.clock.Now()) {
		t.Errorf("the answer has the time %s, the server had %s", reply.Time, before)
	}

	report := func(seq uint64, ahead int64) api.Node {
		_, err := n.Report(t.Context(), api.Report{
			Capability: api.Capability, Boot: "b", Seq: seq, Clock: &fleet.ClockOffset{Ahead: ahead, Within: 5},
		})
		y.must(err)

		got, err := y.admin().Node(t.Context(), "n1")
		y.must(err)

		return got
	}

	if got := report(2, 65000); len(got.Warnings) != 1 || got.Warnings[0].Cause != nodes.CauseSkew ||
		!strings.Contains(got.Warnings[0].Reason, "1m5s ahead") || got.State != "idle" || got.Problem != nil {
		t.Errorf("the node is %s with the warnings %+v", got.State, got.Warnings)
	}

	if got := report(3, 3); len(got.Warnings) != 0 {
		t.Errorf("with a clock that is right the warnings are %+v", got.Warnings)
	}

	if got := len(y.eventsOf("node.clock_skew")) + len(y.eventsOf("node.clock_right")); got != 2 {
		t.Errorf("there are %d events", got)
	}
}

func TestAMachineThatJoinsAgainGetsANotice(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	inv := someInventory()
	inv.GPUs = []fleet.GPU{{Index: 0, UUID: "GPU-1", Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}

	first := alpha("p1", time.Minute)
	first.Path = "/var/lib/trainyard/agent"
	_, reply := y.joinAs("gpu-1", first, inv)

	if reply.Notice != "" {
		t.Errorf("a machine that is new gets the notice %q", reply.Notice)
	}

	second := alpha("p2", time.Hour)
	second.Folder, second.Host = "801:99", "renamed"
	_, reply = y.joinAs("renamed", second, inv)

	if !strings.Contains(reply.Notice, "also node gpu-1, whose agent works in /var/lib/trainyard/agent") {
		t.Errorf("the notice is %q", reply.Notice)
	}

	n, err := y.admin().Node(t.Context(), "renamed")
	y.must(err)

	if n.State != "error" || n.Problem == nil || n.Problem.Cause != fleet.CauseTwin {
		t.Errorf("the second node of the machine is %s: %+v", n.State, n.Problem)
	}

	// A job that needs a GPU gets that of the first node, and the next one waits and says why.
	c := y.researcher("ada")
	for range 2 {
		_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: train\nresources: {gpus: 1}\n"}, "")
		y.must(err)
	}

	eventually(t, "a job is placed", func() bool {
		page, err := c.Jobs(t.Context(), api.JobFilter{})
		y.must(err)

		placed := 0
		for _, j := range page.Jobs {
			placed += len(j.Nodes)
			if len(j.Nodes) > 0 && j.Nodes[0] != "gpu-1" {
				t.Fatalf("job %s is on %s", j.ID, j.Nodes[0])
			}
		}

		return placed == 1
	})
}
