package placetest

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/baseline"
)

// Policy returns a policy by name.
func Policy(name string) place.Policy {
	make, err := baseline.Policies().Make(name)
	if err != nil {
		panic(err)
	}

	return make()
}

// failer is the part of a test that a world uses.
type failer interface {
	Fatalf(format string, args ...any)
}

// World lets a cluster live under a policy, in virtual time. Jobs end when they
// have done their work, or have run as long as they last.
type World struct {
	*Cluster
	Policy place.Policy
	wakeAt time.Time
	Ended  map[id.Job]time.Time
	Stops  int
	After  func(p place.Plan) // called with each plan that was carried out; may be nil
}

// NewWorld puts a cluster under a policy.
func NewWorld(c *Cluster, p place.Policy) *World {
	return &World{Cluster: c, Policy: p, Ended: map[id.Job]time.Time{}}
}

// Round carries out one plan of the policy.
func (w *World) Round(t failer) place.Plan {
	v := w.View()
	p := w.Policy.Plan(v)
	if _, bad := place.Check(v, p); len(bad) > 0 {
		t.Fatalf("%s: the plan does not pass the check: %v", w.Policy.Name(), bad)
	}

	w.wakeAt = p.WakeAt
	for _, s := range p.Stops {
		w.stop(s.Running)
		w.Stops++
	}

	for _, s := range p.Starts {
		w.Book(s)
	}

	if w.After != nil {
		w.After(p)
	}

	return p
}

// end is when a running job will end.
func (w *World) end(r *place.Running) time.Time {
	if at, known := r.ExpectedEnd(w.Now); known {
		return at
	}
	if r.Outlook.Speed != nil || r.Lasts == 0 {
		return w.Now.AddDate(100, 0, 0)
	}

	had := time.Duration(r.Outlook.Served / float64(max(r.GPUs, 1)) * float64(time.Second))

	return r.Began.Add(r.Takes - had)
}

// Step goes to the next time at which something happens, at most until then, and
// reports whether there is one.
func (w *World) Step(t failer, until time.Time) bool {
	next := until
	for _, r := range w.Runs {
		if at := w.end(r); at.Before(next) {
			next = at
		}
	}

	if !w.wakeAt.IsZero() && w.wakeAt.Before(next) {
		next = w.wakeAt
	}

	if !next.After(w.Now) && !w.wakeAt.IsZero() && !w.wakeAt.After(w.Now) {
		t.Fatalf("%s sets WakeAt to %s, which is not in the future", w.Policy.Name(), w.wakeAt)
	}

	w.Now = next
	for _, r := range slices.Clone(w.Runs) {
		if !w.end(r).After(w.Now) {
			w.Leave(r)
			w.Ended[r.Job] = w.Now
		}
	}

	w.Round(t)

	return next.Before(until)
}

// Live lets everything happen until nothing does, or a year has passed.
func (w *World) Live(t failer) {
	until := w.Now.AddDate(1, 0, 0)
	w.Round(t)

	for steps := 0; w.Step(t, until); steps++ {
		if steps > 20_000 {
			t.Fatalf("%s never comes to rest: %d stops", w.Policy.Name(), w.Stops)
		}
	}
}

// Counts is how many GPUs each job has now, by the order of submission.
func (w *World) Counts() []int {
	list := make([]int, len(w.Items))
	for _, r := range w.Runs {
		list[r.Number-1] = r.GPUs
	}

	return list
}

// Curve is a speed with these rates on 1, 2, … GPUs.
func Curve(work float64, rates ...float64) *job.Speed {
	list := make([]job.Rate, 0, len(rates))
	for i, r := range rates {
		if r > 0 {
			list = append(list, job.Rate{GPUs: i + 1, PerSecond: r})
		}
	}

	return job.NewSpeed(work, 0, 0, list...)
}

// UpTo is a need of 1 to n GPUs anywhere.
func UpTo(n int) job.Resources {
	return job.Resources{GPUs: job.Range{Min: 1, Max: n}, Nodes: job.Range{Min: 1, Max: 16}}
}

// Feasible reports whether a job could start if the nodes were empty.
func Feasible(rooms []fleet.Room, need fleet.Need) bool {
	m, found := fleet.NewMatcher(need), 0
	for i := range rooms {
		if rooms[i].Open && m.Eligible(&rooms[i]) {
			found++
		}
	}

	return found >= need.Nodes
}

// Lasting is a job of the given duration that needs n GPUs.
func Lasting(d time.Duration, n int) Job { return Job{Lasts: d, Spec: GPUs(n)} }

// StoppedBy names the jobs that a plan stops.
func StoppedBy(p place.Plan) []id.Job {
	var jobs []id.Job
	for _, s := range p.Stops {
		jobs = append(jobs, s.Running.Job)
	}

	return jobs
}
