package fleet

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Reservation sets nodes aside for one user for a time. It is never changed in place.
type Reservation struct {
	ID    id.Reservation `json:"id"`
	Seq   uint64         `json:"seq"`
	User  id.User        `json:"user"`
	Nodes []id.Node      `json:"nodes"`
	From  time.Time      `json:"from"`
	Until time.Time      `json:"until"`
	// Notice is how long before it begins no jobs of others start on the nodes any more.
	Notice job.Duration `json:"notice,omitempty"`
	Why    string       `json:"why,omitempty"`
	By     id.User      `json:"by"`
	Added  time.Time    `json:"added"`
	Ended  time.Time    `json:"ended,omitzero"` // when it was over or removed; zero until then
}

// Closes returns from when on no jobs of others start on the nodes.
func (r *Reservation) Closes() time.Time { return r.From.Add(-time.Duration(r.Notice)) }

// Overlaps reports whether two reservations need the same node at the same time, and which.
func (r *Reservation) Overlaps(other *Reservation) (id.Node, bool) {
	if !r.Closes().Before(other.Until) || !other.Closes().Before(r.Until) {
		return "", false
	}

	for _, n := range r.Nodes {
		if slices.Contains(other.Nodes, n) {
			return n, true
		}
	}

	return "", false
}

// Words says for whom and how long, as a clause: "reserved for ada until 2026-11-16 18:00 UTC".
func (r *Reservation) Words() string {
	return fmt.Sprintf("reserved for %s until %s", r.User, r.Until.UTC().Format("2006-01-02 15:04 UTC"))
}
