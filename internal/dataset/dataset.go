// Package dataset holds the noun dataset: named data, the rule that says where it
// may be, where it is, and what staging it elsewhere costs.
//
// The package is pure. The yardmaster keeps the datasets and enforces their rules
// at every start; policies price the staging; the agent fetches the data.
package dataset

import (
	"slices"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Dataset is named data.
type Dataset struct {
	ID      id.Dataset
	Seq     uint64
	Size    job.Bytes
	Rule    job.Place // where it may be: local, cloud or any
	Owner   id.User   // who registered it
	Source  string    // where it is fetched from, see ParseSource; "" if only copies are known
	Readers []Reader  // who may use it besides its owner; everybody if there are none
	Copies  []Copy
	Created time.Time
	Removed bool
}

// Copy is a place that has the data.
type Copy struct {
	Node id.Node   `json:"node,omitempty"` // on this node, or
	Pool string    `json:"pool,omitempty"` // reached by every node of this pool, or
	At   job.Place `json:"at,omitempty"`   // by every local or by every cloud node
	Path string    `json:"path,omitempty"` // on the node
	// Staged says that the node's agent fetched it, so that it knows when it is gone.
	Staged bool `json:"staged,omitempty"`
	// Since is when the copy was made.
	Since time.Time `json:"since,omitzero"`
}

// Reader is who may use a dataset: a user by name, or the members of a project as project/NAME.
type Reader string

// Project returns the project whose members a reader stands for.
func (r Reader) Project() (id.Project, bool) {
	name, is := strings.CutPrefix(string(r), "project/")
	return id.Project(name), is
}

// Members reports whether a user is a member of a project that has members.
type Members func(u id.User, p id.Project) bool

// ReadBy reports whether a user may use the dataset.
func (d *Dataset) ReadBy(user id.User, member Members) bool {
	return len(d.Readers) == 0 || user == d.Owner || slices.ContainsFunc(d.Readers, func(r Reader) bool {
		if p, is := r.Project(); is {
			return member(user, p)
		}

		return string(r) == string(user)
	})
}

// Narrow returns the place that satisfies both rules, and false if none does.
func Narrow(a, b job.Place) (job.Place, bool) {
	switch {
	case a == b || b == job.PlaceAny || b == "":
		return a, true
	case a == job.PlaceAny || a == "":
		return b, true
	}

	return a, false
}
