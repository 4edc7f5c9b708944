package agent_test

import (
	"slices"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// marked is an assignment with a UID.
func marked(run id.Run, uid id.UID) api.Assignment {
	a := assignment(run)
	a.Launch.UID = uid

	return a
}

// restored restarts the yard as another incarnation that wants these runs.
func (y *fakeYard) restored(number uint64, runs ...api.Assignment) {
	y.stop()
	y.mu.Lock()
	y.runs, y.under = runs, &api.Incarnation{Number: number, Mark: id.UID("restored")}
	y.mu.Unlock()
	y.restart()
}

// result is the newest report about a run with a UID; call it under the lock.
func (y *fakeYard) result(run id.Run, uid id.UID) (api.RankReport, bool) {
	for _, report := range slices.Backward(y.reports) {
		for _, r := range report.Ranks {
			if r.Run == run && r.UID == uid {
				return r, true
			}
		}
	}

	return api.RankReport{}, false
}

func TestARunOfAnotherHistoryIsNeverTakenForTheAssignedOne(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.under = &api.Incarnation{Number: 1, Mark: "first"}
	launch(t, config(t, y, rt))

	y.assign(marked("j2.1", "lost"))
	y.awaitState("j2.1", job.RunRunning)
	rt.print("j2.1", "of the lost job\n")
	y.await("its output", func() bool { return y.logs[rankKey{"j2.1", 0}] != nil })

	y.restored(2, marked("j2.1", "new"))
	y.await("the new run to be refused", func() bool {
		r, ok := y.result("j2.1", "new")
		return ok && r.State == job.RunEnded && r.NewestEpoch == 1
	})

	y.await("the old one to be set aside", func() bool {
		return slices.ContainsFunc(y.reports, func(r api.Report) bool {
			return slices.Contains(r.SetAside, api.SetAsideRun{Run: "j2.1", UID: "lost", Path: "/aside/j2.1"})
		})
	})

	y.await("what the node has seen", func() bool {
		seen := y.reports[len(y.reports)-1].Seen
		return seen != nil && *seen == api.Seen{Incarnation: api.Incarnation{Number: 1, Mark: "first"}, Job: 2}
	})

	y.assign(marked("j2.2", "newer"))
	y.await("the next run", func() bool {
		r, ok := y.result("j2.2", "newer")
		return ok && r.State == job.RunRunning
	})

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if n := rt.starts[rankKey{"j2.1", 0}]; n != 1 || !slices.Equal(rt.aside, []string{"j2.1 lost"}) || len(rt.forgot) > 0 {
		t.Errorf("j2.1 was started %d times; set aside %v, forgotten %v", n, rt.aside, rt.forgot)
	}
}

func TestARunThatTheYardDoesNotKnowIsSetAside(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.under = &api.Incarnation{Number: 1, Mark: "first"}
	launch(t, config(t, y, rt))

	y.assign(marked("j7.1", "lost"))
	y.awaitState("j7.1", job.RunRunning)
	y.change(func() {
		y.code = "run_not_found"
		y.refuse = func(path string) int {
			if path == "/agent/v1/logs/j7.1/0" {
				return 404
			}

			return 0
		}
	})

	y.restored(2)
	rt.wait(y, "j7.1 to be set aside", func() bool { return slices.Equal(rt.aside, []string{"j7.1 lost"}) })
}

func TestAnOrderFromBeforeARestoreIsAdoptedButNotStarted(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.under = &api.Incarnation{Number: 1, Mark: "first"}
	launch(t, config(t, y, rt))

	y.assign(marked("j1.1", "here"))
	y.awaitState("j1.1", job.RunRunning)

	here, there := marked("j1.1", "here"), marked("j3.4", "there")
	here.Adopt, there.Adopt = true, true
	y.restored(2, here, there)

	y.await("the run that is not here to be refused", func() bool {
		r, ok := y.result("j3.4", "there")
		return ok && r.State == job.RunEnded && r.Cause == job.CauseLaunchFailed && r.NewestEpoch == 4
	})

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if rt.starts[rankKey{"j3.4", 0}] > 0 || rt.starts[rankKey{"j1.1", 0}] != 1 || len(rt.stops) > 0 {
		t.Errorf("starts %v, stops %v; want j1.1 to go on and j3.4 not to start", rt.starts, rt.stops)
	}
}

func TestARunOfAnEarlierAgentIsAdoptedUntilTheYardIsRestored(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.under = &api.Incarnation{Number: 1, Mark: "first"}
	cfg := config(t, y, rt)
	stop := launch(t, cfg)

	y.assign(assignment("j1.1")) // as an agent that drops the UID starts it
	y.awaitState("j1.1", job.RunRunning)
	stop()

	y.assign(marked("j1.1", "uid"), marked("j2.1", "other"))
	launch(t, cfg)
	y.await("the other run", func() bool {
		r, ok := y.result("j2.1", "other")
		return ok && r.State == job.RunRunning
	})

	rt.mu.Lock()
	if len(rt.stops) > 0 || len(rt.aside) > 0 {
		t.Errorf("stopped %v, set aside %v in the first incarnation", rt.stops, rt.aside)
	}

	rt.mu.Unlock()

	y.restored(2, marked("j1.1", "uid"), marked("j2.1", "other"))
	rt.wait(y, "j1.1 to be set aside", func() bool { return slices.Equal(rt.aside, []string{"j1.1 "}) })
}
