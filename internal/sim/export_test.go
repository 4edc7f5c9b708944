package sim

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// Simulation is a simulation that a test takes one step at a time.
type Simulation struct{ s *simulation }

// Begin begins a simulation without taking a step.
func Begin(cfg Config) (*Simulation, error) {
	s, err := newSimulation(cfg)
	return &Simulation{s}, err
}

// Yard returns the yard.
func (s *Simulation) Yard() *yardmaster.Yard {
	return s.s.yard.(*yardmaster.Yard) //nolint:forcetypeassert // a simulation has its own
}

// Now returns the virtual time.
func (s *Simulation) Now() time.Time { return s.s.time() }

// Step lets everything happen that happens next, up to a time. It reports whether there was
// something.
func (s *Simulation) Step(until time.Duration) (bool, error) {
	at, more := s.s.next()
	if !more || at > until {
		return false, nil
	}

	err := s.s.pass(at)
	if err == nil {
		err = s.s.failed
	}

	return true, err
}

// Close lets nobody submit anything and nothing happen to nodes from now on.
func (s *Simulation) Close() {
	s.s.arrival, s.s.change, s.s.cfg.Jobs, s.s.cfg.Changes = nil, nil, nil, nil
}

// Submit submits a job now and lets the yard decide. It returns "" for one that is refused.
func (s *Simulation) Submit(j *Job) (id.Job, error) {
	known := map[id.Job]bool{}
	for n := range s.s.jobs {
		known[n] = true
	}

	if err := s.s.submit(j); err != nil {
		return "", err
	}

	name := id.Job("")
	for n := range s.s.jobs {
		if !known[n] {
			name = n
		}
	}

	return name, s.s.pass(s.s.now)
}

// Do gives the yard a message and lets it decide.
func (s *Simulation) Do(m yardmaster.Message) error {
	s.s.step(m)
	return s.s.pass(s.s.now)
}

// Jobs returns the jobs that have been submitted and have not ended.
func (s *Simulation) Jobs() []id.Job {
	var list []id.Job
	for n := range s.s.jobs {
		list = append(list, n)
	}

	return list
}

// Spec returns what was submitted as a job that has not ended.
func (s *Simulation) Spec(j id.Job) *job.Spec { return s.s.jobs[j].job.Spec }

// Owner returns who submitted a job that has not ended.
func (s *Simulation) Owner(j id.Job) id.User { return s.s.jobs[j].job.Owner }

// Round makes a plan although none is due, and returns what of it could not be carried out.
func (s *Simulation) Round() []string {
	s.s.yard.Round(s.s.time())
	s.s.yard.TakeInto(&s.s.batch)

	var dropped []string
	for i := range s.s.batch.Events {
		if e := &s.s.batch.Events[i]; e.Kind == "plan.dropped" {
			dropped = append(dropped, string(e.Job)+": "+e.Reason)
		}
	}

	return dropped
}
