package yardmaster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// moveTo plans that the first running job moves to two GPUs of a node.
func moveTo(node id.Node) func(v *place.View) place.Plan {
	return func(v *place.View) place.Plan {
		r := v.Running[0]

		return place.Plan{
			Stops: []place.Stop{{Running: r, Reason: "it is faster there"}},
			Starts: []place.Start{
				{Item: r.Item, Allocations: []place.Allocation{{Node: node, GPUs: 3}}, Reason: "it is faster there"},
			},
		}
	}
}

// moving returns a yard whose job j1 runs on a, saves on request, and is to move to b: it was asked to save.
func moving(t *testing.T) (*yard, *script) {
	t.Helper()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.stores("j1.1")
	y.Take()

	b := y.plan(p, moveTo("b"))
	if len(b.Orders) != 1 || b.Orders[0].Save != 1 || b.Orders[0].Stop != job.StopNone || b.Orders[0].Run != "j1.1" {
		t.Fatalf("orders %+v, want that j1.1 is asked to save and continues", b.Orders)
	}

	if v := y.View(y.now); v.Rooms[1].Free != 12 || !v.Running[0].Stopping {
		t.Fatalf("GPUs %b of b are free, j1 is about to stop %v; want 1100 and true", v.Rooms[1].Free, v.Running[0].Stopping)
	}

	return y, p
}

// eventsOf returns the reasons of the events of a kind.
func eventsOf(b *yardmaster.Batch, kind string) []string {
	var list []string
	for i := range b.Events {
		if b.Events[i].Kind == kind {
			list = append(list, b.Events[i].Reason)
		}
	}

	return list
}

func TestAJobIsStoppedForAMoveWhenItsCheckpointIsStored(t *testing.T) {
	t.Parallel()
	y, _ := moving(t)
	y.now = y.now.Add(time.Minute)
	y.runs("a", "j1.1")

	y.stored-- // the answer to the last one was lost, and it is added again
	y.stores("j1.1")

	if b := y.Take(); len(b.Orders) != 0 {
		t.Fatalf("orders %+v before its checkpoint is stored", b.Orders)
	}

	y.stores("j1.1")

	if b := y.Take(); len(b.Orders) != 1 || b.Orders[0].Stop != job.StopTerm || b.Orders[0].Run != "j1.1" {
		t.Fatalf("orders %+v, want the stop of j1.1", b.Orders)
	}

	y.stops("a", "j1.1")

	b := y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Run != "j1.2" || b.Orders[0].Node != "b" {
		t.Fatalf("orders %+v, want j1.2 on b", b.Orders)
	}

	if got, _ := yardmaster.JobOf(y.Yard, "j1"); got.Stops != 1 || got.State != job.Starting {
		t.Errorf("j1 is %s after %d stops, want starting after one", got.State, got.Stops)
	}
}

// TestAMoveIsAbandonedAndTheRunContinues lets everything happen that makes a move impossible before the job was
// stopped for it: the run must not notice.
func TestAMoveIsAbandonedAndTheRunContinues(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(y *yard)
		why     string
	}{
		"when the target dies": {func(y *yard) {
			y.ok(yardmaster.NodeGone{Node: "b", By: "test", Reason: "its provider took it back"})
		}, "node b is lost"},
		"when the target is drained": {func(y *yard) {
			y.ok(yardmaster.Cordon{Node: "b", By: "alice", On: true, Stop: true})
		}, "node b is cordoned"},
		"when the target is silent": {func(y *yard) {
			y.pass(40*time.Second, "a")
		}, "node b is suspect"},
		"when a GPU of the target fails": {func(y *yard) {
			inventory := y.View(y.now).Rooms[1].Node.Inventory
			inventory.GPUs = slices.Clone(inventory.GPUs)
			inventory.GPUs[0].Error = "Xid 79"
			y.ok(yardmaster.NodeReport{Node: "b", Inventory: &inventory})
		}, "its GPUs there are no longer available"},
		"when nothing is saved in time": {func(y *yard) {
			y.pass(10*time.Minute, "a", "b")
		}, "no checkpoint was stored within 10m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, p := moving(t)
			y.Take()
			tc.happens(y)

			b := y.Take()
			for i := range b.Orders {
				if o := &b.Orders[i]; o.Stop != job.StopNone || o.Run != "j1.1" || o.Move != "" {
					t.Errorf("order %+v: the run must continue", o)
				}
			}

			if len(b.Closed) > 0 || yardmaster.PromiseCount(y.Yard) != 0 {
				t.Errorf("closed %v, %d promises; want none", b.Closed, yardmaster.PromiseCount(y.Yard))
			}

			want := "move to b abandoned: " + tc.why + "; it continues on a with 1 GPU"
			if got := eventsOf(b, "run.move_abandoned"); len(got) != 1 || got[0] != want {
				t.Errorf("events %q, want %q", got, want)
			}

			got, _ := yardmaster.JobOf(y.Yard, "j1")
			if v := y.View(y.now); got.State != job.Running || got.Stops != 0 || v.Running[0].Stopping {
				t.Errorf("j1 is %s, stopped %d times, about to stop %v", got.State, got.Stops, v.Running[0].Stopping)
			}

			// Another move of it is carried out, but not as long as its checkpoints cannot be stored.
			stays := strings.HasPrefix(tc.why, "no checkpoint")
			b = y.plan(p, func(v *place.View) place.Plan {
				plan := moveTo("a")(v)
				plan.Starts[0].Allocations[0].GPUs = 12
				return plan
			})

			if asked := slices.ContainsFunc(b.Orders, func(o yardmaster.Order) bool { return o.Save == 2 }); asked == stays {
				t.Errorf("it was asked to save for another move: %v, want %v; %+v", asked, !stays, b.Events)
			}

			y.stores("j1.1")

			if v := y.View(y.now); v.Running[0].Stays {
				t.Error("its checkpoint was stored and it still stays")
			}

			if err := yardmaster.CheckInvariants(y.Yard, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAMoveEndsWithItsRun lets the run end, or be stopped for another reason, while it saves.
func TestAMoveEndsWithItsRun(t *testing.T) {
	t.Parallel()

	end := func(cause job.Cause) func(*yard) {
		return func(y *yard) {
			y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{
				{Run: "j1.1", State: job.RunEnded, Cause: cause, Started: start, Ended: y.now},
			}})
		}
	}
	for name, tc := range map[string]struct {
		happens func(y *yard)
		want    job.State
	}{
		"when it succeeds":             {end(job.CauseNone), job.Succeeded},
		"when it fails":                {end(job.CauseUserCode), job.Failed},
		"when its owner has to decide": {end(job.CauseGPUOOM), job.Paused},
		"when its node dies": {func(y *yard) {
			y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "it burned"})
		}, job.Recovering},
		"when it is cancelled": {func(y *yard) {
			y.ok(yardmaster.Cancel{Job: "j1", By: "alice"})
			y.stops("a", "j1.1")
		}, job.Cancelled},
		"when it is paused": {func(y *yard) {
			y.ok(yardmaster.Pause{Job: "j1", By: "alice"})
			y.stops("a", "j1.1")
		}, job.Paused},
		"when its node is drained": {func(y *yard) {
			y.ok(yardmaster.Cordon{Node: "a", By: "alice", On: true, Stop: true})
			y.stops("a", "j1.1")
		}, job.Recovering},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, _ := moving(t)
			tc.happens(y)

			got, _ := yardmaster.JobOf(y.Yard, "j1")
			if got.State != tc.want || yardmaster.PromiseCount(y.Yard) != 0 {
				t.Errorf("j1 is %s, %d promises; want %s and none", got.State, yardmaster.PromiseCount(y.Yard), tc.want)
			}

			if err := yardmaster.CheckInvariants(y.Yard, nil); err != nil {
				t.Error(err)
			}

			b := y.Take()
			if got := eventsOf(b, "run.move_abandoned"); len(got) > 0 {
				t.Errorf("events %q: there is nothing to continue", got)
			}
		})
	}
}

// TestAnAbandonedMoveFreesThoseThatWaitedForIt moves j1 so that j2 gets its GPU: without the move j2 is queued again.
func TestAnAbandonedMoveFreesThoseThatWaitedForIt(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.stores("j1.1")
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan {
		plan := moveTo("b")(v)
		plan.Starts = append(plan.Starts, place.Start{
			Item: v.Queue.Items()[0], Allocations: []place.Allocation{{Node: "a", GPUs: 15}}, Reason: "all of a",
		})

		return plan
	})

	if n := yardmaster.PromiseCount(y.Yard); n != 2 {
		t.Fatalf("%d promises, want those of j1 and j2", n)
	}

	y.ok(yardmaster.NodeGone{Node: "b", By: "test", Reason: "it burned"})

	promises := yardmaster.PromiseCount(y.Yard)
	if v := y.View(y.now); v.Queue.Len() != 1 || v.Rooms[0].Free != 14 || promises != 0 || !y.PlanDue() {
		t.Errorf("%d jobs are queued, GPUs %b of a are free, %d promises, plan due %v; want j2, 1110, none and true",
			v.Queue.Len(), v.Rooms[0].Free, promises, y.PlanDue())
	}
}

// TestARestartAbandonsMovesThatHaveNotStoppedTheirJob restarts the server while a job saves before it moves.
func TestARestartAbandonsMovesThatHaveNotStoppedTheirJob(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	nodes := y.Take().Nodes
	p.plan = func(v *place.View) place.Plan { return startOn(v, "a", 1) }
	y.Round(y.now)
	y.runs("a", "j1.1")
	y.stores("j1.1")
	p.plan = moveTo("b")
	y.Round(y.now)
	b := y.Take()

	again := yardmaster.New(yardmaster.Defaults(p))
	again.Load(y.now, yardmaster.State{
		Users: b.Users, Nodes: nodes, Jobs: b.Jobs, Runs: b.Runs, Orders: b.Orders, LastJob: 1,
	})
	y.Yard = again

	for range 2 { // it is explained once
		y.ok(yardmaster.Tick{})
	}

	b = y.Take()
	want := "move to b abandoned: the server was restarted; it continues on a with 1 GPU"
	if got := eventsOf(b, "run.move_abandoned"); len(got) != 1 || got[0] != want {
		t.Errorf("events %q, want %q", got, want)
	}

	if len(b.Orders) != 1 || b.Orders[0].Stop != job.StopNone || b.Orders[0].Save != 1 || b.Orders[0].Move != "" {
		t.Errorf("orders %+v, want that j1.1 continues", b.Orders)
	}

	if v := y.View(y.now); v.Running[0].Stopping || v.Rooms[1].Free != 15 {
		t.Errorf("it is about to stop %v, GPUs %b of b are free", v.Running[0].Stopping, v.Rooms[1].Free)
	}
}

// TestAGangIsDefragmented moves a small job out of the way of a gang that needs all of two nodes.
func TestAGangIsDefragmented(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.node("c", 4)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "b", 1) })
	y.runs("b", "j1.1")
	y.stores("j1.1")

	gang := elastic()
	gang.Resources.GPUs = job.Range{Min: 4, Max: 4}
	gang.Resources.Nodes = job.Range{Min: 2, Max: 2}
	y.submit("alice", gang)
	y.plan(p, func(v *place.View) place.Plan {
		plan := moveTo("c")(v)
		plan.Starts = append(plan.Starts, place.Start{
			Item:        v.Queue.Items()[0],
			Allocations: []place.Allocation{{Node: "a", GPUs: 15}, {Node: "b", GPUs: 15}},
			Reason:      "two whole nodes",
		})

		return plan
	})

	y.stores("j1.1")

	if b := y.Take(); len(b.Orders) != 1 || b.Orders[0].Stop != job.StopTerm {
		t.Fatalf("orders %+v, want the stop of j1.1 alone", b.Orders)
	}

	y.stops("b", "j1.1")

	var placed []string
	for _, o := range y.Take().Orders {
		placed = append(placed, string(o.Run)+" "+string(o.Node))
	}

	slices.Sort(placed)

	if want := []string{"j1.2 c", "j2.1 a", "j2.1 b"}; !slices.Equal(placed, want) {
		t.Errorf("placed %v, want %v", placed, want)
	}
}

// TestADrainedGangIsRequeued drains one node of a gang: all of it stops, and its owner can read why.
func TestADrainedGangIsRequeued(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	gang := elastic()
	gang.Resources.GPUs = job.Range{Min: 4, Max: 4}
	gang.Resources.Nodes = job.Range{Min: 2, Max: 2}
	y.submit("alice", gang)
	y.plan(p, func(v *place.View) place.Plan {
		plan := startOn(v, "a", 15)
		plan.Starts[0].Allocations = append(plan.Starts[0].Allocations, place.Allocation{Node: "b", GPUs: 15})

		return plan
	})
	y.running("j1", 0, 1)
	y.Take()
	y.ok(yardmaster.Cordon{Node: "b", By: "root", On: true, Stop: true})

	b := y.Take()
	if len(b.Orders) != 2 || b.Orders[0].Stop != job.StopTerm || b.Orders[1].Stop != job.StopTerm {
		t.Fatalf("orders %+v, want that both ranks stop", b.Orders)
	}

	const why = "node b was drained by root"
	if got := eventsOf(b, "run.stopping"); !slices.Equal(got, []string{why}) {
		t.Errorf("events %q, want %q", got, why)
	}

	for rank := range 2 {
		y.ends("j1", rank, yardmaster.RankReport{Signalled: true})
	}

	if got := y.job("j1"); got.State != job.Recovering || got.Reason != why+"; requeued" {
		t.Errorf("j1 is %s: %s", got.State, got.Reason)
	}
}

func TestASaveIsRequested(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })

	if _, err := y.Step(y.now, yardmaster.RequestSave{Job: "j1", By: "alice"}); err == nil ||
		!strings.HasPrefix(err.Error(), "job j1 is starting and cannot save a checkpoint") {
		t.Errorf("before it runs: %v", err)
	}

	y.runs("a", "j1.1")
	y.Take()

	for n := 1; n <= 2; n++ {
		y.ok(yardmaster.RequestSave{Job: "j1", By: "alice"})

		b := y.Take()
		if len(b.Orders) != 1 || b.Orders[0].Save != n || b.Orders[0].Stop != job.StopNone {
			t.Errorf("orders %+v, want request %d", b.Orders, n)
		}

		if got := eventsOf(b, "run.save_requested"); !slices.Equal(got, []string{"asked to save a checkpoint by alice"}) {
			t.Errorf("events %q", got)
		}
	}

	y.ok(yardmaster.Pause{Job: "j1", By: "alice"})

	if _, err := y.Step(y.now, yardmaster.RequestSave{Job: "j1", By: "alice"}); err == nil {
		t.Error("a job that is stopped was asked to save")
	}
}

// rented returns a yard with a local node a and an on-demand node on which j1 runs.
func rented(t *testing.T) (*yard, *script, id.Node) {
	t.Helper()
	p := &script{}
	y := &yard{Yard: yardmaster.New(rentedConfig(p)), t: t, now: start}
	seedYard(y)
	y.ok(yardmaster.PutUser{User: "alice", Role: tenant.Admin, By: "test"})
	y.node("a", 4)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan {
		return place.Plan{Provisions: []place.Provision{
			{Item: v.Queue.Items()[0], Offer: "p/small/north", Count: 1, Reason: "the test wants it"},
		}}
	})

	p.plan = func(*place.View) place.Plan { return place.Plan{} }
	y.joins("l1")

	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "cloud-l1", 1) })
	y.runs("cloud-l1", "j1.1")
	y.Take()

	return y, p, "cloud-l1"
}

// rentedConfig releases on-demand nodes as soon as they are idle.
func rentedConfig(p *script) yardmaster.Config {
	cfg := yardmaster.Defaults(p)
	cfg.Keep.MaxIdle = 0
	cfg.Keep.ReleaseMargin = 0
	cfg.Offers = []fleet.Offer{{
		Name: "p/small/north", Provider: "p", Type: "small", Region: "north", GPU: "NVIDIA A100-SXM4-80GB", GPUs: 4,
		GPUMemory: 80 << 30, CPUs: 64000, Memory: 512 << 30, Hourly: 1e6, Boot: job.Duration(4 * time.Minute),
	}}

	return cfg
}

// TestTheOldNodeIsReleasedWhenTheNewRunRuns moves a job from an on-demand node home.
func TestTheOldNodeIsReleasedWhenTheNewRunRuns(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(y *yard)
		want    string
	}{
		"it runs": {func(y *yard) { y.runs("a", "j1.2") }, "l1 releasing"},
		"it prepares": {func(y *yard) {
			y.prepares("a", "j1.2")
			y.pass(time.Minute, "a", "cloud-l1")
		}, "l1 active"},
		"it was ended": {func(y *yard) { y.ok(yardmaster.Cancel{Job: "j1", By: "alice"}); y.stops("a", "j1.2") }, "l1 releasing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, p, node := rented(t)
			y.plan(p, moveTo("a"))
			y.stops(node, "j1.1")

			if got := y.leases(); got != "l1 active" {
				t.Fatalf("the leases are %q before the new run runs", got)
			}

			b := y.Take()
			at := slices.IndexFunc(b.Orders, func(o yardmaster.Order) bool { return o.Run == "j1.2" })
			if at < 0 || !slices.Equal(b.Orders[at].Keeps, []id.Node{node}) {
				t.Fatalf("orders %+v, want j1.2, for which %s is kept", b.Orders, node)
			}

			p.plan = func(*place.View) place.Plan { return place.Plan{} }
			tc.happens(y)

			if got := y.leases(); got != tc.want {
				t.Errorf("the leases are %q, want %q", got, tc.want)
			}
		})
	}
}

// TestTheOldNodeIsKeptOverARestart restarts the server while the new run prepares.
func TestTheOldNodeIsKeptOverARestart(t *testing.T) {
	t.Parallel()
	y, p, node := rented(t)
	y.plan(p, moveTo("a"))
	y.stops(node, "j1.1")

	b := y.Take()
	state := yardmaster.State{
		Jobs: b.Jobs, Orders: y.Orders(), Leases: []fleet.Lease{*y.Lease("l1")}, LastJob: 1, LastLease: 1,
		Users: []tenant.User{{ID: "alice", Role: tenant.Admin}},
		Runs:  slices.DeleteFunc(b.Runs, func(r job.Run) bool { return r.ID != "j1.2" }),
	}

	for _, room := range y.View(y.now).Rooms {
		state.Nodes = append(state.Nodes, *room.Node)
	}

	y.Yard = yardmaster.New(rentedConfig(p))
	y.Load(y.now, state)

	if got := y.leases(); got != "l1 active" {
		t.Fatalf("after the restart the leases are %q", got)
	}

	p.plan = func(*place.View) place.Plan { return place.Plan{} }
	y.pass(time.Minute, "a", node)

	if got := y.leases(); got != "l1 active" {
		t.Fatalf("while the new run prepares the leases are %q", got)
	}

	y.runs("a", "j1.2")

	if got := y.leases(); got != "l1 releasing" {
		t.Errorf("the new run runs and the leases are %q", got)
	}
}

// TestAJobWhoseMoveFailedMayReturn lets the target die before the new run runs: the old node is there and takes it.
func TestAJobWhoseMoveFailedMayReturn(t *testing.T) {
	t.Parallel()
	y, p, node := rented(t)
	y.plan(p, moveTo("a"))
	y.stops(node, "j1.1")
	p.plan = func(*place.View) place.Plan { return place.Plan{} }
	y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "it burned"})
	y.pass(2*time.Second, node)
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, node, 1) })
	y.pass(time.Minute, node)

	if got, _ := yardmaster.JobOf(y.Yard, "j1"); got.State != job.Starting || y.leases() != "l1 active" {
		t.Errorf("j1 is %s, the leases are %q; want it back on %s", got.State, y.leases(), node)
	}
}

// prepares lets rank 0 of a run prepare its start.
func (y *yard) prepares(node id.Node, run id.Run) {
	y.t.Helper()
	y.ok(yardmaster.NodeReport{Node: node, Ranks: []yardmaster.RankReport{{Run: run, State: job.RunPreparing}}})
}

// stores lets a checkpoint of a run that its program saved with the SDK become complete in the catalogue.
func (y *yard) stores(run id.Run) {
	y.t.Helper()
	y.stored++
	y.ok(yardmaster.AddCheckpoint{Checkpoint: checkpoint.Checkpoint{
		Run: run, Ranks: 1, Name: fmt.Sprint("step-", y.stored), Step: int64(y.stored), Found: checkpoint.ByMarker,
		Parts: []checkpoint.Part{{Manifest: fmt.Sprint("manifest ", y.stored), Size: 1}},
	}})
}

// TestACordonedOldNodeIsKeptToo cordons the old node, which is released at once when it is idle, while its job moves.
func TestACordonedOldNodeIsKeptToo(t *testing.T) {
	t.Parallel()
	y, p, node := rented(t)
	y.plan(p, moveTo("a"))
	y.ok(yardmaster.Cordon{Node: node, By: "alice", On: true})
	y.stops(node, "j1.1")

	if got := y.leases(); got != "l1 active" {
		t.Errorf("the leases are %q before the new run runs", got)
	}

	y.runs("a", "j1.2")

	if got := y.leases(); got != "l1 releasing" {
		t.Errorf("the leases are %q when the new run runs", got)
	}
}
