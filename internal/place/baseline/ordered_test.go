package baseline_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// TestOrders lets jobs that are alike but for what the rule looks at take turns on
// one GPU, which a first job holds for an hour.
func TestOrders(t *testing.T) {
	t.Parallel()
	m := time.Minute
	one := gpus(1)

	cpus := func(n int) job.Resources { return job.Resources{CPUs: job.CPUs(n) * 1000} }
	for name, tc := range map[string]struct {
		jobs []want
		gap  time.Duration // between submissions
		want []id.Job
	}{
		"edf":      {jobs: []want{{spec: one}, {spec: one, due: 9 * m}, {spec: one, due: 3 * m}, {spec: one, due: 6 * m}}, want: []id.Job{"j4", "j5", "j3", "j2"}},
		"priority": {jobs: []want{{spec: one}, {spec: one, prio: 5}, {spec: one, prio: 50, user: "bob"}, {spec: one, prio: 5}}, want: []id.Job{"j4", "j3", "j5", "j2"}},
		"sjf":      {jobs: []want{{spec: one}, {spec: one, lasts: 9 * m}, {spec: one, lasts: 3 * m}, {spec: one, lasts: 6 * m}}, want: []id.Job{"j4", "j5", "j3", "j2"}},
		"saf": {jobs: []want{{spec: cpus(8), lasts: 2 * m}, {spec: cpus(1), lasts: 9 * m}, {spec: cpus(2), lasts: 4 * m}},
			want: []id.Job{"j4", "j3", "j2"}}, // 16, 9, 8
		"wfp3": {jobs: []want{{spec: cpus(1), lasts: 60 * m}, {spec: cpus(8), lasts: 60 * m}, {spec: cpus(1), lasts: 10 * m}}, gap: m,
			want: []id.Job{"j4", "j3", "j2"}}, // the short one waits most for its length, then the large one
		"unicep": {jobs: []want{{spec: cpus(8), lasts: 10 * m}, {spec: cpus(2), lasts: 20 * m}, {spec: cpus(2), lasts: 10 * m}}, gap: m,
			want: []id.Job{"j4", "j3", "j2"}}, // 60/30, 59/20, 58/10
		"f1": {jobs: []want{{spec: cpus(8), lasts: 10 * m}, {spec: cpus(1), lasts: 90 * m}, {spec: cpus(1), lasts: 10 * m}},
			want: []id.Job{"j4", "j3", "j2"}}, // 8 × log 600, log 5400, log 600
		"fifo-strict": {jobs: []want{{spec: one}, {spec: one, lasts: 3 * m}, {spec: one, prio: 5}}, want: []id.Job{"j4", "j2", "j3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.box("a", 1)
			w := newWorld(c, policy(name))

			// It holds the GPU and all CPUs, so that nothing else fits.
			c.add(want{lasts: time.Hour, spec: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, CPUs: 8000}})
			w.round(t)

			for _, j := range tc.jobs {
				c.add(j)
				c.now = c.now.Add(tc.gap)
			}

			started := []id.Job{}

			c.now = start.Add(time.Hour)
			for range tc.jobs { // the first of each plan runs and ends, then the next is asked for
				c.leave(c.runs[0])
				p := w.policy.Plan(w.view())
				if len(p.Starts) == 0 {
					t.Fatalf("nothing starts after %v", started)
				}

				c.book(p.Starts[0])
				started = append(started, p.Starts[0].Item.Job)
			}

			if diff := cmp.Diff(tc.want, started); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBehindTheFirst has a node of four GPUs of which one is held for an hour. The
// first in line wants all four; behind it wait a short job, a long one, and one
// that is too large now.
func TestBehindTheFirst(t *testing.T) {
	t.Parallel()

	for name, want := range map[string][]id.Job{
		"fifo": {"j3"}, "fifo-strict": nil, "fifo-fit": {"j3", "j4"}, "conservative": {"j3"},
		"priority": nil, "priority-easy": {"j3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fourBusy()
			p := policy(name).Plan(c.view())
			if diff := cmp.Diff(want, started(p)); diff != "" {
				t.Error(diff)
			}

			if held := p.Reservation != nil && p.Reservation.Job == "j2" &&
				p.Reservation.At.Equal(start.Add(time.Hour)); held == (name == "fifo-fit") {
				t.Errorf("kept is %+v", p.Reservation)
			}
		})
	}
}

func fourBusy() *cluster {
	c := newCluster()
	c.box("a", 4)
	c.add(want{lasts: time.Hour, spec: gpus(1)})

	for _, s := range c.plan().Starts {
		c.book(s)
	}

	c.add(want{lasts: time.Hour, spec: gpus(4)})
	c.add(want{lasts: 30 * time.Minute, spec: gpus(1)})
	c.add(want{lasts: 2 * time.Hour, spec: gpus(1)})
	c.add(want{lasts: time.Minute, spec: gpus(4)})

	return c
}

// TestConservativeKeepsTheSecondToo shows what sets it apart from EASY: a job
// that delays the second in line, and not the first, does not start.
func TestConservativeKeepsTheSecondToo(t *testing.T) {
	t.Parallel()

	for name, want := range map[string][]id.Job{"fifo": {"j5"}, "conservative": nil} {
		c := newCluster()
		c.box("a", 4)
		c.box("b", 4)
		c.add(lasting(time.Hour, 4))   // runs on a
		c.add(lasting(2*time.Hour, 2)) // runs on b

		for _, s := range c.plan().Starts {
			c.book(s)
		}

		c.add(lasting(5*time.Hour, 4)) // on a, in an hour
		c.add(lasting(time.Hour, 4))   // on b, in two hours
		c.add(lasting(3*time.Hour, 2)) // fits on b now, and would be in the way there

		if diff := cmp.Diff(want, started(policy(name).Plan(c.view()))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func lasting(d time.Duration, n int) want { return want{lasts: d, spec: gpus(n)} }
