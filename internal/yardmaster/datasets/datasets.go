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
	"strings"
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
	member  dataset.Members
	removed map[id.Dataset]dataset.Dataset // whose names still belong to their owners
	copies  map[id.Node][]job.DataCopy     // as nodes last reported them to this process
	changed []dataset.Dataset
	uses    []dataset.Use
}

// New returns an empty catalogue. Events go to the feed; member says who is in a project.
func New(r dataset.Network, feed *batch.Feed, member dataset.Members) *Datasets {
	return &Datasets{
		Catalogue: dataset.NewCatalogue(r), feed: feed, member: member,
		removed: map[id.Dataset]dataset.Dataset{}, copies: map[id.Node][]job.DataCopy{},
	}
}

// Load restores the stored datasets.
func (d *Datasets) Load(s *batch.State) {
	for _, set := range s.Datasets {
		d.Catalogue.Put(set)

		if set.Removed {
			d.removed[set.ID] = set
		}
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

// Owner returns whom the name of a dataset belongs to, also after the dataset was removed; "" if it was never
// registered. What was recorded of its use is recorded under that name, and jobs may still have it.
func (d *Datasets) Owner(name id.Dataset) id.User {
	if set, known := d.Get(name); known {
		return set.Owner
	}

	return d.removed[name].Owner
}

// Change says in words why the jobs that use a dataset may be affected.
type Change struct {
	Dataset dataset.Dataset
	Words   string
}

// Put registers, changes or removes a dataset. It returns the datasets whose jobs are affected: if it was removed or if
// other people may use it that one, and all whose rule is another one now.
func (d *Datasets) Put(
	now time.Time, set dataset.Dataset, by id.User,
) (put dataset.Dataset, changes []Change, err error) {
	if err := set.Validate(); err != nil {
		return set, nil, err
	}

	old, known := d.Get(set.ID)
	kind, words := "data.added", "registered by "+string(by)

	switch former, was := d.removed[set.ID]; {
	case known:
		set.Seq, set.Created, set.Owner = old.Seq, old.Created, old.Owner
		set.Copies = old.MergeCopies(set.Copies, set.Source)
		kind, words = "data.changed", "changed by "+string(by)+differences(old, &set)
	case set.Removed:
		return set, nil, fault.New(fault.NotFound, "no_dataset", "dataset %s not found", set.ID)
	case was:
		set.Seq, set.Created, set.Owner = former.Seq, now, former.Owner
		delete(d.removed, set.ID)
	default:
		set.Created, set.Owner = now, by
	}

	if set.Removed {
		kind, words = "data.removed", "removed by "+string(by)
	}

	set.Seq++
	if set.Removed {
		d.removed[set.ID] = set
	}

	before := d.rules()
	d.changed = append(d.changed, *d.Catalogue.Put(set))
	d.feed.Add(now, batch.Event{Kind: kind, Actor: string(by), Owner: set.Owner, To: string(set.ID), Reason: words})

	if !known || set.Removed || !slices.Equal(old.Readers, set.Readers) || d.RuleOf(&set) != before[set.ID] {
		changes = append(changes, Change{set, words})
	}

	for _, other := range d.List() {
		if other.ID != set.ID && d.RuleOf(other) != before[other.ID] {
			changes = append(changes, Change{*other, fmt.Sprintf("dataset %s, which has the same data, %s", set.ID, words)})
		}
	}

	return set, changes, nil
}

// rules returns where all datasets may be used.
func (d *Datasets) rules() map[id.Dataset]job.Place {
	rules := map[id.Dataset]job.Place{}
	for _, set := range d.List() {
		rules[set.ID] = d.RuleOf(set)
	}

	return rules
}

// differences says what else there is to say about a change.
func differences(old, set *dataset.Dataset) string {
	var list []string
	if old.Rule != set.Rule {
		list = append(list, fmt.Sprintf("place changed from %s to %s", old.Rule, set.Rule))
	}

	if !slices.Equal(old.Readers, set.Readers) {
		list = append(list, "readers changed from "+readers(old)+" to "+readers(set))
	}

	if old.Source != set.Source {
		list = append(list, fmt.Sprintf("source changed from %s to %s",
			cmp.Or(dataset.Redacted(old.Source), "none"), cmp.Or(dataset.Redacted(set.Source), "none")))
	}

	if len(list) == 0 {
		return ""
	}

	return ": " + strings.Join(list, "; ")
}

func readers(set *dataset.Dataset) string {
	if len(set.Readers) == 0 {
		return "everybody"
	}

	names := make([]string, len(set.Readers))
	for i, u := range set.Readers {
		names[i] = string(u)
	}

	return strings.Join(names, ", ")
}

// Place returns where a job may run now. A dataset whose rule or readers were changed since the
// job was submitted may leave it no place at all.
func (d *Datasets) Place(j *job.Job) job.Place {
	if d.withheld(j) != "" {
		return job.PlaceNowhere
	}
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
	if name := d.withheld(j); name != "" {
		return fmt.Sprintf("dataset %s may no longer be used by %s", name, j.Owner)
	}
	if j.Override.Place != "" {
		return ""
	}

	return d.RuleText(j.Spec.Place, j.Spec.Data)
}

// ReadBy reports whether a user may use a dataset.
func (d *Datasets) ReadBy(set *dataset.Dataset, user id.User) bool { return set.ReadBy(user, d.member) }

// CheckReaders refuses datasets that a user may not use. To them they are as if they were not registered.
func (d *Datasets) CheckReaders(user id.User, names []string) error {
	return d.Catalogue.CheckReaders(user, d.member, names)
}

// withheld returns a dataset of a job that its owner may not use any more, "" if there is none.
func (d *Datasets) withheld(j *job.Job) string {
	for _, name := range j.Spec.Data {
		if set, known := d.Get(id.Dataset(name)); known && !d.ReadBy(set, j.Owner) {
			return name
		}
	}

	return ""
}

// Allows reports whether a job may use a dataset on a node.
func (d *Datasets) Allows(set *dataset.Dataset, j *job.Job, n *fleet.Node) bool {
	return d.ReadBy(set, j.Owner) && n.Class.Allows(cmp.Or(j.Override.Place, d.RuleOf(set)))
}

// RecordUse records that a run uses the data of its job on a node, for the audit.
func (d *Datasets) RecordUse(now time.Time, j *job.Job, name string, run id.Run, n *fleet.Node) {
	override := ""
	if set, known := d.Get(id.Dataset(name)); j.Override.Place != "" && (!known || !n.Class.Allows(d.RuleOf(set))) {
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
		return known && set.Source == c.Source && n.Class.Allows(d.RuleOf(set))
	})
}
