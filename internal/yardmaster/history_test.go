package yardmaster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var firstIncarnation = yardmaster.Incarnation{Number: 1, Mark: "first", Began: start, Settled: start}

// markedYard is newYard with marks and two nodes.
func markedYard(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.Load(y.now, yardmaster.State{Seed: "seed", Incarnation: firstIncarnation})
	y.node("a", 1)
	y.node("b", 1)

	return y
}

// order returns the only open order of a job.
func (y *yard) order(j id.Job) yardmaster.Order {
	y.t.Helper()
	all := slices.DeleteFunc(y.Orders(), func(o yardmaster.Order) bool { return o.Job != j })
	if len(all) != 1 {
		y.t.Fatalf("job %s has %d orders", j, len(all))
	}

	return all[0]
}

// kinds lists the kinds of the events since the last call.
func (y *yard) kinds() []string {
	var kinds []string
	for _, e := range y.Take().Events {
		kinds = append(kinds, e.Kind)
	}

	return kinds
}

func TestALaunchCarriesTheNumberOfItsOwner(t *testing.T) {
	t.Parallel()
	y := markedYard(t)
	j := y.submit("alice", spec(1))
	y.Round(y.now)

	alice, _ := y.User("alice")
	o := y.order(j)

	if alice.Number == 0 || o.Launch.OwnerNumber != alice.Number {
		t.Fatalf("the launch carries %d, alice has %d", o.Launch.OwnerNumber, alice.Number)
	}

	// One that an earlier version has stored.
	o.Launch.OwnerNumber = 0
	b := y.Take()
	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now}
	next.Load(y.now, yardmaster.State{Jobs: b.Jobs, Runs: b.Runs, Nodes: b.Nodes, Users: b.Users, Tokens: b.Tokens,
		Orders: []yardmaster.Order{o}, Seed: "seed", Incarnation: firstIncarnation, LastJob: 1})

	if got := next.order(j).Launch.OwnerNumber; got != alice.Number {
		t.Errorf("after an upgrade the launch carries %d, want %d", got, alice.Number)
	}
}

func TestUsersAddedAfterARestoreGetNewNumbers(t *testing.T) {
	t.Parallel()
	y := markedYard(t)
	y.ok(yardmaster.NodeReport{Node: "a", Marks: true, Seen: yardmaster.Seen{Number: 2, Mark: "later", Job: 9}})
	y.ok(yardmaster.PutUser{User: "new", Role: tenant.Researcher, By: "root"})

	if u, _ := y.User("new"); u.Number <= 100 {
		t.Errorf("the user got number %d, which one of the lost history may have had", u.Number)
	}
}

func TestALaunchSaysWhereAndHowOftenToSave(t *testing.T) {
	t.Parallel()
	y := markedYard(t)
	s := spec(1)
	s.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(10 * time.Minute)}
	j := y.submit("alice", s)
	y.Round(y.now)

	if l := y.order(j).Launch; l.Checkpoint != "ckpt" || l.SaveEvery != s.Checkpoint.Every {
		t.Errorf("the launch says to save every %v to %q", l.SaveEvery, l.Checkpoint)
	}
}

func TestReportsOfAnotherRunWithTheSameIDAreNotTaken(t *testing.T) {
	t.Parallel()
	y := markedYard(t)
	j := y.submit("alice", spec(1))
	y.Round(y.now)
	o := y.order(j)

	report := yardmaster.RankReport{Run: o.Run, UID: "another", State: job.RunEnded, Started: y.now, Ended: y.now}
	y.ok(yardmaster.NodeReport{Node: o.Node, Marks: true, Ranks: []yardmaster.RankReport{report}})

	if got, _ := yardmaster.JobOf(y.Yard, j); got.State != job.Starting {
		t.Fatalf("after the end of another run the job is %s", got.State)
	}

	report.UID = o.Launch.UID
	y.ok(yardmaster.NodeReport{Node: o.Node, Marks: true, Ranks: []yardmaster.RankReport{report}})

	if got, _ := yardmaster.JobOf(y.Yard, j); got.State != job.Succeeded || len(o.Launch.UID) != 32 {
		t.Errorf("after the end of its run, %q, the job is %s", o.Launch.UID, got.State)
	}
}

func TestUIDsDifferBetweenTwoLoads(t *testing.T) {
	t.Parallel()
	uids := map[id.UID]bool{}
	jobs := map[id.UID]bool{}

	for _, seed := range []string{"one", "two"} {
		y := newYard(t)
		y.Load(y.now, yardmaster.State{Seed: seed, Incarnation: firstIncarnation})
		y.node("a", 1)
		j := y.submit("alice", spec(1))
		y.Round(y.now)
		uids[y.order(j).Launch.UID] = true
		jobs[y.order(j).Launch.JobUID] = true
	}

	if len(uids) != 2 || len(jobs) != 1 {
		t.Errorf("runs have %v, want two UIDs; jobs have %v, want one", uids, jobs)
	}
}

func TestANodeThatHasSeenMoreShowsThatTheYardWasRestored(t *testing.T) {
	t.Parallel()

	for name, seen := range map[string]yardmaster.Seen{
		"a later job":          {Number: 1, Mark: "first", Job: 57},
		"a later incarnation":  {Number: 3, Mark: "third", Job: 57},
		"another incarnation":  {Number: 1, Mark: "other", Job: 57},
		"a job of long before": {Number: 7, Mark: "other", Job: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := markedYard(t)
			old := y.submit("alice", spec(1))
			y.Take()
			y.ok(yardmaster.NodeReport{Node: "a", Marks: true, Seen: seen})

			b := y.Take()
			if len(b.Incarnations) != 1 || b.Incarnations[0].Number != seen.Number+1 || b.Incarnations[0].Mark == "" {
				t.Fatalf("incarnations %+v", b.Incarnations)
			}

			if len(b.Events) != 1 || b.Events[0].Kind != "yard.restored" || !strings.Contains(b.Events[0].Reason, "node a") {
				t.Errorf("events %+v", b.Events)
			}

			// The job of before may still run somewhere; a new one cannot.
			next := y.submit("alice", spec(1))
			y.Round(y.now)

			if next != "j1001" || y.order(next).Epoch != 1 {
				t.Errorf("the next job is %s", next)
			}

			if got, _ := yardmaster.JobOf(y.Yard, old); got.State != job.Pending || !strings.Contains(got.Reason, "restored") {
				t.Errorf("the job from before is %s (%s)", got.State, got.Reason)
			}

			y.pass(5*time.Minute-time.Second, "a", "b")

			if got, _ := yardmaster.JobOf(y.Yard, old); got.State != job.Pending {
				t.Errorf("before the contact leases are over the job from before is %s", got.State)
			}

			y.pass(2*time.Second, "a", "b")
			y.order(old)

			// The same report again proves nothing new.
			y.Take()
			y.ok(yardmaster.NodeReport{Node: "b", Marks: true, Seen: seen})

			if b := y.Take(); len(b.Incarnations) > 0 {
				t.Errorf("a second report began %+v", b.Incarnations)
			}
		})
	}
}

func TestAnotherRunUnderAKnownIDShowsThatTheYardWasRestored(t *testing.T) {
	t.Parallel()

	for name, report := range map[string]func(id.Run) yardmaster.NodeReport{
		"that a node has": func(r id.Run) yardmaster.NodeReport {
			return yardmaster.NodeReport{Ranks: []yardmaster.RankReport{{Run: r, UID: "another", State: job.RunRunning}}}
		},
		"that a node has set aside": func(r id.Run) yardmaster.NodeReport {
			return yardmaster.NodeReport{SetAside: []yardmaster.SetAsideRun{{Run: r, UID: "another"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := markedYard(t)
			j := y.submit("alice", spec(1))
			y.Round(y.now)

			m := report(y.order(j).Run)
			m.Node, m.Marks, m.Seen = "b", true, yardmaster.Seen{Number: 1, Mark: "first", Job: 1}
			y.Take()
			y.ok(m)

			if kinds := y.kinds(); !slices.Contains(kinds, "yard.restored") {
				t.Errorf("events %v", kinds)
			}

			// The node has started a job of the new incarnation, and still has the run of before.
			now := y.Incarnation()
			m.Seen = yardmaster.Seen{Number: now.Number, Mark: now.Mark, Job: now.Last.Job}
			y.ok(m)

			if kinds := y.kinds(); slices.Contains(kinds, "yard.restored") {
				t.Errorf("the same run is taken for that of a third history: %v", kinds)
			}
		})
	}
}

// The defect D10: a node has had later runs of the job than the yard knows.
func TestARefusedEpochIsSkippedAndNotCounted(t *testing.T) {
	t.Parallel()
	y := markedYard(t)
	j := y.submit("alice", spec(1))
	y.Round(y.now)

	for newest := 6; newest < 60; newest += 6 { // far more often than a launch may fail
		o := y.order(j)
		y.ok(yardmaster.NodeReport{Node: o.Node, Marks: true, Ranks: []yardmaster.RankReport{{
			Run: o.Run, UID: o.Launch.UID, State: job.RunEnded, Ended: y.now, Cause: job.CauseLaunchFailed,
			Reason: "rejected by the node", NewestEpoch: newest,
		}}})
		y.Round(y.now)

		if got := y.order(j); got.Epoch != newest+1 {
			t.Fatalf("after a node that has had epoch %d the job's epoch is %d", newest, got.Epoch)
		}
	}

	if got, _ := yardmaster.JobOf(y.Yard, j); got.State != job.Starting || len(got.Tried) > 0 || len(got.Avoid) > 0 {
		t.Errorf("the job is %s, tried %v, avoids %v", got.State, got.Tried, got.Avoid)
	}
}

func TestOrdersFromBeforeARestoreMayOnlyBeAdopted(t *testing.T) {
	t.Parallel()
	y := markedYard(t)
	j := y.submit("alice", spec(1))
	y.Round(y.now)
	b := y.Take()

	unsettled := firstIncarnation.After(y.now, 0, yardmaster.Numbers{Job: 1}, "the test says so")
	unsettled.Mark = "second"
	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now}
	next.Load(y.now, yardmaster.State{Jobs: b.Jobs, Runs: b.Runs, Nodes: b.Nodes, Users: b.Users, Tokens: b.Tokens,
		Orders: b.Orders, Seed: "another", Incarnation: unsettled, LastJob: unsettled.Last.Job})

	if o := next.order(j); !o.Adopt {
		t.Errorf("the order is %+v", o)
	}

	later := next.submit("alice", spec(1))
	next.Round(next.now)

	if o := next.order(later); o.Adopt {
		t.Errorf("an order of the new incarnation is %+v", o)
	}

	next.pass(6*time.Minute, "a", "b")

	if kinds := next.kinds(); !slices.Contains(kinds, "yard.settled") {
		t.Errorf("events %v", kinds)
	}
}
