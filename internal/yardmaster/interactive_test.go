package yardmaster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// visited is a yard in which j1, a job that a person works in, runs on as many nodes as it asks for.
type visited struct {
	*storedYard
	nodes []id.Node
	run   id.Run
}

// newVisited starts a job that may be idle for half an hour.
func newVisited(t *testing.T, nodes ...id.Node) *visited {
	t.Helper()
	y := &visited{
		storedYard: newStoredYard(t, func() yardmaster.Config { return yardmaster.Defaults(ordered.FIFO{}) }),
		nodes:      nodes, run: "j1.1",
	}

	for _, n := range nodes {
		y.node(string(n), 1)
	}

	s := spec(1)
	s.Resources.Nodes = job.Range{Min: len(nodes), Max: len(nodes)}
	s.Interactive = &job.Interactive{Idle: job.Duration(30 * time.Minute)}
	y.submit("alice", s)
	y.Round(y.now)

	for i, n := range nodes {
		y.ok(yardmaster.NodeReport{Node: n, Ranks: []yardmaster.RankReport{
			{Run: y.run, Rank: i, State: job.RunRunning, Started: y.now},
		}})
	}

	y.commit()

	return y
}

// report lets the nodes report that their ranks were last active at these times.
func (y *visited) report(active ...time.Time) {
	y.t.Helper()

	for i, n := range y.nodes {
		idle := int64(y.now.Sub(active[i]) / time.Second)
		y.ok(yardmaster.NodeReport{Node: n, Ranks: []yardmaster.RankReport{
			{Run: y.run, Rank: i, State: job.RunRunning, Started: start, Idle: &idle},
		}})
	}
}

// untouched lets time pass in which nobody uses the job, until it is stopped; it returns what happened then.
func (y *visited) untouched(d time.Duration, active ...time.Time) (warnings []string) {
	y.t.Helper()

	for end := y.now.Add(d); y.now.Before(end); {
		y.now = y.now.Add(5 * time.Second)
		y.report(active...)
		y.ok(yardmaster.Tick{})
		y.check()

		b := y.Take()
		warnings = append(warnings, eventsOf(b, "job.idle")...)
		if err := y.store.commit(b); err != nil {
			y.t.Fatal(err)
		}
	}

	return warnings
}

func (y *visited) remarks() string {
	return strings.Join(y.Briefs(y.now, []id.Job{"j1"})[0].Remarks, "\n")
}

func TestAnIdleJobIsStoppedAfterAWarning(t *testing.T) {
	t.Parallel()
	y := newVisited(t, "a")

	const notice = "idle; it will be stopped at 09:30 UTC unless it is used"
	if got := y.untouched(25*time.Minute-5*time.Second, start); got != nil || y.remarks() != "" {
		t.Fatalf("before the warning: events %q, remarks %q", got, y.remarks())
	}

	if got := y.untouched(4*time.Minute, start); !slices.Equal(got, []string{notice}) || y.remarks() != notice {
		t.Fatalf("events %q, remarks %q", got, y.remarks())
	}

	if got := y.job("j1").State; got != job.Running {
		t.Fatalf("it is %s before its time", got)
	}

	y.untouched(2*time.Minute, start)

	if got := y.job("j1"); got.State != job.Cancelling || got.Reason != "idle for 30m" {
		t.Errorf("it is %s: %s", got.State, got.Reason)
	}
}

func TestAJobThatIsUsedAgainIsNotStopped(t *testing.T) {
	t.Parallel()
	y := newVisited(t, "a")
	y.untouched(26*time.Minute, start)

	if y.remarks() == "" {
		t.Fatal("the warning is missing")
	}

	used := y.now
	if got := y.untouched(10*time.Minute, used); got != nil || y.remarks() != "" || y.job("j1").State != job.Running {
		t.Errorf("after it was used: events %q, remarks %q, state %s", got, y.remarks(), y.job("j1").State)
	}

	if got := y.untouched(16*time.Minute, used); len(got) != 1 {
		t.Errorf("when it is idle again: events %q", got)
	}
}

func TestAJobIsIdleWhenAllItsRanksAre(t *testing.T) {
	t.Parallel()
	y := newVisited(t, "a", "b")

	for range 40 {
		y.untouched(time.Minute, start, y.now)
	}

	if got := y.job("j1").State; got != job.Running || y.remarks() != "" {
		t.Fatalf("one rank is used: state %s, remarks %q", got, y.remarks())
	}

	y.untouched(31*time.Minute, start, y.now)

	if got := y.job("j1").State; got != job.Cancelling {
		t.Errorf("no rank is used: state %s", got)
	}
}

// TestAnIdleJobIsWarnedOfAfterARestart: nobody has seen the warning of a server that was away then.
func TestAnIdleJobIsWarnedOfAfterARestart(t *testing.T) {
	t.Parallel()
	y := newVisited(t, "a")
	y.untouched(20*time.Minute, start)
	y.now = y.now.Add(15 * time.Minute)
	y.restart()

	if got := y.untouched(time.Minute, start); len(got) != 1 || y.job("j1").State != job.Running {
		t.Fatalf("events %q, state %s", got, y.job("j1").State)
	}

	y.untouched(5*time.Minute, start)

	if got := y.job("j1").State; got != job.Cancelling {
		t.Errorf("state %s", got)
	}
}

// TestASilentNodeStopsNoJob: whether somebody works there is not known.
func TestASilentNodeStopsNoJob(t *testing.T) {
	t.Parallel()
	y := newVisited(t, "a")
	y.untouched(28*time.Minute, start)
	y.pass(10*time.Minute, "a") // by an agent that does not say how long its ranks were idle

	if got := y.job("j1").State; got != job.Running {
		t.Errorf("state %s", got)
	}
}
