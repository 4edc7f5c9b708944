package yardmaster_test

import (
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// sweepJob is a job of a sweep: a long script that all of them have, and a parameter of its own.
func sweepJob(script string, n int) *job.Spec {
	s := spec(1)
	s.Run = strings.Clone(script) // as it comes with each request
	s.Setup = strings.Clone("pip install " + script)
	s.Env = map[string]string{"SEED": fmt.Sprint(n), "CONFIG": strings.Clone("{" + script + "}")}

	return s
}

// The job files of queued jobs are in memory: of a sweep it is one, not thousands.
func TestJobsOfASweepKeepTheirScriptOnce(t *testing.T) {
	t.Parallel()
	const jobs, users, size = 500, 4, 16 << 10
	script := strings.Repeat("x", size)
	cfg := func() yardmaster.Config {
		c := yardmaster.Defaults(ordered.FIFO{})
		c.MaxJobText = 1 << 20 // of one user: less than 50 jobs if each counted

		return c
	}

	y := newStoredYard(t, cfg)
	y.node("a", 8)

	var first id.Job
	for u := range users {
		user := id.User(fmt.Sprint("user", u))
		y.ok(yardmaster.PutUser{User: user, Role: tenant.Researcher, By: "test"})

		for n := range jobs {
			j := y.submit(user, sweepJob(script, n))
			if first == "" {
				first = j
			}
		}
	}

	const most = users*(3*size+1000) + users*jobs*4 // and the parameter of each
	if got := yardmaster.TextInMemory(y.Yard); got > most {
		t.Errorf("%d jobs keep %d bytes of text, want at most %d", users*jobs, got, most)
	}

	y.Round(y.now)
	y.check()
	y.restart()

	if got := yardmaster.TextInMemory(y.Yard); got > most {
		t.Errorf("after a restart %d jobs keep %d bytes of text, want at most %d", users*jobs, got, most)
	}

	// Each has what was submitted.
	kept, _ := yardmaster.JobOf(y.Yard, first)
	want := sweepJob(script, 0)
	if kept.Spec.Run != want.Run || kept.Spec.Setup != want.Setup || kept.Spec.Env["CONFIG"] != want.Env["CONFIG"] ||
		kept.Spec.Env["SEED"] != "0" {
		t.Error("the spec of the first job has changed")
	}

	// What is new counts: another script for each job is soon too much.
	var err error
	for n := 0; err == nil && n < jobs; n++ {
		_, err = y.Step(y.now, yardmaster.Submit{
			Owner: "user0", Jobs: []yardmaster.NewJob{{Spec: sweepJob(fmt.Sprint(n, script), n)}},
		})
	}

	if fault.KindOf(err) != fault.OverLimit {
		t.Errorf("different scripts: got %v", err)
	}

	y.check()
}

// Whatever is submitted and however it ends, what is counted is what is kept.
func TestTextIsCountedUntilTheLastJobHasEnded(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.MaxJobText = 1000
	y := newYardOf(t, cfg)
	script := strings.Repeat("x", 600)
	shared := func() *job.Spec {
		s := spec(1)
		s.Run = strings.Clone(script)

		return s
	}

	one, two := y.submit("alice", shared()), y.submit("alice", shared())
	y.check()

	other := spec(1)
	other.Run = strings.Repeat("y", 600)
	refused := func() {
		t.Helper()

		if _, err := y.Step(y.now, yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: other}}}); err == nil {
			t.Error("more text than the limit is accepted")
		}
	}

	refused()
	y.ok(yardmaster.Cancel{Job: one, By: "alice"})
	y.check()
	refused() // the other job still has it

	if _, err := y.edit(two, "alice", "priority=7"); err != nil {
		t.Fatal(err)
	}

	y.check()
	refused()
	y.ok(yardmaster.Cancel{Job: two, By: "alice"})
	y.check()
	y.submit("alice", other)
	y.check()

	// Two jobs of one file have it once as well.
	file := yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: named("a", script)}, {Spec: named("b", script)}}}
	if _, err := y.Step(y.now, file); fault.KindOf(err) != fault.OverLimit {
		t.Errorf("600 bytes more: got %v", err)
	}

	file.Jobs[0].Spec, file.Jobs[1].Spec = named("a", script[:380]), named("b", script[:380])
	y.ok(file)
	y.check()
}

func named(name, run string) *job.Spec {
	s := spec(1)
	s.Name, s.Run = name, strings.Clone(run)

	return s
}
