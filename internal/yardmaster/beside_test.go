package yardmaster_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/rules"
	"trainyard/internal/relocate"
	"trainyard/internal/share"
	"trainyard/internal/yardmaster"
)

// besideYard is a yard with GPUs that jobs share, in which they can be moved.
type besideYard struct {
	*storedYard
	done map[id.Job]float64
}

func newBesideYard(t *testing.T, gpus int) *besideYard {
	t.Helper()

	y := &besideYard{newStoredYard(t, func() yardmaster.Config {
		return yardmaster.Defaults(relocate.Wrap(rules.New(rules.Defaults()), relocate.Standard()))
	}), map[id.Job]float64{}}
	y.divided("a", gpus, "1")

	return y
}

// add submits a job that asks for half a GPU, or for something else, and lets it run.
func (y *besideYard) add(command string, change ...func(*job.Resources)) id.Job {
	y.t.Helper()

	s := half()
	for _, c := range change {
		c(&s.Resources)
	}

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

	for _, j := range slices.Sorted(maps.Keys(rates)) {
		y.done[j] += 60 * rates[j]
		y.report(j, 0, yardmaster.RankReport{State: job.RunRunning, Progress: &job.Progress{Done: y.done[j]}})
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
	y := newBesideYard(t, 2)
	y.add("python first.py")

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

// TestWhatIsLearnedOfAJob lets j1 work alone and then beside others, and looks how fast it is expected to be beside one
// of them.
func TestWhatIsLearnedOfAJob(t *testing.T) {
	t.Parallel()

	quarter := func(r *job.Resources) { r.GPUShare = 0.25 }

	for name, tc := range map[string]struct {
		first         func(*job.Resources)
		others        []func(*job.Resources)
		alone         float64 // units a second
		begin, beside float64 // in the minute in which the others came, and after that
		low, high     float64 // expected
	}{
		"its share": {others: []func(*job.Resources){nil}, alone: 10, begin: 5, beside: 5, low: 0.97, high: 1},
		"the minute in which a neighbour came does not count": {
			others: []func(*job.Resources){nil}, alone: 10, begin: 0.5, beside: 5, low: 0.97, high: 1,
		},
		"half of its share": {others: []func(*job.Resources){nil}, alone: 10, begin: 5, beside: 2.5, low: 0.5, high: 0.65},
		"of two neighbours each costs it the same": {
			others: []func(*job.Resources){quarter, quarter}, alone: 10, begin: 5, beside: 1.25, low: 0.5, high: 0.65,
		},
		"a limit holds alone, too": {
			first:  func(r *job.Resources) { r.ShareLimit = 0.5 },
			others: []func(*job.Resources){nil}, alone: 5, begin: 5, beside: 2.5, low: 0.5, high: 0.65,
		},
		"an opportunistic one is promised nothing": {
			first:  func(r *job.Resources) { r.ShareClass = job.ShareOpportunistic },
			others: []func(*job.Resources){nil}, alone: 10, begin: 5, beside: 0.5, low: 0.97, high: 0.97,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newBesideYard(t, 1)
			change := func(f func(*job.Resources)) func(*job.Resources) {
				if f == nil {
					return func(*job.Resources) {}
				}

				return f
			}

			y.add("python first.py", change(tc.first))

			for range 3 {
				y.work(map[id.Job]float64{"j1": tc.alone})
			}

			for i, f := range tc.others {
				y.add(fmt.Sprintf("python other%d.py", i), change(f))
			}

			y.work(map[id.Job]float64{"j1": tc.begin})

			for range 5 {
				y.work(map[id.Job]float64{"j1": tc.beside})
			}

			beside := []share.Cut{{Kind: y.kind("j2")}}
			if got := y.View(y.now).Beside.Speed(y.now, y.kind("j1"), beside); got < tc.low || got > tc.high {
				t.Errorf("it is expected at %g of what its share gives it, want %g to %g", got, tc.low, tc.high)
			}
		})
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
