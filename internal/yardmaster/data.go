package yardmaster

import (
	"fmt"
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
	if known && old.Rule != d.Rule {
		y.replace(d.ID)
	}
	return d, nil
}

// replace lets the jobs that wait and use a dataset look for another place.
func (y *Yard) replace(name id.Dataset) {
	for _, it := range y.line.Items() {
		r := y.jobs[it.Job]
		for _, used := range r.Spec.Data {
			if used == string(name) {
				y.dequeue(r)
				y.enqueue(r)
				break
			}
		}
	}
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
	if r.item != nil {
		y.dequeue(r)
		y.enqueue(r)
	}
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
	override := ""
	if r.Override.Place != "" {
		override = string(r.Override.By) + ": " + r.Override.Why
	}
	for _, name := range r.Spec.Data {
		for i := range run.Ranks {
			n, ok := y.nodes[run.Ranks[i].Node]
			if !ok {
				continue
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
	return y.data.Stage(it.Spec.Data, dataset.Spot{Node: n.ID, Pool: n.Pool, Cloud: n.Class != fleet.Local}, func(name id.Node) bool {
		o, ok := y.nodes[name]
		return ok && o.Class != fleet.Local
	})
}
