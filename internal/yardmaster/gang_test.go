package yardmaster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// gangYard is a yard with a job on three nodes that has been placed.
func gangYard(t *testing.T) (*yard, id.Job) {
	t.Helper()

	y := newYard(t)
	for _, name := range []string{"a", "b", "c"} {
		y.node(name, 1)
	}

	j := y.submit("alice", gang(3))
	y.round()

	return y, j
}

// starts returns for each rank whether its program may start.
func (y *yard) starts(j id.Job) (list []bool) {
	for _, o := range y.Orders() {
		if o.Job == j {
			list = append(list, o.Start != nil)
		}
	}

	return list
}

// waits reports that a rank waits for the others, and what it has found of them.
func (y *yard) waits(j id.Job, rank int, ready bool, probe *job.Probe) {
	y.t.Helper()
	y.report(j, rank, yardmaster.RankReport{State: job.RunPreparing, Ready: ready, Probe: probe})
}

// found is the probe of a rank of three that reached the others.
func found(rank int) *job.Probe {
	p := &job.Probe{Port: 4000 + rank, Reached: []uint64{1, 1, 1}}
	p.Reached[rank] = 0

	return p
}

func TestNoProgramOfAGangStartsBeforeAllRanksAreReady(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)

	for _, o := range y.Orders() {
		if !o.Launch.Barrier || len(o.Launch.Addresses) != 3 || !slices.Equal(o.Launch.Slots, []int{1, 1, 1}) {
			t.Fatalf("the launch is %+v", o.Launch)
		}
	}

	y.waits(j, 0, true, &job.Probe{Port: 4000})
	y.waits(j, 1, true, &job.Probe{Port: 4001})

	if y.Orders()[0].Peers != nil {
		t.Error("ranks probe others before all are there")
	}

	y.waits(j, 2, false, &job.Probe{Port: 4002})

	for _, o := range y.Orders() {
		if !slices.Equal(o.Peers, []int{4000, 4001, 4002}) {
			t.Errorf("rank %d probes %v", o.Rank, o.Peers)
		}
	}

	for rank := range 3 {
		y.waits(j, rank, rank < 2, found(rank))
	}

	if slices.Contains(y.starts(j), true) {
		t.Fatal("a program starts though a rank is not ready")
	}

	y.waits(j, 2, true, found(2))

	if slices.Contains(y.starts(j), false) {
		t.Fatalf("all are ready, and the programs may start: %v", y.starts(j))
	}

	if got := y.Orders()[0].Start; !slices.Equal(got.Nodes, []string{"a", "b", "c"}) || got.Remark != "" {
		t.Errorf("they start with %+v", got)
	}

	if got := y.job(j).State; got != job.Starting {
		t.Errorf("the job is %s", got)
	}

	y.running(j, 0, 1, 2)

	if got := y.job(j).State; got != job.Running {
		t.Errorf("the job is %s", got)
	}
}

func TestAgentsOfAnEarlierVersionDoNotWait(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)
	y.running(j, 0) // it knows no barrier
	y.waits(j, 1, true, &job.Probe{Port: 4001, Reached: []uint64{0, 0, 1}})
	y.waits(j, 2, true, &job.Probe{Port: 4002, Reached: []uint64{0, 1, 0}})

	if got := y.starts(j); !slices.Equal(got, []bool{false, true, true}) {
		t.Errorf("the programs start: %v", got)
	}
}

func TestRestartedServerLearnsFromAgentsHowFarAGangIs(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)

	for rank := range 3 {
		y.waits(j, rank, rank < 2, found(rank))
	}

	b := y.Take()
	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now}
	next.Load(y.now, yardmaster.State{Jobs: b.Jobs, Runs: b.Runs, Nodes: b.Nodes, Users: b.Users, Tokens: b.Tokens,
		Orders: b.Orders, LastJob: 1})

	next.waits(j, 2, true, found(2)) // which has changed meanwhile

	if slices.Contains(next.starts(j), true) {
		t.Fatal("a program starts though nothing is known of the other ranks")
	}

	next.waits(j, 0, true, found(0))
	next.waits(j, 1, true, found(1))

	if slices.Contains(next.starts(j), false) {
		t.Errorf("all are ready, and the programs may start: %v", next.starts(j))
	}
}

func TestRestartedAgentIsProbedAtItsNewPort(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)

	for rank := range 3 {
		y.waits(j, rank, false, &job.Probe{Port: 4000 + rank})
	}

	y.waits(j, 1, false, &job.Probe{Port: 5000})

	for _, o := range y.Orders() {
		if !slices.Equal(o.Peers, []int{4000, 5000, 4002}) {
			t.Errorf("rank %d probes %v", o.Rank, o.Peers)
		}
	}
}

func TestRanksThatDoNotReachEachOtherAreNamed(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)

	blind := found(2)
	blind.Reached[0] = 0

	for rank, p := range []*job.Probe{found(0), found(1), blind} {
		y.waits(j, rank, true, p)
	}

	if slices.Contains(y.starts(j), true) {
		t.Fatal("the programs start before the agents have tried for a while")
	}

	y.pass(15*time.Second, "a", "b", "c")

	if slices.Contains(y.starts(j), false) {
		t.Fatal("the programs wait for ever")
	}

	remark := y.Orders()[0].Start.Remark
	if !strings.Contains(remark, "rank 2 on c did not reach rank 0 on a at a") || strings.Contains(remark, "rank 1") {
		t.Errorf("the output says %q", remark)
	}
}

func TestSlowStartersAreNamed(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)
	y.waits(j, 0, true, found(0))
	y.waits(j, 2, true, found(2))
	y.report(j, 1, yardmaster.RankReport{State: job.RunPreparing, Reason: "fetching files: 40%"})
	y.pass(5*time.Second, "a", "b", "c")

	if got := y.job(j).Reason; strings.Contains(got, "waiting for") {
		t.Errorf("after five seconds: %q", got)
	}

	y.pass(10*time.Second, "a", "b", "c")

	want := "starting: 2 of 3 ranks ready for 10s, waiting for rank 1 on b (fetching files: 40%)"
	if got := y.job(j).Reason; got != want {
		t.Errorf("the job says %q, want %q", got, want)
	}

	if !slices.Contains(y.kinds(), "run.slow_start") {
		t.Error("the event is missing")
	}
}

func TestWhatIsLeftOfAGangIsKilledSecondsAfterOneRankFailed(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)
	y.running(j, 0, 1, 2)
	y.ends(j, 1, yardmaster.RankReport{
		Cause: job.CauseUserCode, ExitCode: 3, Reason: "exit code 3; last line of output: boom",
	})

	for _, o := range y.Orders() {
		if o.Stop != job.StopTerm {
			t.Errorf("rank %d is stopped by %q", o.Rank, o.Stop)
		}
	}

	y.pass(10*time.Second, "a", "b", "c")

	for _, o := range y.Orders() {
		if o.Stop != job.StopKill {
			t.Errorf("ten seconds later rank %d is stopped by %q", o.Rank, o.Stop)
		}
	}

	stopped := yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true}
	y.ends(j, 0, stopped)
	y.ends(j, 2, stopped)

	want := "rank 1 of 3 on b failed first: exit code 3; last line of output: boom"
	if got := y.job(j); got.State != job.Failed || got.Reason != want || got.ExitCode != 3 {
		t.Errorf("the job is %s: %q with code %d", got.State, got.Reason, got.ExitCode)
	}
}

func TestGangThatIsCancelledKeepsItsGracePeriod(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)
	y.running(j, 0, 1, 2)
	y.ok(yardmaster.Cancel{Job: j, By: "alice"})
	y.ends(j, 1, yardmaster.RankReport{Cause: job.CauseUserCode, ExitCode: 1})
	y.pass(15*time.Second, "a", "b", "c")

	for _, o := range y.Orders() {
		if o.Stop != job.StopTerm {
			t.Errorf("rank %d is stopped by %q", o.Rank, o.Stop)
		}
	}
}

func TestRankThatFailsBeforeTheStartStopsAll(t *testing.T) {
	t.Parallel()
	y, j := gangYard(t)
	y.waits(j, 0, true, found(0))
	y.report(j, 1, yardmaster.RankReport{
		State: job.RunEnded, Cause: job.CauseSetupFailed, Reason: "set-up failed with exit code 1", Ended: y.now,
	})
	y.waits(j, 2, true, found(2))

	for _, o := range y.Orders() {
		if o.Stop != job.StopTerm || o.Start != nil {
			t.Errorf("rank %d: stop %q, start %v", o.Rank, o.Stop, o.Start)
		}
	}
}

// A node whose clock is wrong must not get the blame for what another did: times are those of the server.
func TestTheClockOfANodeDoesNotDecideWhichRankFailedFirst(t *testing.T) {
	t.Parallel()

	for name, measured := range map[string]bool{"the skew is known": true, "the skew is not known yet": false} {
		y, j := gangYard(t)
		y.running(j, 0, 1, 2)
		y.pass(time.Minute, "a", "b", "c")

		const skew = -time.Hour
		ahead := map[int]time.Duration{2: skew} // the clock of rank 2's node is an hour behind

		if measured {
			y.ok(yardmaster.NodeReport{Node: "c", Clock: &fleet.ClockOffset{Ahead: skew.Milliseconds()}})
		}

		for _, rank := range []int{1, 2, 0} {
			y.pass(time.Second, "a", "b", "c")
			y.report(j, rank, yardmaster.RankReport{
				State: job.RunEnded, Cause: job.CauseUserCode, ExitCode: 1, Started: y.now.Add(-time.Minute + ahead[rank]),
				Ended: y.now.Add(ahead[rank]), Reason: "exit code 1",
			})
		}

		if got := y.job(j).Reason; measured && !strings.HasPrefix(got, "rank 1 of 3 on b failed first") {
			t.Errorf("%s: the job says %q", name, got)
		}

		for _, run := range y.Take().Runs {
			for _, k := range run.Ranks {
				if k.Ended.Before(run.Ordered) || k.Ended.After(y.now) || k.Started.Before(run.Ordered) {
					t.Errorf("%s: rank %d ran from %s to %s, and was ordered at %s", name, k.Rank, k.Started, k.Ended, run.Ordered)
				}
			}
		}
	}
}
