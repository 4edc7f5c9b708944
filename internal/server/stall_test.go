package server

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// report sends an empty report.
func (n *node) report() error {
	_, err := n.Report(n.y.t.Context(), api.Report{Capability: api.Capability, Boot: "b"})
	return err
}

// nodeState returns what the yard takes a node for.
func (y *yard) nodeState(name id.Node) fleet.State {
	y.t.Helper()
	var state fleet.State
	y.must(y.loop.Query(y.t.Context(), func(core *yardmaster.Yard) {
		info, err := core.NodeByName(name)
		if err == nil {
			state = info.State
		}
	}))

	return state
}

// A commit that hangs is said within two seconds, and whoever reports meanwhile is counted as alive.
func TestAHangingCommitIsSaidAndAgentsAreHeard(t *testing.T) {
	t.Parallel()
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.SuspectAfter, c.LostAfter = time.Hour, 2*time.Hour }))
	c := y.researcher("ada")
	n, silent, other := y.join("north"), y.join("south"), y.join("east")
	y.must(n.report())
	y.must(silent.report())
	awaitReady(t, y)

	// Time passes for the yard, so that it does not take itself for suspended.
	for range 2 {
		y.advance(20 * time.Minute)
		eventually(t, "a tick", func() bool {
			idle := true
			y.must(y.loop.Query(t.Context(), func(core *yardmaster.Yard) { idle = core.Idle(y.clock.Now()) }))

			return !idle
		})
	}

	arrived := y.store.hang()
	submitted := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "k")
		submitted <- err
	}()

	<-arrived

	// This one is sent before anybody knows that the commit hangs.
	early := make(chan error, 1)
	go func() { early <- other.report() }()

	y.clock.advance(stallAfter)
	eventually(t, "it is stuck", func() bool { return y.loop.Stuck() != "" })

	if got := readiness(y); !strings.HasPrefix(got, "503 not ready: stuck") {
		t.Errorf("it says %q", got)
	}

	wantFault(t, <-early, fault.Unavailable, api.CodeHeard)

	y.clock.advance(25 * time.Minute)
	wantFault(t, n.report(), fault.Unavailable, api.CodeHeard)
	y.store.mend()
	y.must(<-submitted)
	awaitReady(t, y)

	eventually(t, "the one that did not report is suspect", func() bool {
		return y.nodeState(silent.name) == fleet.Suspect
	})

	if got := y.nodeState(n.name); got != fleet.Ready {
		t.Errorf("the node that was heard is %s", got)
	}

	y.must(n.report())
}

// A server that may not lead any more says nothing that only a leader may say.
func TestWithoutTheLeadNothingIsGranted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("north")
	n.listen()
	y.must(n.report())
	y.submit(c, "run: a")
	run := n.awaitRun("j1", 1)
	awaitReady(t, y)

	lost := errors.New("the lease was not renewed")
	var leads atomic.Bool
	y.held.set(func() error {
		if leads.Load() {
			return nil
		}

		return fault.New(fault.Unavailable, api.CodeNotLeader, "this server may not lead: %v", lost)
	})

	wantFault(t, n.report(), fault.Unavailable, api.CodeNotLeader)
	_, err := n.UploadLog(t.Context(), run, "", 0, 0, output(t, "o:hello\n"), false)
	wantFault(t, err, fault.Unavailable, api.CodeNotLeader)
	_, err = c.Submit(t.Context(), api.SubmitRequest{File: "run: b"}, "k")
	wantFault(t, err, fault.Unavailable, api.CodeNotLeader)
	_, err = c.Nodes(t.Context(), api.Page{})
	wantFault(t, err, fault.Unavailable, api.CodeNotLeader)

	// A new stream of assignments gets none, and ends.
	y.must(n.Assignments(t.Context(), func(a api.Assignments) error {
		t.Errorf("got assignments %+v", a)
		return nil
	}))

	if got := readiness(y); !strings.HasPrefix(got, "503 not ready: this server may not lead") {
		t.Errorf("it says %q", got)
	}

	// What is stored can still be read.
	if page, err := c.Jobs(t.Context(), api.JobFilter{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("the list has %d jobs, %v", len(page.Jobs), err)
	}

	if detail, err := c.Job(t.Context(), "j1"); err != nil || detail.ID != "j1" {
		t.Errorf("got %+v, %v", detail, err)
	}

	leads.Store(true)
	y.must(n.report())
}

// The lead may be lost while the loop is at work: then the answer is not given, even though it is there.
func TestAnAnswerIsNotGivenWhenTheLeadWasLostMeanwhile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("north")
	y.must(n.report())

	arrived := y.store.hang()
	answered := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "k")
		answered <- err
	}()

	<-arrived
	y.held.set(func() error { return fault.New(fault.Unavailable, api.CodeNotLeader, "frozen") })
	y.store.mend()
	wantFault(t, <-answered, fault.Unavailable, api.CodeLostLead)

	y.held.set(func() error { return nil })

	reply, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "k")
	if err != nil || !reply.Replay {
		t.Errorf("asked again: %+v, %v; want the job that was stored", reply, err)
	}
}
