package dataset

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Ref returns where a node at a spot finds or fetches a dataset. One that is not registered has
// neither source nor path.
func (c *Catalogue) Ref(name string, s Spot) job.DataRef {
	d, ok := c.byName[id.Dataset(name)]
	if !ok {
		return job.DataRef{Name: name}
	}

	ref := job.DataRef{Name: name, Size: d.Size, Source: d.Source}
	for _, known := range d.Copies {
		// The agent itself finds the copies that it has staged.
		if known.Path != "" && !known.Staged && known.reaches(s) {
			ref.Path = known.Path
			break
		}
	}

	return ref
}

// reaches reports whether a copy can be read at a spot.
func (c Copy) reaches(s Spot) bool {
	switch {
	case c.Node != "":
		return c.Node == s.Node
	case c.Pool != "":
		return c.Pool == s.Pool
	case c.At == job.PlaceAny:
		return true
	}

	return c.At != "" && (c.At == job.PlaceCloud) == s.Cloud
}

// SetStaged records which datasets a node has staged, in place of what it had before. It returns
// the datasets that changed, each with its next Seq, by name.
func (c *Catalogue) SetStaged(now time.Time, n id.Node, staged []job.DataCopy) []Dataset {
	var changed []Dataset
	for _, d := range c.List() {
		at := slices.IndexFunc(staged, func(k job.DataCopy) bool {
			return k.Name == string(d.ID) && k.Source == d.Source && d.Source != ""
		})
		var want *Copy
		if at >= 0 {
			want = &Copy{Node: n, Path: staged[at].Path, Staged: true, Since: now}
		}

		if next, differs := replaceStaged(d.Copies, n, want); differs {
			set := *d
			set.Copies = next
			set.Seq++
			c.Put(set)
			changed = append(changed, set)
		}
	}

	return changed
}

// replaceStaged puts the copy that a node's agent made, nil for none, in the place of
// the one that it had.
func replaceStaged(copies []Copy, n id.Node, want *Copy) ([]Copy, bool) {
	at := slices.IndexFunc(copies, func(c Copy) bool { return c.Staged && c.Node == n })
	switch {
	case at < 0 && want == nil, at >= 0 && want != nil && copies[at].Path == want.Path:
		return copies, false
	case at < 0 && len(copies) >= maxCopies:
		return copies, false // with so many copies one more makes no difference
	}

	next := slices.Clone(copies)
	if at >= 0 {
		next = slices.Delete(next, at, at+1)
	}

	if want != nil {
		next = append(next, *want)
	}

	return next, true
}

// MergeCopies returns the copies of a dataset after it was registered again: those that were
// given, and those that agents have staged from the same source.
func (d *Dataset) MergeCopies(given []Copy, source string) []Copy {
	next := slices.DeleteFunc(slices.Clone(given), func(c Copy) bool { return c.Staged })
	if source != d.Source {
		return next // the nodes have copies of another source
	}

	for _, c := range d.Copies {
		if c.Staged && len(next) < maxCopies {
			next = append(next, c)
		}
	}

	return next
}

// RuleText says which dataset restricts where a job with this place may run, "" if none does.
func (c *Catalogue) RuleText(place job.Place, names []string) string {
	if _, err := c.PlaceOf(place, names); err != nil {
		for _, name := range names {
			if _, ok := c.byName[id.Dataset(name)]; !ok {
				return fmt.Sprintf("dataset %s is no longer registered", name)
			}
		}

		var f *fault.Error
		if errors.As(err, &f) {
			return f.Message
		}

		return err.Error()
	}

	for _, name := range names {
		d := c.byName[id.Dataset(name)]
		r := c.rule(d)
		if next, _ := Narrow(place, r.place); next != place {
			return r.words(d.ID)
		}
	}

	return ""
}
