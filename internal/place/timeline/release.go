package timeline

import (
	"cmp"
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// freesAt returns the clock time at which a room has the given number of GPUs free if the jobs
// there end as expected, and how many GPUs more than that are free then.
func (t *Timeline) freesAt(at int32, gpus int) (time.Duration, int, bool) {
	for _, x := range t.releasesOf(at) {
		if x.free >= gpus {
			return x.at, x.free - gpus, true
		}
	}

	return 0, 0, false
}

// release is the number of GPUs that a room has free from some time on.
type release struct {
	at   time.Duration // by the clock; 0 for now
	free int
}

// releasesOf lists the times at which the GPUs of a room become free if nothing is planned there.
// The list is computed once, or once per round if its estimates move as time passes.
func (t *Timeline) releasesOf(at int32) []release {
	s := &t.states[at]
	if len(s.releases) > 0 && (!s.moving || s.round == t.round) {
		return s.releases
	}

	list := append(s.releases[:0], release{0, bits.OnesCount64(s.free)})
	if s.plain {
		for _, x := range s.known {
			list = sortIn(list, release{until(t.now, remaining(x.at-t.now)), x.free})
		}
	} else {
		r := &t.rooms[at]
		for i := range r.Holds {
			if n := t.releasedBy(r, i).GPUs; n > 0 { // not pending: the list outlives the plan of this round
				list = sortIn(list, release{until(t.now, t.Remaining(&r.Holds[i])), n})
			}
		}
	}

	kept := 0
	for i := 1; i < len(list); i++ { // releases at the same time become one
		free := list[kept].free + list[i].free

		if list[i].at > list[kept].at {
			kept++
		}

		list[kept] = release{list[i].at, free}
	}

	s.releases, s.round = list[:kept+1], t.round

	return s.releases
}

// sortIn inserts a release in order of time. The lists are short and mostly sorted already.
func sortIn(list []release, x release) []release {
	at := len(list)
	list = append(list, x)
	for ; at > 1 && list[at-1].at > x.at; at-- {
		list[at] = list[at-1]
	}

	list[at] = x

	return list
}

// pending returns what a hold of a room will release when it ends: nothing if this plan has stopped
// the job, because then its GPUs are free already.
func (t *Timeline) pending(r *fleet.Room, i int) Size {
	if len(t.vacated) > 0 && t.vacated[r.Holds[i].Job] {
		return Size{}
	}

	return t.releasedBy(r, i)
}

// releasedBy returns what a hold releases when it ends, regardless of the plan. Of jobs that share
// a GPU, the last to end releases the whole GPU.
func (t *Timeline) releasedBy(r *fleet.Room, i int) Size {
	h := &r.Holds[i]
	n := Size{bits.OnesCount64(h.GPUs & r.Sound), h.CPUs, h.Memory}
	if h.Share == 0 {
		return n
	}

	for k := range r.Holds {
		o := &r.Holds[k]
		if k != i && o.GPUs&h.GPUs != 0 && (t.Remaining(o) > t.Remaining(h) || t.Remaining(o) == t.Remaining(h) &&
			k > i) {
			n.GPUs = 0
		}
	}

	return n
}

// Remaining returns how long a hold is expected to last from now on. One that is past its
// expected end is assumed to last as long again as it is late; one without an expected end,
// as long as earlier jobs suggest, or else as long again as it has lasted.
func (t *Timeline) Remaining(h *fleet.Hold) time.Duration {
	if h.Ends.IsZero() {
		if h.Since.IsZero() {
			return t.guess
		}

		age := max(t.now-clockOf(h.Since), 0)
		kin := queue.Kin{User: h.Owner, Program: queue.Program{Key: h.Program}, GPUs: bits.OnesCount64(h.GPUs)}
		pace := cmp.Or(h.Pace, 1)
		if left := t.past.RemainingTime(kin, job.Seconds(age.Seconds()*pace)); left > 0 {
			return job.Seconds(left.Seconds() / pace)
		}

		return max(age, minRemaining)
	}

	return remaining(clockOf(h.Ends) - t.now)
}

// remaining is Remaining for a job whose expected end is d from now.
func remaining(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}

	return max(-d, minRemaining)
}

// minRemaining is the least time that a late job is assumed to last.
const minRemaining = time.Minute
