package yardmaster

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// Briefs returns a brief of each job; that of one that is not in memory is empty.
func (y *Yard) Briefs(now time.Time, jobs []id.Job) []Brief {
	s := y.Snapshot(now)
	list := make([]Brief, len(jobs))

	for i, j := range jobs {
		if r, ok := y.jobs[j]; ok {
			list[i] = s.Brief(y.now, &r.Job, s.Explainer(y.now))
		}
	}

	return list
}

// checkSnapshot checks that the next snapshot, which is made of what has changed since the last one, is the same as one
// that is made of everything: a change of which snapshots are not told would not be in it.
func checkSnapshot(y *Yard) error {
	if y.feed.Last()%8 != 0 { // it takes longer than all other checks, and finds what is missing later too
		return nil
	}

	s := y.Snapshot(y.now)

	for number := range s.jobs.All {
		if y.jobs[id.NewJob(number)] == nil {
			return fmt.Errorf("a snapshot has facts of job %d, which is not there", number)
		}
	}

	for _, r := range y.jobs {
		got, want := s.factsFor(r.ID), y.factsOf(r)
		if got == nil || got.live == nil || want == nil || want.live == nil {
			if !reflect.DeepEqual(got, want) {
				return fmt.Errorf("a snapshot has of job %s\n%+v\nand it is\n%+v", r.ID, got, want)
			}

			continue
		}

		for _, at := range []time.Time{y.now, y.now.Add(time.Hour)} {
			cost, costs := got.live.costAt(at, r.ID), y.costAt(r, at)
			if math.Abs(float64(cost-costs)) > 1e-6 {
				return fmt.Errorf("job %s will have cost %v at %s in a snapshot, want %v", r.ID, cost, at, costs)
			}
		}

		// A meter may have gone on without anything for this job.
		plain, live, wanted := *got, *got.live, *want.live
		live.meters, wanted.meters = nil, nil
		plain.live, want.live = &live, &wanted

		if !reflect.DeepEqual(&plain, want) {
			return fmt.Errorf("a snapshot has of job %s\n%+v\n%+v\nand it is\n%+v\n%+v", r.ID, plain, live, want, wanted)
		}
	}

	if got, want := s.rooms.Rooms(), y.nodes.Rooms.SharedRooms(); !reflect.DeepEqual(got, want) && len(want) > 0 {
		return fmt.Errorf("a snapshot has the rooms\n%+v\nand they are\n%+v", got, want)
	}

	walk := y.queue.Walk(y.usage)
	all := func(*queue.Shape) bool { return true }
	for n := 1; ; n++ {
		it := walk.Next(all)
		if it == nil {
			return nil
		}

		if got := s.Position(y.now, &y.jobs[it.Job].Job); got != n && n <= maxPosition {
			return fmt.Errorf("job %s is at position %d in a snapshot, want %d", it.Job, got, n)
		}
	}
}
