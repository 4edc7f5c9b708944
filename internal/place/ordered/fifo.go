// Package ordered holds the policies that start jobs of fixed size in an order and leave
// running jobs alone: first come first served (FIFO), orders by deadline, length or age
// (Policy), and Conservative, in which every queued job has a reservation. What jobs behind
// the first that cannot start may do is the same for all orders: nothing, start wherever
// they fit, or start where they do not delay it (EASY backfill).
//
// They are the baselines that other schedulers are measured against, each from its
// published rule; where the public code of a rule has a known defect it is corrected, and
// the comment of the rule says so. Like every policy they are pure functions from a view to
// a plan. They learn nothing and know no money.
package ordered

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/lineup"
	"trainyard/internal/queue"
)

// FIFO starts jobs in the order of the queue. The first job that cannot start
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
func (FIFO) Plan(v *place.View) place.Plan { return planQueue(v, easy) }

// planQueue starts jobs in the order of the queue.
func planQueue(v *place.View, behind backfillMode) place.Plan {
	f := newPlanner(v, behind)
	walk := v.Queue.Walk(v.UsageOf)
	for it := walk.Next(f.open); it != nil; it = walk.Next(f.open) {
		f.consider(it)

		if f.over() {
			break
		}
	}

	return f.plan
}

// backfillMode is what becomes of the jobs behind the first that cannot start.
type backfillMode int

const (
	easy  backfillMode = iota // they start where they do not delay it
	block                     // they wait
	fit                       // they start wherever they fit, and nothing is kept
)

// planner tries jobs one after the other.
type planner struct {
	view   *place.View
	behind backfillMode
	trial  *trial
	shapes map[*queue.Shape]*shapeState
	closed int // shapes that cannot be started any more
	held   *reservation
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

func newPlanner(v *place.View, behind backfillMode) *planner {
	return &planner{view: v, behind: behind, trial: newTrial(v), shapes: map[*queue.Shape]*shapeState{}}
}

// over reports whether nothing more can start: with the first job held back and every shape tried.
func (f *planner) over() bool {
	return f.closed == f.view.Queue.Shapes() || f.behind == block && f.held != nil
}

func (f *planner) open(s *queue.Shape) bool {
	st := f.shapes[s]
	return st == nil || !st.closed
}

func (f *planner) consider(it *queue.Item) {
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
			f.held = f.reserve(it, st)
		}

		if f.held != nil {
			f.plan.Reservation = f.held.report()
		} else {
			f.passed = true
		}
	} else if seats := f.held.backfill(f, it, st); seats != nil {
		f.start(it, seats)
		return
	}

	if !f.held.mayBackfill(st) {
		st.closed = true
		f.closed++
	}
}

// before returns the room where a job of one node ran before, if it has room
// and is not kept: its checkpoints are there.
func (f *planner) before(it *queue.Item, st *shapeState) []int32 {
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
func (f *planner) find(st *shapeState) []int32 {
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

		seats = append(seats, at)
		if len(seats) == need.MaxNodes {
			break
		}
	}

	if len(seats) < need.Nodes {
		return nil
	}

	return seats
}

// start puts the job onto the rooms.
func (f *planner) start(it *queue.Item, rooms []int32) {
	need := &it.Shape.Need
	st := f.shapes[it.Shape]
	s := place.Start{Item: it, Allocations: make([]place.Allocation, 0, len(rooms))}

	for _, at := range rooms {
		room := f.trial.change(at)
		fits, _ := st.match.Fits(room)
		gpus := fleet.LowestGPUs(fits, min(need.MaxGPUs, bits.OnesCount64(fits)))
		room.Free &^= gpus
		room.CPUs -= need.CPUs
		room.Memory -= need.Memory
		f.held.take(f, it, at, bits.OnesCount64(gpus))
		s.Allocations = append(s.Allocations, place.Allocation{Node: room.Node.ID, GPUs: gpus})
	}

	s.Reason = f.reason(&s, rooms)
	f.plan.Starts = append(f.plan.Starts, s)
	f.rooms = append(f.rooms, rooms)
}

func (f *planner) reason(s *place.Start, rooms []int32) string {
	it, where := s.Item, lineup.NodeNames(s.Allocations)
	if where == string(it.Prefer) {
		where += " (ran there before)"
	}

	if f.held == nil && f.passed {
		return where + ": fits; no job ahead of it can start now"
	}
	if f.held == nil {
		return where + ": first in the queue and fits"
	}

	if f.held.keeps(rooms[0]) {
		if f.held.inTime(f, it, rooms[0]) {
			return fmt.Sprintf("%s: reserved for %s from %s; this job is expected to end before that",
				where, f.held.job, humanize.Time(f.held.at, f.view.Now.UTC()))
		}

		return fmt.Sprintf("%s: fits beside the reservation of %s", where, f.held.job)
	}

	return fmt.Sprintf("%s: fits; cannot be used by %s, which is ahead in the queue", where, f.held.job)
}
