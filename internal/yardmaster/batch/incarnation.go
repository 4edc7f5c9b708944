package batch

import (
	"fmt"
	"time"

	"trainyard/internal/id"
)

// Incarnation is one history of the yard. A new one begins when it turns out that the database was
// restored from a backup: what happened after the backup is unknown then, while nodes may still
// have runs of that time.
type Incarnation struct {
	Number  uint64 // 1 for the first; 0 if the yard has none, as in simulations
	Mark    id.UID // random; tells apart two incarnations of the same number
	Began   time.Time
	Settled time.Time // when all runs of the history before it had surely been stopped; zero if not yet
	Reason  string    // how the restore was recognised
	Last    Numbers   // greatest numbers that earlier incarnations may have used
}

// Numbers are the greatest numbers in use.
type Numbers struct {
	Job, Lease, Event uint64
	User              uint64 `json:",omitempty"`
}

// Max returns the greater of each.
func (n Numbers) Max(o Numbers) Numbers {
	return Numbers{
		Job: max(n.Job, o.Job), Lease: max(n.Lease, o.Lease), Event: max(n.Event, o.Event), User: max(n.User, o.User),
	}
}

// numberStep is what numbers are rounded up to after a restore. Nobody knows exactly how far the
// history that was lost had come, and an id that a person has written down should not soon name
// another job.
const numberStep = 1000

// userStep is the same for the numbers of users, which are few and become user ids on nodes.
const userStep = 100

// beyond returns numbers that are greater than these and easy to tell from them.
func (n Numbers) beyond() Numbers {
	up := func(n, step uint64) uint64 { return (n/step + 1) * step }

	return Numbers{
		Job: up(n.Job, numberStep), Lease: up(n.Lease, numberStep), Event: up(n.Event, numberStep), User: up(n.User,
			userStep),
	}
}

// After returns the incarnation that follows this one, and any of which only the number is known,
// when a restore has been recognised. found are the greatest numbers of which there is a trace.
func (i *Incarnation) After(now time.Time, number uint64, found Numbers, reason string) Incarnation {
	return Incarnation{
		Number: max(i.Number, number, 1) + 1, Began: now, Reason: reason,
		Last: found.Max(i.Last).beyond(),
	}
}

// Unsettled reports whether runs of an earlier history may still be alive.
func (i *Incarnation) Unsettled() bool { return i.Number > 1 && i.Settled.IsZero() }

// Event returns the event that an incarnation has begun.
func (i *Incarnation) Event() Event {
	return Event{Kind: "yard.restored", Actor: Yard, Reason: fmt.Sprintf(
		"the database was restored from a backup: %s; numbers of jobs continue after j%d", i.Reason, i.Last.Job)}
}
