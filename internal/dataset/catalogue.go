package dataset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Spot is where a dataset is needed: on a node, or on one that would be provisioned.
type Spot struct {
	Node  id.Node
	Pool  string
	Cloud bool
}

// Network is the bandwidth over which datasets are staged, and what transfers cost.
type Network struct {
	In     job.Bytes   // bytes per second on the same side, local or cloud
	Across job.Bytes   // bytes per second between local and cloud
	PerGB  money.PerGB // between local and cloud
}

// DefaultNetwork is the default: a local network of 1 GiB/s, a link of 1 Gbit/s to the cloud,
// and no charge.
func DefaultNetwork() Network { return Network{In: 1 << 30, Across: 120 << 20} }

// Catalogue is all datasets by name. It is not safe for concurrent use; a snapshot is.
type Catalogue struct {
	network  Network
	byName   map[id.Dataset]*Dataset // the values are replaced, never changed
	rules    map[id.Dataset]rule     // of all datasets; nil if they were not asked for since the last change
	snapshot *Catalogue              // current snapshot; nil if none was made since the last change
}

// NewCatalogue returns an empty catalogue.
func NewCatalogue(r Network) *Catalogue {
	return &Catalogue{network: r, byName: map[id.Dataset]*Dataset{}}
}

// Get returns a dataset.
func (c *Catalogue) Get(name id.Dataset) (*Dataset, bool) {
	d, ok := c.byName[name]
	return d, ok
}

// List returns all datasets by name.
func (c *Catalogue) List() []*Dataset {
	list := make([]*Dataset, 0, len(c.byName))
	for _, d := range c.byName {
		list = append(list, d)
	}

	slices.SortFunc(list, func(a, b *Dataset) int { return strings.Compare(string(a.ID), string(b.ID)) })

	return list
}

// Snapshot returns the catalogue as it is now. It must not be changed. Until the
// catalogue changes it is always the same one.
func (c *Catalogue) Snapshot() *Catalogue {
	if c.snapshot == nil {
		// Its rules are there already, because several may ask for them at a time.
		c.snapshot = &Catalogue{network: c.network, byName: maps.Clone(c.byName), rules: c.allRules()}
	}

	return c.snapshot
}

// catalogueRecord is a catalogue as it is written.
type catalogueRecord struct {
	Network  Network
	Datasets []*Dataset
}

// MarshalJSON writes the datasets by name.
func (c *Catalogue) MarshalJSON() ([]byte, error) {
	return json.Marshal(catalogueRecord{c.network, c.List()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Catalogue) UnmarshalJSON(text []byte) error {
	var r catalogueRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}

	*c = *NewCatalogue(r.Network)
	for _, d := range r.Datasets {
		c.Put(*d)
	}

	c.rules = rulesOf(c.List())

	return nil
}

// Put adds a dataset or replaces what is known of it.
func (c *Catalogue) Put(d Dataset) *Dataset {
	c.snapshot, c.rules = nil, nil
	if d.Removed {
		delete(c.byName, d.ID)
		return &d
	}

	c.byName[d.ID] = &d

	return &d
}

// PlaceOf returns where a job with this place and these datasets may run. It is an error if one
// of them is unknown or their rules exclude each other.
func (c *Catalogue) PlaceOf(place job.Place, names []string) (job.Place, error) {
	origin := "the job's place"

	for _, name := range names {
		d, ok := c.byName[id.Dataset(name)]
		if !ok {
			return place, c.unknown(name, func(*Dataset) bool { return true })
		}

		r := c.rule(d)

		next, possible := Narrow(place, r.place)
		if r.place == job.PlaceNowhere || !possible {
			return place, fault.New(fault.Invalid, "place_conflict", "%s, but %s is %s", r.words(d.ID), origin, place).
				WithField("data").
				WithRemedy("omit one of them, or ask the owner of the dataset to change its rule")
		}

		if next != place {
			place, origin = next, "the place of dataset "+name
		}
	}

	return place, nil
}

// CheckReaders refuses datasets that a user may not use. To them they are as if they were not registered.
func (c *Catalogue) CheckReaders(user id.User, member Members, names []string) error {
	for _, name := range names {
		if d, ok := c.byName[id.Dataset(name)]; !ok || !d.ReadBy(user, member) {
			return c.unknown(name, func(d *Dataset) bool { return d.ReadBy(user, member) })
		}
	}

	return nil
}

// unknown is the error about a dataset that is not registered, with names of others that may be shown.
func (c *Catalogue) unknown(name string, shown func(*Dataset) bool) error {
	e := fault.New(fault.Invalid, "no_dataset", "unknown dataset %q", name).WithField("data")
	known := slices.DeleteFunc(c.List(), func(d *Dataset) bool { return !shown(d) })
	if len(known) == 0 {
		return e.WithRemedy("register it first: trainyard data add %s --size 10GB --place local", name)
	}

	names := make([]string, 0, 5)
	for _, d := range known[:min(len(known), 5)] {
		names = append(names, string(d.ID))
	}

	return e.WithRemedy("known datasets: %s; register another with: trainyard data add", strings.Join(names, ", "))
}

// Has reports whether a dataset can be read at a spot without staging it.
func (d *Dataset) Has(s Spot) bool {
	return slices.ContainsFunc(d.Copies, func(c Copy) bool { return c.reaches(s) })
}

// sameSide reports whether some copy is on the same side, local or cloud, as a spot.
func (d *Dataset) sameSide(s Spot, cloud func(id.Node) bool) bool {
	return slices.ContainsFunc(d.Copies, func(c Copy) bool {
		if c.Node != "" {
			return cloud(c.Node) == s.Cloud
		}

		return c.At == job.PlaceAny || c.At != "" && (c.At == job.PlaceCloud) == s.Cloud
	})
}

// Stage returns how long staging datasets at a spot takes, and what it costs. cloud reports
// whether a node is in the cloud.
func (c *Catalogue) Stage(names []string, s Spot, cloud func(id.Node) bool) (d time.Duration, cost money.Amount) {
	for _, name := range names {
		set, ok := c.byName[id.Dataset(name)]
		if !ok || set.Size == 0 || set.Has(s) {
			continue
		}

		if set.sameSide(s, cloud) {
			d += travel(set.Size, c.network.In)
			continue
		}

		d += travel(set.Size, c.network.Across)
		cost += c.network.PerGB.Moving(int64(set.Size))
	}

	return d, cost
}

func travel(size, rate job.Bytes) time.Duration {
	if rate <= 0 {
		return 0
	}

	return job.Seconds(float64(size) / float64(rate))
}

// Use is one use of a dataset by a run on a node: an entry of the audit.
type Use struct {
	Dataset  id.Dataset
	Run      id.Run
	Job      id.Job
	Owner    id.User
	Node     id.Node
	Cloud    bool // the node is not local
	At       time.Time
	Override string // who overrode the rule and why, "" if the rule was kept
}

// Validate reports what is wrong with a dataset that someone wants to register.
func (d *Dataset) Validate() error {
	switch {
	case !id.Name(string(d.ID)):
		return fault.New(fault.Invalid, "dataset_name", "invalid dataset name %q", d.ID).WithField("name").
			WithRemedy("use at most %d lower-case letters, digits, '-', '_' and '.'", id.MaxName)
	case d.Rule != job.PlaceAny && d.Rule != job.PlaceLocal && d.Rule != job.PlaceCloud:
		return fault.New(fault.Invalid, "dataset_place", "place must be local, cloud or any, got %q", d.Rule).
			WithField("place")
	case d.Size < 0:
		return fault.New(fault.Invalid, "dataset_size", "size must not be negative, got %d", d.Size).WithField("size")
	case len(d.Readers) > maxReaders:
		return fault.New(fault.Invalid, "dataset_readers", "a dataset may have at most %d readers, got %d",
			maxReaders, len(d.Readers)).
			WithField("readers")
	case len(d.Copies) > maxCopies:
		return fault.New(fault.Invalid, "dataset_copies", "a dataset may have at most %d copies, got %d",
			maxCopies, len(d.Copies)).
			WithField("copies")
	}

	for _, r := range d.Readers {
		name := string(r)
		if p, is := r.Project(); is {
			name = string(p)
		}

		if !id.Name(name) {
			return fault.New(fault.Invalid, "dataset_readers", "readers must be users or project/NAME, got %.100q", r).
				WithField("readers")
		}
	}

	if _, err := ParseSource(d.Source); err != nil {
		return err
	}

	for i, c := range d.Copies {
		named := 0
		for _, given := range []bool{c.Node != "", c.Pool != "", c.At != ""} {
			if given {
				named++
			}
		}

		if named != 1 {
			return fault.New(fault.Invalid, "dataset_copy", "a copy must have exactly one of node, pool and at").
				WithField(fmt.Sprintf("copies[%d]", i))
		}

		if d.Rule != job.PlaceAny && (c.At == job.PlaceAny || c.At != "" && c.At != d.Rule) {
			return fault.New(fault.Invalid, "dataset_copy", "a copy of a dataset with place %s cannot be at %s", d.Rule, c.At).
				WithField(fmt.Sprintf("copies[%d]", i))
		}
	}

	return nil
}

const (
	maxCopies  = 10_000
	maxReaders = 1000
)
