package yardmaster

import (
	"fmt"
	"slices"

	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
	"trainyard/internal/yardmaster/datasets"
)

// PutDataset registers a dataset, changes or removes it. The answer is the dataset.
type PutDataset struct {
	Dataset dataset.Dataset
	By      id.User
}

func (m PutDataset) handle(y *Yard) (any, error) {
	d, words, err := y.data.Put(y.now, m.Dataset, m.By)
	if err != nil {
		return nil, err
	}

	if words != "" {
		y.applyDataRule(&d, words)
	}

	return d, nil
}

// applyDataRule lets the jobs that use a dataset keep to its new rule: those that wait look for
// another place, and those that run where it may not be any more are stopped. That it
// is not registered any more stops none: its rule did not change.
func (y *Yard) applyDataRule(d *dataset.Dataset, words string) {
	for _, j := range sortedKeys(y.jobs) {
		r := y.jobs[j]
		if r.State.Final() || !slices.Contains(r.Spec.Data, string(d.ID)) {
			continue
		}

		y.requeue(r)

		if r.run == nil || d.Removed || r.run.Stop != job.StopNone {
			continue
		}

		if at := y.forbidden(r, d); at != nil {
			r.run.stopReason = fmt.Sprintf(
				"dataset %s may only be used on %s nodes (%s), and %s is a %s node",
				d.ID,
				d.Rule,
				words,
				at.ID,
				at.Class,
			)

			y.stop(r.run, job.StopTerm, job.CausePreempted)

			y.event(
				Event{
					Kind:   "run.stopping",
					Actor:  theYard,
					Owner:  r.Owner,
					Job:    r.ID,
					Run:    r.run.ID,
					Node:   at.ID,
					Reason: r.run.stopReason,
				},
			)
		}
	}

	y.freed = y.freed || len(y.promises) > 0
}

// requeue lets a job that waits look for another place, and plans know where one that
// runs may be moved.
func (y *Yard) requeue(r *jobRecord) {
	switch {
	case r.item != nil:
		y.dequeue(r)
		y.enqueue(r)
	case r.entry != nil:
		entry := *r.entry
		entry.Shape = &queue.Shape{Need: y.need(r)}
		r.entry = &entry
		if r.running != nil {
			r.running.Item = r.entry
		}
	}
}

// forbidden returns the first node of a job's run on which a dataset may not be used by it, nil if there is none.
func (y *Yard) forbidden(r *jobRecord, d *dataset.Dataset) *fleet.Node {
	for i := range r.run.Ranks {
		if n := y.nodes.Of(r.run.Ranks[i].Node); n != nil && !datasets.Allows(d, &r.Job, n) {
			return n
		}
	}

	return nil
}

// Override lets a job run against the place rules of its data. It is written down
// who did that and why. The answer is the job.
type Override struct {
	Job   id.Job
	Place job.Place
	By    id.User
	Why   string
}

func (m Override) handle(y *Yard) (any, error) {
	r, err := y.find(m.Job)
	if err != nil {
		return nil, err
	}
	if r.State.Final() {
		return nil, explainConflict(r, "let run elsewhere")
	}

	if m.Why == "" {
		return nil, fault.New(fault.Invalid, "no_reason", "say why the job may run against the rules of its data").
			WithField("why")
	}

	r.Override = job.Override{Place: m.Place, By: m.By, Why: m.Why, At: y.now}
	y.changedJob(r)
	y.event(Event{Kind: "data.override", Actor: string(m.By), Owner: r.Owner, Job: r.ID, To: string(m.Place),
		Reason: fmt.Sprintf("%s lets it run on %s nodes whatever the rules of its data: %s", m.By, m.Place, m.Why)})
	y.requeue(r)
	y.freed = y.freed || len(y.promises) > 0

	return r.Job, nil
}

// recordDataUse writes down where a run uses which data, for the audit.
func (y *Yard) recordDataUse(r *jobRecord, run *runRecord) {
	for _, name := range r.Spec.Data {
		for i := range run.Ranks {
			if n := y.nodes.Of(run.Ranks[i].Node); n != nil {
				y.data.Used(y.now, &r.Job, name, run.ID, n)
			}
		}
	}
}

// Misplaced returns what a node keeps and may not: data that its rule forbids there, and
// what is not registered like that any more.
func (y *Yard) Misplaced(name id.Node, kept []job.DataCopy) []job.DataCopy {
	n := y.nodes.Of(name)
	if n == nil {
		return nil
	}

	return y.data.Misplaced(n, kept)
}
