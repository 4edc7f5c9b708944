package nodes_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/nodes"
)

// process is an agent on machine m1, in its first boot, in one data directory.
func process(name string, started time.Duration) fleet.Agent {
	return fleet.Agent{Process: name, Machine: "m1", Boot: "b1", Folder: "801:2", Started: started, Host: "alpha"}
}

// on changes where an agent runs.
func on(a fleet.Agent, machine, boot, folder, host string) fleet.Agent {
	a.Machine, a.Boot, a.Folder, a.Host = machine, boot, folder, host
	return a
}

func TestWhichAgentSpeaksForANode(t *testing.T) {
	t.Parallel()
	first := process("p1", time.Minute)
	patience := contact.Patience{SuspectAfter: 30 * time.Second, LostAfter: 5 * time.Minute}

	for _, c := range []struct {
		name   string
		known  fleet.Agent
		agent  fleet.Agent
		silent time.Duration
		want   nodes.Admission
	}{
		{"the first of all", fleet.Agent{}, first, 0, nodes.AgentFirst},
		{"the same process", first, first, time.Hour, nodes.AgentKnown},
		{"restarted at once", first, process("p2", 2*time.Minute), 0, nodes.AgentRestarted},
		{"restarted after it was lost", first, process("p2", 2*time.Minute), time.Hour, nodes.AgentRestarted},
		{"the process before", process("p2", 2*time.Minute), first, 0, nodes.AgentReplaced},
		{"started at the same time", first, process("p2", time.Minute), 0, nodes.AgentReplaced},
		{"rebooted", first, on(process("p2", time.Second), "m1", "b2", "802:2", "alpha"), 30 * time.Second,
			nodes.AgentRebooted},
		{"rebooted, heard lately", first, on(process("p2", time.Second), "m1", "b2", "801:2", "alpha"),
			29 * time.Second, nodes.AgentWaits},
		{"another directory", first, on(process("p2", time.Hour), "m1", "b1", "801:3", "alpha"), 299 * time.Second,
			nodes.AgentCopied},
		{"another machine", first, on(process("p2", time.Hour), "m2", "b2", "801:2", "beta"), 299 * time.Second,
			nodes.AgentCopied},
		{"another machine, one boot ID", first, on(process("p2", time.Hour), "m2", "b1", "801:2", "beta"), 0,
			nodes.AgentCopied},
		{"moved", first, on(process("p2", time.Hour), "m2", "b2", "801:2", "beta"), 300 * time.Second, nodes.AgentMoved},
		{"no machine ID, another directory", on(first, "", "b1", "801:2", ""), on(process("p2", time.Hour), "", "b1",
			"801:3", ""), 0, nodes.AgentCopied},
		{"no machine ID, restarted", on(first, "", "b1", "801:2", ""), on(process("p2", time.Hour), "", "b1", "801:2",
			""), 0, nodes.AgentRestarted},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			if got := nodes.Admit(&c.known, &c.agent, c.silent, patience); got != c.want {
				t.Errorf("admission %d, want %d", got, c.want)
			}
		})
	}
}

// speaks lets an agent report if it is admitted, and returns the code of its refusal.
func (y *yard) speaks(n *nodes.Node, a fleet.Agent) string {
	err := y.AdmitAgent(y.now, n, &a, "10.0.0.9")
	if err == nil {
		y.Report(y.now, n, nil, nil)
		return ""
	}

	var f *fault.Error
	if !errors.As(err, &f) {
		return err.Error()
	}

	return f.Code
}

// reasons lists the events of a kind since the last call.
func (y *yard) reasons(kind string) []string {
	var b batch.Batch
	y.feed.Take(&b)

	var list []string
	for _, e := range b.Events {
		if e.Kind == kind {
			list = append(list, e.Reason+" (from "+e.Address+")")
		}
	}

	return list
}

func TestACopyIsRefusedAndNothingOfItCounts(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	first, other := process("p1", time.Minute), on(process("p2", time.Hour), "m2", "b2", "801:9", "beta")

	for range 10 {
		y.pass(5 * time.Second)

		if code := y.speaks(n, first); code != "" {
			t.Fatalf("the first is refused: %s", code)
		}

		other.Process += "x" // it is started again and again
		if code := y.speaks(n, other); code != "agent_copied" {
			t.Fatalf("the copy is answered with %q", code)
		}
	}

	reasons := y.reasons("node.copy_refused")
	if len(reasons) != 1 || !strings.Contains(reasons[0], "alpha") || !strings.Contains(reasons[0], "beta") ||
		!strings.Contains(reasons[0], "(from 10.0.0.9)") {
		t.Errorf("events %q, want one that names both hosts and the address", reasons)
	}

	// Only the copy is heard from now on: to the yard the node is silent.
	for range 59 {
		y.pass(5 * time.Second)

		if code := y.speaks(n, other); code != "agent_copied" {
			t.Fatalf("the copy is answered with %q after %s", code, y.now.Sub(n.Seen))
		}
	}

	y.pass(5 * time.Second)

	if n.State != fleet.Lost {
		t.Fatalf("a node of which only a copy reports is %s, want lost", n.State)
	}

	if code := y.speaks(n, other); code != "" || n.State != fleet.Ready {
		t.Errorf("where it was moved to it is refused (%q) and %s", code, n.State)
	}

	if moved := y.reasons("node.moved"); len(moved) != 1 || !strings.Contains(moved[0], "beta") {
		t.Errorf("events %q, want one that says where it is now", moved)
	}

	if code := y.speaks(n, first); code != "agent_copied" {
		t.Errorf("the first, which is back, is answered with %q", code)
	}
}

func TestARebootedMachineIsAdmittedAndACloneIsNot(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	first, rebooted := process("p1", time.Minute), on(process("p2", time.Second), "m1", "b2", "801:2", "alpha")

	if code := y.speaks(n, first); code != "" {
		t.Fatal(code)
	}

	y.pass(10 * time.Second)

	if code := y.speaks(n, rebooted); code != "agent_waits" {
		t.Errorf("10 s after the earlier boot it is answered with %q", code)
	}

	y.pass(20 * time.Second)

	if code := y.speaks(n, rebooted); code != "" {
		t.Errorf("30 s after the earlier boot it is answered with %q", code)
	}

	// A clone with the same machine ID, while the machine is in contact.
	clone := on(process("p3", time.Hour), "m1", "b3", "801:2", "alpha")
	code := ""
	for range 7 {
		code = y.speaks(n, clone)
		y.pass(5 * time.Second)

		if refused := y.speaks(n, rebooted); refused != "" {
			t.Fatalf("the machine itself is refused: %s", refused)
		}
	}

	if code != "agent_copied" || len(y.reasons("node.copy_refused")) != 1 {
		t.Errorf("after 30 s a clone is answered with %q, or no event says so", code)
	}
}

func TestTheAdmittedAgentIsKnownAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	first, other := process("p1", time.Minute), on(process("p2", time.Hour), "m2", "b2", "801:2", "beta")

	if code := y.speaks(n, first); code != "" {
		t.Fatal(code)
	}

	var b batch.Batch
	y.Take(&b)

	if len(b.Agents) != 1 || b.Agents[0].Node != "a" || b.Agents[0].Process != "p1" || !b.Agents[0].Since.Equal(y.now) {
		t.Fatalf("to be stored: %+v", b.Agents)
	}

	later := newYard()
	later.Load(later.now, b.Nodes[0])
	later.LoadAgent(b.Agents[0])
	n, _ = later.Get("a")

	if code := later.speaks(n, other); code != "agent_copied" {
		t.Errorf("a copy is answered with %q", code)
	}
	if code := later.speaks(n, first); code != "" {
		t.Errorf("the first is answered with %q", code)
	}

	later.Take(&b)

	if len(b.Agents) != 0 {
		t.Errorf("stored again: %+v", b.Agents)
	}
}
