package nodes_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster/nodes"
)

// open reports whether jobs may be placed on a node.
func (y *yard) open(n *nodes.Node) bool {
	room, _ := y.Rooms.Get(n.ID)

	return room.Open
}

func TestHardwareThatANodeDidNotHaveWaitsForAnAdmin(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 2)

	less, more, measured := inventory(1), inventory(8), inventory(2)
	measured.GPUs[0].Measured, measured.Draw = 120, []float64{50, 400}
	measured.Memory += 1 << 30 // another kernel

	for _, inv := range []fleet.Inventory{less, inventory(2), measured} {
		y.Report(y.now, n, nil, &inv)

		if !y.open(n) {
			t.Fatalf("a node that has no more than before takes no jobs: %+v", n.Inventory.Problem)
		}
	}

	y.Report(y.now, n, nil, &more)

	if p := n.Inventory.Problem; y.open(n) || p == nil || p.Cause != fleet.CauseGrowth ||
		!strings.Contains(p.Reason, "2 -> 8 GPUs A100 40GB") || !strings.Contains(p.Reason, "trainyard nodes accept") {
		t.Fatalf("with more GPUs it is open %v, problem %+v", y.open(n), p)
	}

	if err := y.Accept(y.now, n, "root"); err != nil || !y.open(n) {
		t.Fatalf("accepted it is open %v: %v", y.open(n), err)
	}

	y.Report(y.now, n, nil, &more)

	if !y.open(n) {
		t.Errorf("what was accepted is a problem again: %+v", n.Inventory.Problem)
	}

	if err := y.Accept(y.now, n, "root"); err == nil {
		t.Error("accepted, and nothing waited for that")
	}
}

func TestHardwareOfANodeIsKnownAfterARestart(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.Load(y.now, fleet.Node{ID: "a", State: fleet.Ready, Inventory: inventory(1)})
	n, _ := y.Get("a")
	more := inventory(2)
	y.Report(y.now, n, nil, &more)

	if y.open(n) {
		t.Error("a node that joined before hardware had to be accepted may declare more")
	}
}

// A problem of its own is not forgotten while the node waits.
func TestANodeThatIsAcceptedStillHasItsOwnProblem(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	full := inventory(2)
	full.Problem = &fleet.Problem{Cause: "no_space", Reason: "the disk is full"}
	y.Report(y.now, n, nil, &full)

	if n.Inventory.Problem.Cause != fleet.CauseGrowth {
		t.Fatalf("it has the problem %+v", n.Inventory.Problem)
	}

	if err := y.Accept(y.now, n, "root"); err != nil || n.Inventory.Problem == nil ||
		n.Inventory.Problem.Cause != "no_space" {
		t.Errorf("accepted it has the problem %+v: %v", n.Inventory.Problem, err)
	}
}

// Whoever has the key of a node can say that it is a later start in the same place. The agent that was there is not
// gone, as it would be if that were true.
func TestTwoProcessesInOnePlaceAreNoticed(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	first, thief := process("p1", time.Minute), process("p2", time.Hour)

	for _, a := range []fleet.Agent{first, thief} {
		if code := y.speaks(n, a); code != "" {
			t.Fatalf("%s is refused: %s", a.Process, code)
		}
	}

	// A report that was on its way is no sign of anything.
	y.pass(time.Second)

	if code := y.speaks(n, first); code != "agent_replaced" || !y.open(n) {
		t.Fatalf("answered with %q, the node is open %v", code, y.open(n))
	}

	y.pass(10 * time.Second)

	if code := y.speaks(n, first); code != "agent_replaced" || y.open(n) {
		t.Fatalf("answered with %q, the node is open %v", code, y.open(n))
	}

	if reasons := y.reasons("node.identity_alarm"); len(reasons) != 1 || !strings.Contains(reasons[0], "two processes") {
		t.Errorf("events %q", reasons)
	}

	same := inventory(1)
	y.Report(y.now, n, nil, &same)

	if y.open(n) {
		t.Error("a report ends the alarm")
	}

	if err := y.Accept(y.now, n, "root"); err != nil || !y.open(n) {
		t.Errorf("accepted it is open %v: %v", y.open(n), err)
	}
}

func TestAnAgentThatDoesNotSayWhoItIsDoesNotSpeakForANodeWhoseAgentDoes(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	if err := y.AdmitAgent(y.now, n, nil, ""); err != nil {
		t.Fatalf("the agent of an earlier version is refused: %v", err)
	}

	if code := y.speaks(n, process("p1", time.Minute)); code != "" {
		t.Fatal(code)
	}

	if err := y.AdmitAgent(y.now, n, nil, ""); err == nil {
		t.Error("whoever leaves out who it is speaks for the node")
	}

	y.pass(5 * time.Minute)

	if err := y.AdmitAgent(y.now, n, nil, ""); err != nil {
		t.Errorf("an agent of an earlier version may not take over a lost node: %v", err)
	}
}

func TestTheFirstUseOfANewCertificateEndsTheOldOnes(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	old := fleet.Certificate{Fingerprint: "f1", Key: "k1", Issued: y.now}
	next := fleet.Certificate{Fingerprint: "f2", Key: "k2", Issued: y.now.Add(time.Hour)}
	y.Show(y.now, n, &old)
	y.Renewed(y.now, n, &old, &next)

	if n.Key != "k1" || y.ByKey("k1") != n || y.ByKey("k2") != n {
		t.Error("before it is used the node must be known by both keys: the answer may be lost")
	}

	y.pass(time.Hour)
	y.Show(y.now, n, &next)
	y.Show(y.now, n, &old) // a request that was on its way

	if n.Key != "k2" || y.ByKey("k1") != nil || !n.Identity.Issued.Equal(next.Issued) ||
		!n.Identity.Overlap.Equal(y.now.Add(5*time.Minute)) {
		t.Errorf("the identity is %+v, key %s", n.Identity, n.Key)
	}
}

func TestANodeThatDeclaresSomethingElseAgainAndAgainIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)

	declare := func(draw float64) error {
		inv := inventory(1)
		inv.Draw = []float64{draw}
		if err := y.CheckPace(y.now, n); err != nil {
			return err
		}

		y.Report(y.now, n, nil, &inv)

		return nil
	}

	for i := range 1000 { // the same again costs nothing
		if err := declare(1); err != nil {
			t.Fatalf("report %d: %v", i, err)
		}
	}

	y.pass(time.Minute)

	allowed := 0
	for declare(float64(10+allowed)) == nil && allowed < 1000 {
		allowed++
	}

	if allowed != 60 {
		t.Errorf("%d changes at once are taken", allowed)
	}

	y.pass(2 * time.Second)

	if declare(1) != nil || declare(2) != nil || declare(3) == nil {
		t.Error("after two seconds two more changes must be taken")
	}
}

// GPUs that are broken, or were, are nothing that the node did not have.
func TestWhatIsNoGrowthOfANode(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 2)

	broken, gone, less := inventory(2), inventory(1), inventory(2)
	broken.GPUs[1] = fleet.GPU{Index: 1, Error: "the driver says nothing of it"}
	less.GPUs[0].Memory, less.GPUs[1].Memory = less.GPUs[0].Memory-1<<20, less.GPUs[1].Memory-1<<20
	less.Memory += less.Memory / 50

	for i, inv := range []fleet.Inventory{broken, inventory(2), gone, inventory(2), less, inventory(2)} {
		y.Report(y.now, n, nil, &inv)

		if !y.open(n) {
			t.Errorf("inventory %d is a problem: %+v", i, n.Inventory.Problem)
		}
	}

	larger := inventory(2)
	larger.GPUs[0].Memory *= 2
	y.Report(y.now, n, nil, &larger)

	if y.open(n) {
		t.Error("a GPU with twice the memory is none")
	}
}
