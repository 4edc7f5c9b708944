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
)

// PutDataset registers a dataset, changes or removes it. The answer is the dataset.
type PutDataset struct {
	Dataset dataset.Dataset
	By      id.User
}

func (m PutDataset) handle(y *Yard) (any, error) {
	d, changes, err := y.data.Put(y.now, m.Dataset, m.By)
	if err != nil {
		return nil, err
	}

	y.touchData()

	for i := range changes {
		y.applyDataRule(&changes[i].Dataset, changes[i].Words)
	}

	return d, nil
}

// applyDataRule enforces the new rule of a dataset on the jobs that use it: queued jobs are
// queued again with the new rule, and jobs that run where the dataset is no longer allowed
// are stopped. Removing a dataset stops no job, because its rule did not change.
func (y *Yard) applyDataRule(d *dataset.Dataset, change string) {
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
			y.evict(r.run, at.ID, theYard, y.evictedBy(r, d, at, change))
		}
	}

	y.promisesDue = y.promisesDue || len(y.promises) > 0
}

// evictedBy says why a job may not use a dataset on a node any more.
func (y *Yard) evictedBy(r *jobRecord, d *dataset.Dataset, at *fleet.Node, change string) string {
	if !y.data.ReadBy(d, r.Owner) {
		return fmt.Sprintf("dataset %s may no longer be used by %s (%s)", d.ID, r.Owner, change)
	}

	return fmt.Sprintf("dataset %s may only be used on %s nodes (%s); %s is %s",
		d.ID, y.data.RuleOf(d), change, at.ID, at.Class.Words())
}

// requeue brings the queue entry of a job up to date after its needs or its expected duration have changed: a queued
// job is queued again, and of a running one plans learn where it may be moved. Nodes that are being provisioned for a
// queued job are released only if it is held back now, or needs something else than when they were requested.
func (y *Yard) requeue(r *jobRecord) {
	switch {
	case r.item != nil:
		since, before := r.item.Since, r.item.Shape.Need
		y.leaveQueue(r)
		y.enqueueSince(r, since)

		if r.item == nil || !before.SameResources(r.item.Shape.Need) {
			y.leases.Abandon(y.now, r.ID)
		}
	case r.entry != nil:
		entry := *r.entry
		entry.Shape = &queue.Shape{Need: y.need(r)}
		r.entry = &entry
		if r.running != nil {
			r.running.Item = r.entry
		}

		y.touch(r)
	}
}

// forbidden returns the first node of a job's run on which it may not use a dataset, nil if
// there is none.
func (y *Yard) forbidden(r *jobRecord, d *dataset.Dataset) *fleet.Node {
	for i := range r.run.Ranks {
		if n := y.nodes.Of(r.run.Ranks[i].Node); n != nil && !y.data.Allows(d, &r.Job, n) {
			return n
		}
	}

	return nil
}

// Override lets a job run against the place rules of its data. An event records who did
// that and why. The answer is the job.
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
		return nil, fault.New(fault.Conflict, "job_state",
			"job %s has finished; the place rules of its data cannot be overridden any more", r.ID)
	}

	if m.Why == "" {
		return nil, fault.New(fault.Invalid, "no_reason", "why must not be empty").WithField("why").
			WithRemedy("say why the job may run against the place rules of its data")
	}

	r.Override = job.Override{Place: m.Place, By: m.By, Why: m.Why, At: y.now}
	y.changedJob(r)
	y.event(Event{Kind: "data.override", Actor: string(m.By), Owner: r.Owner, Job: r.ID, To: string(m.Place),
		Reason: fmt.Sprintf("place rules of its data overridden by %s: it may run on %s nodes (%s)", m.By, m.Place, m.Why)})
	y.requeue(r)
	y.promisesDue = y.promisesDue || len(y.promises) > 0

	return r.Job, nil
}

// recordDataUse records where a run uses which datasets, for the audit.
func (y *Yard) recordDataUse(r *jobRecord, run *runRecord) {
	for _, name := range r.Spec.Data {
		for i := range run.Ranks {
			if n := y.nodes.Of(run.Ranks[i].Node); n != nil {
				y.data.RecordUse(y.now, &r.Job, name, run.ID, n)
			}
		}
	}
}

// Misplaced returns those of a node's copies that it must delete: of datasets whose rule
// forbids them there, or that are no longer registered with that source.
func (y *Yard) Misplaced(name id.Node, copies []job.DataCopy) []job.DataCopy {
	n := y.nodes.Of(name)
	if n == nil {
		return nil
	}

	return y.data.Misplaced(n, copies)
}
