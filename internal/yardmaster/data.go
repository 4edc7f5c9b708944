package yardmaster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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
	d := m.Dataset
	if err := d.Validate(); err != nil {
		return nil, err
	}
	kind, words := "data.added", "registered by "+string(m.By)
	old, known := y.data.Get(d.ID)
	if known {
		d.Seq, d.Created, d.Owner = old.Seq, old.Created, old.Owner
		kind, words = "data.changed", "changed by "+string(m.By)
		if old.Rule != d.Rule {
			words += fmt.Sprintf(": it was %s and is %s", old.Rule, d.Rule)
		}
		d.Copies = old.Keep(d.Copies, d.Source)
	} else {
		if d.Removed {
			return nil, fault.New(fault.NotFound, "no_dataset", "there is no dataset %s", d.ID)
		}
		d.Created, d.Owner = y.now, m.By
	}
	if d.Removed {
		kind, words = "data.removed", "removed by "+string(m.By)
	}
	d.Seq++
	y.out.datasets = append(y.out.datasets, *y.data.Put(d))
	y.event(Event{Kind: kind, Actor: string(m.By), Owner: d.Owner, To: string(d.ID), Reason: words})
	if !known || old.Rule != d.Rule || d.Removed {
		y.ruled(&d, words)
	}
	return d, nil
}

// ruled lets the jobs that use a dataset keep to its new rule: those that wait look for
// another place, and those that run where it may not be any more are stopped. That it
// is not registered any more stops none: its rule did not change.
func (y *Yard) ruled(d *dataset.Dataset, words string) {
	for _, j := range sortedKeys(y.jobs) {
		r := y.jobs[j]
		if r.State.Final() || !slices.Contains(r.Spec.Data, string(d.ID)) {
			continue
		}
		y.recast(r)
		if r.run == nil || d.Removed || r.run.Stop != job.StopNone {
			continue
		}
		if at := y.forbidden(r, d); at != nil {
			r.run.why = fmt.Sprintf("dataset %s may only be used on %s nodes (%s), and %s is a %s node", d.ID, d.Rule, words, at.ID, at.Class)
			y.stop(r.run, job.StopTerm, job.CausePreempted)
			y.event(Event{Kind: "run.stopping", Actor: theYard, Owner: r.Owner, Job: r.ID, Run: r.run.ID, Node: at.ID, Reason: r.run.why})
		}
	}
	y.freed = y.freed || len(y.promises) > 0
}

// recast lets a job that waits look for another place, and plans know where one that
// runs may be moved.
func (y *Yard) recast(r *jobRecord) {
	switch {
	case r.item != nil:
		y.dequeue(r)
		y.enqueue(r)
	case r.entry != nil:
		entry := *r.entry
		entry.Shape = &queue.Shape{Need: y.need(r)}
		if r.entry = &entry; r.running != nil {
			r.running.Item = r.entry
		}
	}
}

// forbidden returns the first node of a job's run on which a dataset may not be used by it, nil if there is none.
func (y *Yard) forbidden(r *jobRecord, d *dataset.Dataset) *fleet.Node {
	place := cmp.Or(r.Override.Place, d.Rule)
	for i := range r.run.Ranks {
		if n := y.nodeOf(r.run.Ranks[i].Node); n != nil && !n.Class.Allows(place) {
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
		return nil, fault.New(fault.Invalid, "no_reason", "say why the job may run against the rules of its data").WithField("why")
	}
	r.Override = job.Override{Place: m.Place, By: m.By, Why: m.Why, At: y.now}
	y.changedJob(r)
	y.event(Event{Kind: "data.override", Actor: string(m.By), Owner: r.Owner, Job: r.ID, To: string(m.Place),
		Reason: fmt.Sprintf("%s lets it run on %s nodes whatever the rules of its data: %s", m.By, m.Place, m.Why)})
	y.recast(r)
	y.freed = y.freed || len(y.promises) > 0
	return r.Job, nil
}

// need returns what a job asks of nodes, at the place that the rules of its data leave it.
func (y *Yard) need(r *jobRecord) fleet.Need {
	n := fleet.NeedOf(r.Spec, r.Floor, r.Avoid)
	n.Place = y.placeOf(r)
	return n
}

// placeOf returns where a job may run now. A dataset whose rule was changed since the
// job was submitted may leave it no place at all.
func (y *Yard) placeOf(r *jobRecord) job.Place {
	if r.Override.Place != "" {
		return r.Override.Place
	}
	if len(r.Spec.Data) == 0 {
		return r.Spec.Place
	}
	place, err := y.data.PlaceOf(r.Spec.Place, r.Spec.Data)
	if err != nil {
		return job.PlaceNowhere
	}
	return place
}

// used writes down where a run uses which data, for the audit.
func (y *Yard) used(r *jobRecord, run *runRecord) {
	for _, name := range r.Spec.Data {
		d, known := y.data.Get(id.Dataset(name))
		for i := range run.Ranks {
			n, ok := y.nodes[run.Ranks[i].Node]
			if !ok {
				continue
			}
			override := ""
			if r.Override.Place != "" && (!known || !n.Class.Allows(d.Rule)) {
				override = string(r.Override.By) + ": " + r.Override.Why
			}
			y.out.uses = append(y.out.uses, dataset.Use{Dataset: id.Dataset(name), Run: run.ID, Job: r.ID, Owner: r.Owner, Node: n.ID, Cloud: n.Class != fleet.Local, At: y.now, Override: override})
		}
	}
}

// stage tells how long it takes to bring a job's data to a node, and what that costs.
func (y *Yard) stage(it *queue.Item, n *fleet.Node) (time.Duration, float64) {
	if len(it.Spec.Data) == 0 {
		return 0, 0
	}
	return y.data.Stage(it.Spec.Data, spotOf(n), func(name id.Node) bool {
		o, ok := y.nodes[name]
		return ok && o.Class != fleet.Local
	})
}

func spotOf(n *fleet.Node) dataset.Spot {
	return dataset.Spot{Node: n.ID, Pool: n.Pool, Cloud: n.Class != fleet.Local}
}

// keeps notes which datasets a node has fetched and keeps, so that bringing them there
// costs nothing the next time. What it said last is compared first: it says so in every report.
func (y *Yard) keeps(n *nodeRecord, kept []job.DataCopy) {
	if n.told && slices.Equal(n.kept, kept) {
		return
	}
	n.told, n.kept = true, slices.Clone(kept)
	for _, d := range y.data.Hold(y.now, n.ID, kept) {
		y.out.datasets = append(y.out.datasets, d)
		kind, words := "data.gone", "the node does not keep it any more"
		if d.Has(dataset.Spot{Node: n.ID}) {
			kind, words = "data.staged", "the node has fetched it and keeps it"
		}
		y.event(Event{Kind: kind, Actor: "node/" + string(n.ID), Owner: d.Owner, Node: n.ID, To: string(d.ID), Reason: words})
		y.round = true
	}
}

// Misplaced returns what a node keeps and may not: data that its rule forbids there, and
// what is not registered like that any more.
func (y *Yard) Misplaced(name id.Node, kept []job.DataCopy) []job.DataCopy {
	n, ok := y.nodes[name]
	return slices.DeleteFunc(slices.Clone(kept), func(c job.DataCopy) bool {
		d, known := y.data.Get(id.Dataset(c.Name))
		return !ok || known && d.Source == c.Source && n.Class.Allows(d.Rule)
	})
}

// rule says which dataset keeps a job from running elsewhere, "" if none does.
func (y *Yard) rule(j id.Job) string {
	r, ok := y.jobs[j]
	if !ok || r.Override.Place != "" {
		return ""
	}
	return y.data.Binds(r.Spec.Place, r.Spec.Data)
}
