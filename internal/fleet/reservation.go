package fleet

import (
	"fmt"
	"math/bits"
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

// Upcoming is the next reservation of a node that has not begun.
type Upcoming struct {
	Reservation *Reservation
	// Longest is the length of the longest runs of others that end before it begins, as RunLength rounds lengths.
	Longest job.Duration
}

// UpcomingAt returns a reservation as it is upcoming at a time before it begins.
func UpcomingAt(r *Reservation, now time.Time) *Upcoming {
	minutes := max(int(r.From.Sub(now)/time.Minute), 0)

	return &Upcoming{Reservation: r, Longest: job.Duration(minutes&^(stepOf(minutes)-1)) * job.Duration(time.Minute)}
}

// Until returns until when runs of the length Longest end before it begins.
func (u *Upcoming) Until() time.Time { return u.Reservation.From.Add(-time.Duration(u.Longest)) }

// RunLength rounds the length of a run up to one of a few values, by an eighth at most beyond some minutes, so that
// jobs of about the same length have the same need.
func RunLength(d time.Duration) job.Duration {
	minutes := int((d + time.Minute - 1) / time.Minute)
	step := stepOf(minutes)

	return job.Duration((minutes+step-1)&^(step-1)) * job.Duration(time.Minute)
}

// stepOf returns the distance between two lengths of runs of about so many minutes: lengths have four binary digits.
func stepOf(minutes int) int {
	const digits = 4
	return 1 << max(bits.Len(uint(minutes))-digits, 0)
}

// Words says for whom and how long, as a clause: "reserved for ada until 2026-11-16 18:00 UTC".
func (r *Reservation) Words() string {
	return fmt.Sprintf("reserved for %s until %s", r.User, r.Until.UTC().Format("2006-01-02 15:04 UTC"))
}
