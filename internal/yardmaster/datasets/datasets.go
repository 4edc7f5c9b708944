// Package datasets keeps the yard's datasets: where they may be used, which nodes have a
// copy, and where they were used.
//
// It serves the steps submit and place of a job's path: it says where the rules of its
// datasets allow a job to run. It stops and moves no job when a rule changes; the yardmaster
// does.
package datasets

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
	"trainyard/internal/yardmaster/batch"
)

// Datasets is the catalogue with what has changed in it. It is not safe for concurrent use.
type Datasets struct {
	*dataset.Catalogue
	feed    *batch.Feed
	copies  map[id.Node][]job.DataCopy // as nodes last reported them to this process
	changed []dataset.Dataset
	uses    []dataset.Use
}

// New returns an empty catalogue. Events go to the feed.
func New(r dataset.Network, feed *batch.Feed) *Datasets {
	return &Datasets{Catalogue: dataset.NewCatalogue(r), feed: feed, copies: map[id.Node][]job.DataCopy{}}
}

// Load restores the stored datasets.
func (d *Datasets) Load(s *batch.State) {
	for _, set := range s.Datasets {
		d.Catalogue.Put(set)
	}
}

// Take moves what has changed into a batch.
func (d *Datasets) Take(b *batch.Batch) {
	b.Datasets, d.changed = d.changed, nil
	b.Uses, d.uses = d.uses, nil
}

// All returns all datasets by name.
func (d *Datasets) All() []dataset.Dataset {
	var list []dataset.Dataset
	for _, set := range d.List() {
		list = append(list, *set)
	}

	return list
}

// Put registers, changes or removes a dataset. If its rule changed or it was removed, change
// describes that in words; otherwise it is "".
func (d *Datasets) Put(now time.Time, set dataset.Dataset, by id.User) (put dataset.Dataset, change string, err error) {
	if err := set.Validate(); err != nil {
		return set, "", err
	}

	kind, words := "data.added", "registered by "+string(by)

	old, known := d.Get(set.ID)
	if known {
		set.Seq = old.Seq
		set.Created = old.Created
		set.Owner = old.Owner

		kind, words = "data.changed", "changed by "+string(by)
		if old.Rule != set.Rule {
			words += fmt.Sprintf(": place changed from %s to %s", old.Rule, set.Rule)
		}

		set.Copies = old.MergeCopies(set.Copies, set.Source)
	} else {
		if set.Removed {
			return set, "", fault.New(fault.NotFound, "no_dataset", "there is no dataset %s", set.ID)
		}

		set.Created, set.Owner = now, by
	}

	if set.Removed {
		kind, words = "data.removed", "removed by "+string(by)
	}

	set.Seq++
	d.changed = append(d.changed, *d.Catalogue.Put(set))
	d.feed.Add(now, batch.Event{Kind: kind, Actor: string(by), Owner: set.Owner, To: string(set.ID), Reason: words})

	if known && old.Rule == set.Rule && !set.Removed {
		words = ""
	}

	return set, words, nil
}

// Place returns where a job may run now. A dataset whose rule was changed since the
// job was submitted may leave it no place at all.
func (d *Datasets) Place(j *job.Job) job.Place {
	if j.Override.Place != "" {
		return j.Override.Place
	}
	if len(j.Spec.Data) == 0 {
		return j.Spec.Place
	}

	place, err := d.PlaceOf(j.Spec.Place, j.Spec.Data)
	if err != nil {
		return job.PlaceNowhere
	}

	return place
}

// Rule says which dataset keeps a job from running elsewhere, "" if none does.
func (d *Datasets) Rule(j *job.Job) string {
	if j.Override.Place != "" {
		return ""
	}

	return d.RuleText(j.Spec.Place, j.Spec.Data)
}

// Allows reports whether a job may use a dataset on a node.
func Allows(set *dataset.Dataset, j *job.Job, n *fleet.Node) bool {
	return n.Class.Allows(cmp.Or(j.Override.Place, set.Rule))
}

// RecordUse records that a run uses the data of its job on a node, for the audit.
func (d *Datasets) RecordUse(now time.Time, j *job.Job, name string, run id.Run, n *fleet.Node) {
	override := ""
	if set, known := d.Get(id.Dataset(name)); j.Override.Place != "" && (!known || !n.Class.Allows(set.Rule)) {
		override = string(j.Override.By) + ": " + j.Override.Why
	}

	d.uses = append(
		d.uses,
		dataset.Use{
			Dataset:  id.Dataset(name),
			Run:      run,
			Job:      j.ID,
			Owner:    j.Owner,
			Node:     n.ID,
			Cloud:    n.Class != fleet.Local,
			At:       now,
			Override: override,
		},
	)
}

// SetCopies records which datasets a node has fetched and still has, so that staging them
// there costs nothing the next time, and reports whether anything changed. Every report of a
// node lists them, so the list is compared with the last one first.
func (d *Datasets) SetCopies(now time.Time, n id.Node, copies []job.DataCopy) (changed bool) {
	if last, ok := d.copies[n]; ok && slices.Equal(last, copies) {
		return false
	}

	d.copies[n] = slices.Clone(copies)
	for _, set := range d.SetStaged(now, n, copies) {
		d.changed = append(d.changed, set)
		kind, words := "data.gone", "no longer on the node"
		if set.Has(dataset.Spot{Node: n}) {
			kind, words = "data.staged", "staged on the node"
		}

		d.feed.Add(
			now,
			batch.Event{Kind: kind, Actor: "node/" + string(n), Owner: set.Owner, Node: n, To: string(set.ID), Reason: words},
		)

		changed = true
	}

	return changed
}

// ForgetCopies drops the copies of a node that is lost or removed, and reports whether it had
// any.
func (d *Datasets) ForgetCopies(now time.Time, n id.Node) (changed bool) {
	changed = d.SetCopies(now, n, nil)
	delete(d.copies, n)
	return changed
}

// Misplaced returns those of a node's copies that it must delete: of datasets whose rule
// forbids them there, or that are no longer registered with that source.
func (d *Datasets) Misplaced(n *fleet.Node, copies []job.DataCopy) []job.DataCopy {
	return slices.DeleteFunc(slices.Clone(copies), func(c job.DataCopy) bool {
		set, known := d.Get(id.Dataset(c.Name))
		return known && set.Source == c.Source && n.Class.Allows(set.Rule)
	})
}
