// Package datasets is what the yard knows of data: which there are, where they may be
// used, which nodes keep a copy, and where they were used.
//
// It tells where the rules of its data leave a job to run; that jobs keep to a rule that
// has changed is up to the yardmaster.
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
	kept    map[id.Node][]job.DataCopy // what nodes said they keep, in this process and since they were lost
	changed []dataset.Dataset
	uses    []dataset.Use
}

// New returns an empty catalogue. What happens is told to the feed.
func New(r dataset.Roads, feed *batch.Feed) *Datasets {
	return &Datasets{Catalogue: dataset.NewCatalogue(r), feed: feed, kept: map[id.Node][]job.DataCopy{}}
}

// Load takes up what the store kept.
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

// Put registers a dataset, changes or removes it. It says in words how, if the rule of
// the dataset is another one since.
func (d *Datasets) Put(now time.Time, set dataset.Dataset, by id.User) (put dataset.Dataset, ruled string, err error) {
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
			words += fmt.Sprintf(": it was %s and is %s", old.Rule, set.Rule)
		}

		set.Copies = old.Keep(set.Copies, set.Source)
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
	d.feed.Tell(now, batch.Event{Kind: kind, Actor: string(by), Owner: set.Owner, To: string(set.ID), Reason: words})

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

	return d.Binds(j.Spec.Place, j.Spec.Data)
}

// Allows reports whether a job may use a dataset on a node.
func Allows(set *dataset.Dataset, j *job.Job, n *fleet.Node) bool {
	return n.Class.Allows(cmp.Or(j.Override.Place, set.Rule))
}

// Used writes down that a run uses the data of its job on a node, for the audit.
func (d *Datasets) Used(now time.Time, j *job.Job, name string, run id.Run, n *fleet.Node) {
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

// Keeps notes which datasets a node has fetched and keeps, so that bringing them there
// costs nothing the next time, and reports whether that is news. What it said last is
// compared first: it says so in every report.
func (d *Datasets) Keeps(now time.Time, n id.Node, kept []job.DataCopy) (news bool) {
	if last, told := d.kept[n]; told && slices.Equal(last, kept) {
		return false
	}

	d.kept[n] = slices.Clone(kept)
	for _, set := range d.Hold(now, n, kept) {
		d.changed = append(d.changed, set)
		kind, words := "data.gone", "the node does not keep it any more"
		if set.Has(dataset.Spot{Node: n}) {
			kind, words = "data.staged", "the node has fetched it and keeps it"
		}

		d.feed.Tell(
			now,
			batch.Event{Kind: kind, Actor: "node/" + string(n), Owner: set.Owner, Node: n, To: string(set.ID), Reason: words},
		)

		news = true
	}

	return news
}

// Lost says that nothing is known any more of what a node keeps, and reports whether
// that is news.
func (d *Datasets) Lost(now time.Time, n id.Node) (news bool) {
	news = d.Keeps(now, n, nil)
	delete(d.kept, n)
	return news
}

// Misplaced returns what a node keeps and may not: data that its rule forbids there, and
// what is not registered like that any more.
func (d *Datasets) Misplaced(n *fleet.Node, kept []job.DataCopy) []job.DataCopy {
	return slices.DeleteFunc(slices.Clone(kept), func(c job.DataCopy) bool {
		set, known := d.Get(id.Dataset(c.Name))
		return known && set.Source == c.Source && n.Class.Allows(set.Rule)
	})
}
