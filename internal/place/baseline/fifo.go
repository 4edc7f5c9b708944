// Package baseline holds the plain policies that every scheduler is measured
// against, each from its published rule; where the public code of a rule has a
// known defect it is corrected, and the comment of the rule says so.
//
// There are three families. Jobs of fixed size are started in an order (FIFO,
// Ordered, Conservative), or in an order that also stops jobs (Preemptive,
// FairShare). Elastic jobs get a number of GPUs by a rule (Elastic), and their
// seats from place/seats. Policies lists them all; the yardmaster asks one by the
// name in its configuration, the simulator any. Like every policy they are pure
// functions from a view to a plan. They learn nothing and know no money.
package baseline

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// FIFO starts jobs in the order of the line. The first job that cannot start
// gets the nodes on which it can start soonest kept for it; jobs behind it
// start only where they do not delay it (EASY backfill). Where run times are
// unknown nothing new goes onto the kept nodes, so that a large job is never
// starved by small ones.
type FIFO struct{}

var _ place.Policy = FIFO{}

// Name is what the policy is called in the configuration.
func (FIFO) Name() string { return "fifo" }

// Revises reports that it leaves alone what runs.
func (FIFO) Revises() bool { return false }

// Plan starts what can start.
func (FIFO) Plan(v *place.View) place.Plan { return inLine(v, easy) }

// inLine starts jobs in the order of the line.
func inLine(v *place.View, behind mode) place.Plan {
	f := newFIFO(v, behind)
	walk := v.Line.Walk(v.UsageOf)
	for it := walk.Next(f.open); it != nil; it = walk.Next(f.open) {
		if f.consider(it); f.over() {
			break
		}
	}
	return f.plan
}

// mode is what becomes of the jobs behind the first that cannot start.
type mode int

const (
	easy  mode = iota // they start where they do not delay it
	block             // they wait
	fit               // they start wherever they fit, and nothing is kept
)

// fifo tries jobs one after the other.
type fifo struct {
	view   *place.View
	behind mode
	trial  *trial
	shapes map[*queue.Shape]*shapeState
	closed int // shapes that cannot be started any more
	held   *heldBack
	passed bool // a job was passed over that no open nodes could run
	plan   place.Plan
	rooms  [][]int32 // of each start of the plan
	booked int       // starts whose ends are in the trial's rooms
	holds  []bool    // rooms whose holds are the trial's own
	// endless counts starts of unknown length by room.
	endless map[int32]int
}

// shapeState is how far the search for one shape has come. What is free only
// gets less during a round, so a room that was too small stays too small.
type shapeState struct {
	match  *fleet.Matcher
	cursor cursor
	out    bool // no room outside the kept nodes
	tight  bool // on the kept nodes there is room only for jobs that end in time
	full   bool // and none for any that is left
	closed bool // no room at all
}

func newFIFO(v *place.View, behind mode) *fifo {
	return &fifo{view: v, behind: behind, trial: newTrial(v), shapes: map[*queue.Shape]*shapeState{}}
}

// over reports whether nothing more can start: with the first job held back and every shape tried.
func (f *fifo) over() bool {
	return f.closed == f.view.Line.Shapes() || f.behind == block && f.held != nil
}

func (f *fifo) open(s *queue.Shape) bool {
	st := f.shapes[s]
	return st == nil || !st.closed
}

func (f *fifo) consider(it *queue.Item) {
	st := f.shapes[it.Shape]
	if st == nil {
		st = &shapeState{match: fleet.NewMatcher(it.Shape.Need)}
		f.shapes[it.Shape] = st
	}
	if !st.out {
		if seats := f.before(it, st); seats != nil {
			f.start(it, seats)
			return
		}
		if seats := f.find(st); seats != nil {
			f.start(it, seats)
			return
		}
		st.out = true
	}
	if f.held == nil {
		if f.behind != fit {
			f.held = f.hold(it, st)
		}
		if f.held != nil {
			f.plan.Held = f.held.reservation()
		} else {
			f.passed = true
		}
	} else if seats := f.held.backfill(f, it, st); seats != nil {
		f.start(it, seats)
		return
	}
	if !f.held.mayLet(st) {
		st.closed = true
		f.closed++
	}
}

// before returns the room where a job of one node ran before, if it has room
// and is not kept: its checkpoints are there.
func (f *fifo) before(it *queue.Item, st *shapeState) []int32 {
	if it.Prefer == "" || st.match.Need.MaxNodes > 1 {
		return nil
	}
	at, found := slices.BinarySearchFunc(f.view.Rooms, it.Prefer, func(r fleet.Room, n id.Node) int {
		return strings.Compare(string(r.Node.ID), string(n))
	})
	if !found || f.held.keeps(int32(at)) {
		return nil
	}
	if _, fits := st.match.Fits(f.trial.room(int32(at))); !fits {
		return nil
	}
	return []int32{int32(at)}
}

// find looks for rooms outside the kept nodes, the tightest first.
func (f *fifo) find(st *shapeState) []int32 {
	need := &st.match.Need
	var seats []int32
	c := st.cursor
	for at := f.trial.next(&c, need); at >= 0; at = f.trial.next(&c, need) {
		if f.held.keeps(at) {
			continue
		}
		if _, ok := st.match.Fits(f.trial.room(at)); !ok {
			if len(seats) == 0 {
				st.cursor = c // too small now is too small for the rest of the round
			}
			continue
		}
		if len(seats) == 0 {
			st.cursor = c
			st.cursor.back()
		}
		if seats = append(seats, at); len(seats) == need.MaxNodes {
			break
		}
	}
	if len(seats) < need.Nodes {
		return nil
	}
	return seats
}

// start puts the job onto the rooms.
func (f *fifo) start(it *queue.Item, rooms []int32) {
	need := &it.Shape.Need
	st := f.shapes[it.Shape]
	s := place.Start{Item: it, Seats: make([]place.Seat, 0, len(rooms))}
	for _, at := range rooms {
		room := f.trial.change(at)
		fits, _ := st.match.Fits(room)
		gpus := fleet.Take(fits, min(need.MaxGPUs, bits.OnesCount64(fits)))
		room.Free &^= gpus
		room.CPUs -= need.CPUs
		room.Memory -= need.Memory
		f.held.booked(f, it, at, bits.OnesCount64(gpus))
		s.Seats = append(s.Seats, place.Seat{Node: room.Node.ID, GPUs: gpus})
	}
	s.Reason = f.reason(&s, rooms)
	f.plan.Starts = append(f.plan.Starts, s)
	f.rooms = append(f.rooms, rooms)
}

// where names the nodes of seats.
func where(seats []place.Seat) string {
	if len(seats) > 1 {
		return fmt.Sprintf("%s and %d more", seats[0].Node, len(seats)-1)
	}
	return string(seats[0].Node)
}

func (f *fifo) reason(s *place.Start, rooms []int32) string {
	it, where := s.Item, where(s.Seats)
	if where == string(it.Prefer) {
		where += ", where it ran before,"
	}
	if f.held == nil && f.passed {
		return where + " has room for it, and no job ahead of it can run now"
	}
	if f.held == nil {
		return "first in line, and " + where + " has room for it"
	}
	if f.held.keeps(rooms[0]) {
		if f.held.inTime(f, it.Lasts) {
			return fmt.Sprintf("%s is kept for %s but not needed before %s, and this job is expected to end before that",
				where, f.held.job, f.held.at.Format(time.RFC3339))
		}
		return fmt.Sprintf("%s has more room than is kept there for %s", where, f.held.job)
	}
	return fmt.Sprintf("%s has room for it and is of no use to %s, which is ahead in line", where, f.held.job)
}
