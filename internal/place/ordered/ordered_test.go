package ordered_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/placetest"
)

// TestOrders lets jobs that are alike but for what the rule looks at take turns on
// one GPU, which a first job holds for an hour.
func TestOrders(t *testing.T) {
	t.Parallel()
	m := time.Minute
	one := placetest.GPUs(1)

	cpus := func(n int) job.Resources { return job.Resources{CPUs: job.CPUs(n) * 1000} }
	for name, tc := range map[string]struct {
		jobs []placetest.Job
		gap  time.Duration // between submissions
		want []id.Job
	}{
		"edf":      {jobs: []placetest.Job{{Spec: one}, {Spec: one, Due: 9 * m}, {Spec: one, Due: 3 * m}, {Spec: one, Due: 6 * m}}, want: []id.Job{"j4", "j5", "j3", "j2"}},
		"priority": {jobs: []placetest.Job{{Spec: one}, {Spec: one, Priority: 5}, {Spec: one, Priority: 50, User: "bob"}, {Spec: one, Priority: 5}}, want: []id.Job{"j4", "j3", "j5", "j2"}},
		"sjf":      {jobs: []placetest.Job{{Spec: one}, {Spec: one, Lasts: 9 * m}, {Spec: one, Lasts: 3 * m}, {Spec: one, Lasts: 6 * m}}, want: []id.Job{"j4", "j5", "j3", "j2"}},
		"saf": {jobs: []placetest.Job{{Spec: cpus(8), Lasts: 2 * m}, {Spec: cpus(1), Lasts: 9 * m}, {Spec: cpus(2), Lasts: 4 * m}},
			want: []id.Job{"j4", "j3", "j2"}}, // 16, 9, 8
		"wfp3": {jobs: []placetest.Job{{Spec: cpus(1), Lasts: 60 * m}, {Spec: cpus(8), Lasts: 60 * m}, {Spec: cpus(1), Lasts: 10 * m}}, gap: m,
			want: []id.Job{"j4", "j3", "j2"}}, // the short one waits most for its length, then the large one
		"unicep": {jobs: []placetest.Job{{Spec: cpus(8), Lasts: 10 * m}, {Spec: cpus(2), Lasts: 20 * m}, {Spec: cpus(2), Lasts: 10 * m}}, gap: m,
			want: []id.Job{"j4", "j3", "j2"}}, // 60/30, 59/20, 58/10
		"f1": {jobs: []placetest.Job{{Spec: cpus(8), Lasts: 10 * m}, {Spec: cpus(1), Lasts: 90 * m}, {Spec: cpus(1), Lasts: 10 * m}},
			want: []id.Job{"j4", "j3", "j2"}}, // 8 × log 600, log 5400, log 600
		"fifo-strict": {jobs: []placetest.Job{{Spec: one}, {Spec: one, Lasts: 3 * m}, {Spec: one, Priority: 5}}, want: []id.Job{"j4", "j2", "j3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			c.Box("a", 1)
			w := placetest.NewWorld(c, placetest.Policy(name))

			// It holds the GPU and all CPUs, so that nothing else fits.
			c.Add(placetest.Job{Lasts: time.Hour, Spec: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, CPUs: 8000}})
			w.Round(t)

			for _, j := range tc.jobs {
				c.Add(j)
				c.Now = c.Now.Add(tc.gap)
			}

			started := []id.Job{}

			c.Now = placetest.Start.Add(time.Hour)
			for range tc.jobs { // the first of each plan runs and ends, then the next is asked for
				c.Leave(c.Runs[0])
				p := w.Policy.Plan(w.View())
				if len(p.Starts) == 0 {
					t.Fatalf("nothing starts after %v", started)
				}

				c.Book(p.Starts[0])
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
			p := placetest.Policy(name).Plan(c.View())
			if diff := cmp.Diff(want, placetest.Started(p)); diff != "" {
				t.Error(diff)
			}

			if held := p.Reservation != nil && p.Reservation.Job == "j2" &&
				p.Reservation.At.Equal(placetest.Start.Add(time.Hour)); held == (name == "fifo-fit") {
				t.Errorf("kept is %+v", p.Reservation)
			}
		})
	}
}

func fourBusy() *placetest.Cluster {
	c := placetest.NewCluster()
	c.Box("a", 4)
	c.Add(placetest.Job{Lasts: time.Hour, Spec: placetest.GPUs(1)})

	for _, s := range c.Plan().Starts {
		c.Book(s)
	}

	c.Add(placetest.Job{Lasts: time.Hour, Spec: placetest.GPUs(4)})
	c.Add(placetest.Job{Lasts: 30 * time.Minute, Spec: placetest.GPUs(1)})
	c.Add(placetest.Job{Lasts: 2 * time.Hour, Spec: placetest.GPUs(1)})
	c.Add(placetest.Job{Lasts: time.Minute, Spec: placetest.GPUs(4)})

	return c
}

// TestConservativeKeepsTheSecondToo shows what sets it apart from EASY: a job
// that delays the second in line, and not the first, does not start.
func TestConservativeKeepsTheSecondToo(t *testing.T) {
	t.Parallel()

	for name, want := range map[string][]id.Job{"fifo": {"j5"}, "conservative": nil} {
		c := placetest.NewCluster()
		c.Box("a", 4)
		c.Box("b", 4)
		c.Add(placetest.Lasting(time.Hour, 4))   // runs on a
		c.Add(placetest.Lasting(2*time.Hour, 2)) // runs on b

		for _, s := range c.Plan().Starts {
			c.Book(s)
		}

		c.Add(placetest.Lasting(5*time.Hour, 4)) // on a, in an hour
		c.Add(placetest.Lasting(time.Hour, 4))   // on b, in two hours
		c.Add(placetest.Lasting(3*time.Hour, 2)) // fits on b now, and would be in the way there

		if diff := cmp.Diff(want, placetest.Started(placetest.Policy(name).Plan(c.View()))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
