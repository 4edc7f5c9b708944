package yardmaster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// maxReserved bounds how long nodes are set aside.
const maxReserved = 90 * 24 * time.Hour

// AddReservation sets nodes aside for a user and a time. The answer is the fleet.Reservation.
type AddReservation struct {
	Reservation fleet.Reservation // ID, Seq, Added and Ended are set here
}

func (m AddReservation) handle(y *Yard) (any, error) {
	r := m.Reservation
	if err := y.checkReservation(&r); err != nil {
		return nil, err
	}

	y.lastReservation++
	r.ID, r.Seq, r.Added, r.Ended = id.NewReservation(y.lastReservation), 1, y.now, time.Time{}
	slices.Sort(r.Nodes)
	y.reservations[r.ID] = &r
	y.changedReservations = append(y.changedReservations, r)
	y.reservationEvent(&r, "reservation.added", string(r.By), fmt.Sprintf("added by %s, from %s", r.By,
		r.From.UTC().Format("2006-01-02 15:04 UTC")))
	y.watchReservation(&r)

	return r, nil
}

func (y *Yard) checkReservation(r *fleet.Reservation) error {
	if _, known := y.people.User(r.User); !known {
		return fault.New(fault.NotFound, "user_not_found", "user %s not found", r.User).WithField("user")
	}

	switch {
	case !r.From.Before(r.Until) || !r.Until.After(y.now):
		return fault.New(fault.Invalid, "bad_period", "the reservation must end after it begins, and in the future").
			WithField("until")
	case r.Until.Sub(r.From) > maxReserved:
		return fault.New(fault.Invalid, "bad_period", "a reservation lasts at most 90 days").WithField("until")
	case len(r.Nodes) == 0:
		return fault.New(fault.Invalid, "no_nodes", "a reservation needs at least one node").WithField("nodes")
	}

	for _, name := range r.Nodes {
		n, err := y.nodes.Find(name)
		if err != nil {
			return err
		}

		if n.Class == fleet.OnDemand {
			return fault.New(fault.Invalid, "node_not_reservable", "node %s is released when it is idle and cannot be reserved",
				name).
				WithField("nodes")
		}
	}

	for _, other := range sortedKeys(y.reservations) {
		o := y.reservations[other]
		if n, both := r.Overlaps(o); both && o.Ended.IsZero() {
			return fault.New(fault.Conflict, "already_reserved", "node %s is %s from %s (%s)", n, o.Words(),
				o.Closes().UTC().Format("2006-01-02 15:04 UTC"), o.ID).
				WithRemedy("choose another time or node, or remove it with: trainyard reservations rm %s", o.ID)
		}
	}

	return nil
}

// watchReservation does what is due of a reservation, and sets a timer for the rest.
func (y *Yard) watchReservation(r *fleet.Reservation) {
	if !r.Ended.IsZero() {
		return
	}

	var next time.Time
	switch {
	case y.now.Before(r.Closes()):
		next = y.announce(r)
	case y.now.Before(r.From):
		next = r.From
		y.setReserved(r, r)
	case y.now.Before(r.Until):
		next = r.Until
		y.setReserved(r, r)
		y.evictOthers(r)
	default:
		y.endReservation(r, theYard, "over")
		return
	}

	y.after(next, func() {
		if current := y.reservations[r.ID]; current == r {
			y.watchReservation(r)
		}
	})
}

// announceAhead is how long before it begins jobs are kept off the nodes of a reservation that would not end before.
const announceAhead = 14 * 24 * time.Hour

// announce makes known which runs of others still end before a reservation begins that is not closed to them yet, and
// returns when that changes.
func (y *Yard) announce(r *fleet.Reservation) time.Time {
	if from := r.From.Add(-announceAhead); y.now.Before(from) {
		return earlier(from, r.Closes())
	}

	for _, name := range r.Nodes {
		y.announceNext(name)
	}

	y.recheckOwners()

	return earlier(fleet.UpcomingAt(r, y.now).Until().Add(time.Second), r.Closes())
}

// announceNext makes known the next reservation of a node.
func (y *Yard) announceNext(name id.Node) {
	n, ok := y.nodes.Get(name)
	if !ok {
		return
	}

	var next *fleet.Upcoming

	for _, r := range y.reservations {
		if r.Ended.IsZero() && slices.Contains(r.Nodes, name) && y.now.Before(r.Closes()) &&
			!y.now.Before(r.From.Add(-announceAhead)) && (next == nil || r.From.Before(next.Reservation.From)) {
			next = fleet.UpcomingAt(r, y.now)
		}
	}

	y.nodes.Announce(n, next)
}

// setReserved reserves the nodes of a reservation, or ends that with nil.
func (y *Yard) setReserved(r, to *fleet.Reservation) {
	for _, name := range r.Nodes {
		if n, ok := y.nodes.Get(name); ok {
			y.nodes.Reserve(n, to)
		}

		y.announceNext(name)
	}

	y.recheckOwners()
	y.planDue = true
}

// evictOthers stops the runs of others on the nodes: they save a checkpoint and are requeued.
func (y *Yard) evictOthers(r *fleet.Reservation) {
	for _, name := range r.Nodes {
		n, ok := y.nodes.Get(name)
		if !ok {
			continue
		}

		for _, run := range sortedKeys(n.Runs) {
			rec := y.runs[run]
			if y.jobs[rec.Job].Owner != r.User {
				y.evict(rec, name, theYard, fmt.Sprintf("node %s is %s", name, r.Words()))
			}
		}
	}
}

// endReservation ends a reservation, so that the nodes are there for everybody.
func (y *Yard) endReservation(r *fleet.Reservation, actor, why string) fleet.Reservation {
	ended := *r
	ended.Seq++
	ended.Ended = y.now
	y.reservations[r.ID] = &ended
	y.changedReservations = append(y.changedReservations, ended)
	y.setReserved(r, nil)
	y.reservationEvent(&ended, "reservation.ended", actor, why)

	return ended
}

// RemoveReservation ends a reservation before its time. The answer is the fleet.Reservation.
type RemoveReservation struct {
	Reservation id.Reservation
	By          id.User
}

func (m RemoveReservation) handle(y *Yard) (any, error) {
	r, ok := y.reservations[m.Reservation]
	switch {
	case !ok:
		return nil, fault.New(fault.NotFound, "reservation_not_found", "reservation %s not found", m.Reservation).
			WithRemedy("list reservations with: trainyard reservations")
	case !r.Ended.IsZero():
		return *r, nil
	}

	return y.endReservation(r, string(m.By), "removed by "+string(m.By)), nil
}

// Reservations returns all reservations by the time at which they begin.
func (y *Yard) Reservations() []fleet.Reservation {
	list := make([]fleet.Reservation, 0, len(y.reservations))
	for _, r := range y.reservations {
		list = append(list, *r)
	}

	slices.SortFunc(list, func(a, b fleet.Reservation) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID))
	})

	return list
}

// loadReservations restores the reservations. Runs of others on nodes whose reservation has begun are stopped with the
// next tick.
func (y *Yard) loadReservations(list []fleet.Reservation) {
	for i := range list {
		r := &list[i]
		number, _ := r.ID.Number()
		y.lastReservation = max(y.lastReservation, number)
		y.reservations[r.ID] = r

		if !r.Ended.IsZero() {
			continue
		}

		for _, name := range r.Nodes {
			if n, ok := y.nodes.Get(name); ok && !y.now.Before(r.Closes()) {
				y.nodes.Reserve(n, r)
			}

			y.announceNext(name)
		}

		y.after(y.now, func() { y.watchReservation(r) })
	}
}

func (y *Yard) reservationEvent(r *fleet.Reservation, kind, actor, reason string) {
	for _, n := range r.Nodes {
		y.event(Event{
			Kind: kind, Actor: actor, Owner: r.User, Node: n, To: string(r.ID),
			Reason: fmt.Sprintf("reservation %s of node %s for %s: %s", r.ID, n, r.User, reason),
		})
	}
}
