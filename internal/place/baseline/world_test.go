package baseline_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/baseline"
)

// policy returns a policy by name.
func policy(name string) place.Policy {
	make, err := baseline.Policies().Make(name)
	if err != nil {
		panic(err)
	}

	return make()
}

// failer is what of a test a world needs.
type failer interface {
	Fatalf(format string, args ...any)
}

// world lets a cluster live under a policy, in virtual time. Jobs end when they
// have done their work, or have run as long as they last.
type world struct {
	*cluster
	policy place.Policy
	again  time.Time
	begun  []id.Job // in the order of their first starts
	ended  map[id.Job]time.Time
	stops  int
	starts int
	after  func(p place.Plan) // told of each plan that was carried out
}

func newWorld(c *cluster, p place.Policy) *world {
	return &world{cluster: c, policy: p, ended: map[id.Job]time.Time{}}
}

// round asks the policy and does what it says.
func (w *world) round(t failer) place.Plan {
	v := w.view()
	p := w.policy.Plan(v)
	if _, bad := place.Check(v, p); len(bad) > 0 {
		t.Fatalf("%s: the plan does not pass the check: %v", w.policy.Name(), bad)
	}

	w.again = p.WakeAt
	for _, s := range p.Stops {
		w.stop(s.Running)
		w.stops++
	}

	for _, s := range p.Starts {
		if !slices.Contains(w.begun, s.Item.Job) {
			w.begun = append(w.begun, s.Item.Job)
		}

		w.book(s)
		w.starts++
	}

	if w.after != nil {
		w.after(p)
	}

	return p
}

// end is when a running job will end.
func (w *world) end(r *place.Running) time.Time {
	if at, known := r.ExpectedEnd(w.now); known {
		return at
	}
	if r.Outlook.Speed != nil || r.Lasts == 0 {
		return w.now.AddDate(100, 0, 0)
	}

	had := time.Duration(r.Outlook.Served / float64(max(r.GPUs, 1)) * float64(time.Second))

	return r.Began.Add(r.Lasts - had)
}

// step goes to the next time at which something happens, at most until then, and
// reports whether there is one.
func (w *world) step(t failer, until time.Time) bool {
	next := until
	for _, r := range w.runs {
		if at := w.end(r); at.Before(next) {
			next = at
		}
	}

	if !w.again.IsZero() && w.again.Before(next) {
		next = w.again
	}

	if !next.After(w.now) && !w.again.IsZero() && !w.again.After(w.now) {
		t.Fatalf("%s wants to be asked again at %s, which is not later", w.policy.Name(), w.again)
	}

	w.now = next
	for _, r := range slices.Clone(w.runs) {
		if !w.end(r).After(w.now) {
			w.leave(r)
			w.ended[r.Job] = w.now
		}
	}

	w.round(t)

	return next.Before(until)
}

// live lets everything happen until nothing does, or a year has passed.
func (w *world) live(t failer) {
	until := w.now.AddDate(1, 0, 0)
	w.round(t)

	for steps := 0; w.step(t, until); steps++ {
		if steps > 20_000 {
			t.Fatalf("%s never comes to rest: %d stops, %d starts", w.policy.Name(), w.stops, w.starts)
		}
	}
}

// counts is how many GPUs each job has now, by the order of submission.
func (w *world) counts() []int {
	list := make([]int, len(w.items))
	for _, r := range w.runs {
		list[r.Number-1] = r.GPUs
	}

	return list
}

// curve is a speed with these rates on 1, 2, … GPUs.
func curve(work float64, rates ...float64) *job.Speed {
	list := make([]job.Rate, 0, len(rates))
	for i, r := range rates {
		if r > 0 {
			list = append(list, job.Rate{GPUs: i + 1, PerSecond: r})
		}
	}

	return job.NewSpeed(work, 0, 0, list...)
}

// upTo is a need of 1 to n GPUs anywhere.
func upTo(n int) job.Resources {
	return job.Resources{GPUs: job.Range{Min: 1, Max: n}, Nodes: job.Range{Min: 1, Max: 16}}
}

func TestPoliciesAreListedByName(t *testing.T) {
	t.Parallel()
	last := ""
	for _, e := range baseline.Policies() {
		if e.Name <= last {
			t.Errorf("%s stands behind %s", e.Name, last)
		}

		last = e.Name

		p := policy(e.Name)
		if p.Name() != e.Name {
			t.Errorf("%s calls itself %s", e.Name, p.Name())
		}

		if e.Rule == "" {
			t.Errorf("%s has no rule", e.Name)
		}
	}
}

// BenchmarkPlan plans for 5,000 waiting jobs and 128 GPUs that are all in use.
func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"fifo", "sjf-easy", "srtf", "las", "fairshare", "elastic-fifo"} {
		b.Run(name, func(b *testing.B) {
			c := newCluster()
			for i := range 16 {
				c.box(fmt.Sprintf("n%02d", i), 8)
			}

			for i := range 5200 {
				c.add(
					want{spec: gpus(1 << (i % 4)), lasts: time.Duration(i%97+1) * time.Minute, user: id.User(fmt.Sprint("u", i%20))},
				)
			}

			w := newWorld(c, policy(name))
			w.round(b)

			v := w.view()
			for b.Loop() {
				w.policy.Plan(v)
			}
		})
	}
}
