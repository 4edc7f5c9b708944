package yardmaster_test

import (
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/rules"
	"trainyard/internal/relocate"
	"trainyard/internal/yardmaster"
)

// besideYard is a yard in which j1 runs alone on one of two GPUs, and can be moved.
type besideYard struct {
	*storedYard
	done map[id.Job]float64
}

func newBesideYard(t *testing.T) *besideYard {
	t.Helper()

	y := &besideYard{newStoredYard(t, func() yardmaster.Config {
		return yardmaster.Defaults(relocate.Wrap(rules.New(rules.Defaults()), relocate.Standard()))
	}), map[id.Job]float64{}}
	y.divided("a", 2, "1")
	y.add("python first.py")

	return y
}

// add submits a job that asks for half a GPU, and lets it run.
func (y *besideYard) add(command string) id.Job {
	y.t.Helper()

	s := half()
	s.Run, s.Checkpoint = command, &job.Checkpoint{Dir: "ckpt", Every: job.Duration(time.Minute)}
	s.Expect = job.Duration(10 * time.Hour)
	j := y.submit("alice", s)
	y.round()
	y.running(j, 0)

	return j
}

// work lets a minute pass in which each job does so many units a second.
func (y *besideYard) work(rates map[id.Job]float64) {
	y.t.Helper()
	y.pass(time.Minute, "a")

	for _, j := range []id.Job{"j1", "j2"} {
		if rate, runs := rates[j]; runs {
			y.done[j] += 60 * rate
			y.report(j, 0, yardmaster.RankReport{State: job.RunRunning, Progress: &job.Progress{Done: y.done[j]}})
		}
	}
}

// kind is how the yard knows the jobs of a program.
func (y *besideYard) kind(j id.Job) string {
	y.t.Helper()

	for _, r := range y.View(y.now).Running {
		if r.Job == j {
			return r.Program.Key
		}
	}

	y.t.Fatalf("%s does not run", j)

	return ""
}

func TestJobsThatDoBadlyBesideEachOtherAreParted(t *testing.T) {
	t.Parallel()
	y := newBesideYard(t)

	for range 3 {
		y.work(map[id.Job]float64{"j1": 10})
	}

	y.add("python second.py")
	first, second := y.kind("j1"), y.kind("j2")

	for range 3 { // the first minute is partly that before the neighbour came
		y.work(map[id.Job]float64{"j1": 4.9, "j2": 7})
	}

	if v := y.View(y.now); v.Beside.Speed(y.now, first, v.Rooms[0].Parts[0].Cuts[1:]) < 0.95 || v.Beside.AnyParted() {
		t.Error("half of its speed on half a GPU is all that it may expect")
	}

	// The one that came later is moved to the other GPU when it has run for ten minutes.
	moved := false
	for range 20 {
		if moved = y.leaves("j2"); moved {
			break
		}

		y.work(map[id.Job]float64{"j1": 1.5, "j2": 7})
	}

	if !moved || y.leaves("j1") {
		t.Errorf("j2 is moved: %t, j1 is moved: %t", moved, y.leaves("j1"))
	}

	if !y.View(y.now).Beside.Parted(y.now, first, second) {
		t.Fatal("they are not parted")
	}

	y.restart()

	if !y.View(y.now).Beside.Parted(y.now, first, second) {
		t.Error("after a restart they are not parted")
	}
}

// leaves reports whether a running job is being stopped or moved.
func (y *besideYard) leaves(j id.Job) bool {
	for _, r := range y.View(y.now).Running {
		if r.Job == j {
			return !r.Stoppable()
		}
	}

	return true
}
