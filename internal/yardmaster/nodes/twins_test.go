package nodes_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/nodes"
)

// machine is the inventory of a machine with these GPUs.
func machine(uuids ...string) fleet.Inventory {
	inv := inventory(len(uuids))
	for i := range inv.GPUs {
		inv.GPUs[i].UUID = uuids[i]
	}

	return inv
}

// joinAs adds a machine as a node, a second after the one before.
func (y *yard) joinAs(name id.Node, inv fleet.Inventory) *nodes.Node {
	y.now = y.now.Add(time.Second)

	return y.Join(y.now, fleet.Node{ID: name, Class: fleet.Local, Inventory: inv})
}

// lose makes a node lost.
func (y *yard) lose(n *nodes.Node) { y.Move(y.now, n, fleet.EventGone, batch.Yard, "it is gone") }

// opens compares which nodes take jobs.
func (y *yard) opens(t *testing.T, when string, want map[*nodes.Node]bool) {
	t.Helper()

	for n, open := range want {
		if y.open(n) != open {
			t.Errorf("%s, %s takes jobs: %t; its problem is %+v", when, n.ID, !open, n.Inventory.Problem)
		}
	}
}

func TestGPUsOfAMachineThatJoinedTwiceAreGivenOutOnce(t *testing.T) {
	t.Parallel()
	y := newYard()
	first := y.joinAs("a", machine("GPU-1", "GPU-2"))
	second := y.joinAs("b", machine("GPU-2", "GPU-3"))
	other := y.joinAs("c", machine("GPU-4"))

	y.opens(t, "at first", map[*nodes.Node]bool{first: true, second: false, other: true})

	if p := second.Inventory.Problem; p == nil || p.Cause != fleet.CauseTwin || !strings.Contains(p.Reason, "GPU-2") ||
		!strings.Contains(p.Reason, "node a") || !strings.Contains(p.Reason, "trainyard nodes remove") {
		t.Errorf("the problem is %+v", p)
	}

	if err := y.Accept(y.now, second, "root"); err == nil {
		t.Error("an admin has accepted that GPUs are given out twice")
	}

	// What it reports itself does not matter meanwhile, and is not forgotten.
	full := machine("GPU-2", "GPU-3")
	full.Problem = &fleet.Problem{Cause: "no_space", Reason: "the disk is full"}
	y.Report(y.now, second, nil, &full)
	y.opens(t, "after a report", map[*nodes.Node]bool{first: true, second: false})

	// The first one is gone, so the machine is the second one now.
	y.lose(first)

	if p := second.Inventory.Problem; p == nil || p.Cause != "no_space" {
		t.Errorf("its own problem is %+v", p)
	}

	empty := machine("GPU-2", "GPU-3")
	y.Report(y.now, second, nil, &empty)
	y.opens(t, "after the loss of the first", map[*nodes.Node]bool{first: false, second: true})

	// The first one is back while the second one has a job: it waits for that.
	second.Enter("j1.1", 0)
	y.Report(y.now, first, nil, nil)
	y.opens(t, "when the first is back", map[*nodes.Node]bool{first: false, second: false})

	second.Leave("j1.1", 0)
	y.CheckTwins(y.now, second, false)
	y.opens(t, "after the job", map[*nodes.Node]bool{first: true, second: false})

	y.Move(y.now, first, fleet.EventRemove, "root", "removed")
	y.opens(t, "without the first", map[*nodes.Node]bool{second: true})
}

// A node cannot close others by saying that it has their GPUs.
func TestANodeThatClaimsTheGPUsOfAnotherClosesOnlyItself(t *testing.T) {
	t.Parallel()
	y := newYard()
	victim := y.joinAs("a", machine("GPU-1"))
	rogue := y.joinAs("b", machine("GPU-2"))
	rogue.Enter("j1.1", 0)

	claim := machine("GPU-1")
	y.Report(y.now, rogue, nil, &claim)
	y.opens(t, "with the claim", map[*nodes.Node]bool{victim: true, rogue: false})

	honest := machine("GPU-2")
	y.Report(y.now, rogue, nil, &honest)
	y.opens(t, "without it", map[*nodes.Node]bool{victim: true, rogue: true})
}

// Nodes that an earlier version let join are found when they report.
func TestTwinsOfAnEarlierVersionAreFound(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.Load(y.now, fleet.Node{ID: "a", State: fleet.Ready, Joined: start, Inventory: machine("GPU-1")})
	y.Load(y.now, fleet.Node{ID: "b", State: fleet.Ready, Joined: start.Add(time.Hour), Inventory: machine("GPU-1")})
	first, _ := y.Get("a")
	second, _ := y.Get("b")
	y.Report(y.now, first, nil, nil)
	y.opens(t, "after a report", map[*nodes.Node]bool{first: true, second: false})
}

// GPUs that are declared have no identity.
func TestDeclaredGPUsAreNoTwins(t *testing.T) {
	t.Parallel()
	y := newYard()
	inv := machine("FAKE-0")
	inv.GPUs[0].Fake = true
	first, second := y.joinAs("a", inv), y.joinAs("b", inv)
	y.opens(t, "with declared GPUs", map[*nodes.Node]bool{first: true, second: true})
}

// admits lets an agent on a machine speak for a node.
func (y *yard) admits(t *testing.T, n *nodes.Node, machine, boot, path string) *fleet.Agent {
	t.Helper()
	a := &fleet.Agent{Process: "p-" + string(n.ID), Machine: machine, Boot: boot, Path: path, Host: "h"}

	if err := y.AdmitAgent(y.now, n, a, ""); err != nil {
		t.Fatal(err)
	}

	return a
}

func TestAMachineThatIsKnownIsNamedWhenItJoins(t *testing.T) {
	t.Parallel()
	y := newYard()
	old := y.joinAs("old-name", fleet.Inventory{CPUs: 1000})
	y.admits(t, old, "m1", "b1", "/var/lib/trainyard/agent")

	again := &fleet.Agent{Process: "p2", Machine: "m1", Boot: "b2", Host: "new-name"}
	n := y.joinAs("new-name", fleet.Inventory{CPUs: 1000})

	if got := y.Known(n, again); !strings.Contains(got, "is also node old-name") {
		t.Errorf("while the node is in contact it says %q", got)
	}

	y.lose(old)

	if got := y.Known(n, again); !strings.Contains(got, "was node old-name before") ||
		!strings.Contains(got, "data directory /var/lib/trainyard/agent") || !strings.Contains(got, "nodes remove old-name") {
		t.Errorf("when the node is lost it says %q", got)
	}

	y.Move(y.now, old, fleet.EventRemove, "root", "removed")

	for what, a := range map[string]*fleet.Agent{
		"of a removed node": again, "of nobody": nil, "without a mark": {Process: "p3"},
	} {
		if got := y.Known(n, a); got != "" {
			t.Errorf("of a machine %s it says %q", what, got)
		}
	}
}

func TestTwoNodesOfOneMachineAreWarnedAbout(t *testing.T) {
	t.Parallel()
	y := newYard()
	first, second := y.joinAs("a", fleet.Inventory{CPUs: 1000}), y.joinAs("b", fleet.Inventory{CPUs: 1000})
	y.admits(t, first, "m1", "b1", "/a")
	y.admits(t, second, "m1", "b1", "/b")

	if list := y.Warnings(first); len(list) != 1 || list[0].Cause != nodes.CauseSameMachine ||
		!strings.Contains(list[0].Reason, "node b is on the same machine") {
		t.Errorf("the warnings are %+v", list)
	}

	y.lose(second)

	if list := y.Warnings(first); len(list) != 0 {
		t.Errorf("without the other the warnings are %+v", list)
	}
}

// A machine whose name has changed is the same node: what identifies it is its certificate, and its data directory.
func TestARenamedMachineIsTheSameNode(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.joinAs("gpu-1", fleet.Inventory{CPUs: 1000})
	a := y.admits(t, n, "m1", "b1", "/a")

	renamed := *a
	renamed.Process, renamed.Host, renamed.Started = "p2", "gpu-9", a.Started+time.Minute

	if err := y.AdmitAgent(y.now, n, &renamed, ""); err != nil || n.Agent.Host != "gpu-9" || n.ID != "gpu-1" {
		t.Errorf("the node is %s on host %s: %v", n.ID, n.Agent.Host, err)
	}
}
