package timeline

import (
	"cmp"
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// freesAt returns the clock time at which a room with these releases has the given number of GPUs free,
// and how many GPUs more than that are free then.
func freesAt(releases []release, gpus int) (time.Duration, int, bool) {
	for _, x := range releases {
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
// The list is computed once for as long as its estimates hold.
func (t *Timeline) releasesOf(at int32) []release {
	s := &t.states[at]
	if len(s.releases) > 0 {
		return s.releases
	}

	list := append(s.releases[:0], release{0, bits.OnesCount64(s.free)})
	for i, end := range s.ends {
		if n := t.releasedBy(at, i).GPUs; n > 0 { // not pending: the list outlives the plan of this round
			list = sortIn(list, release{end, n})
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

	s.releases = list[:kept+1]

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
func (t *Timeline) pending(at int32, i int) Size {
	if len(t.vacated) > 0 && t.vacated[t.rooms[at].Holds[i].Job] {
		return Size{}
	}

	return t.releasedBy(at, i)
}

// releasedBy returns what a hold releases when it ends, regardless of the plan. Of jobs that share
// a GPU, the last to end releases the whole GPU.
func (t *Timeline) releasedBy(at int32, i int) Size {
	r, ends := &t.rooms[at], t.states[at].ends
	h := &r.Holds[i]
	n := Size{bits.OnesCount64(h.GPUs & r.Sound), h.CPUs, h.Memory}
	if h.Share == 0 {
		return n
	}

	for k := range r.Holds {
		if k != i && r.Holds[k].GPUs&h.GPUs != 0 && (ends[k] > ends[i] || ends[k] == ends[i] && k > i) {
			n.GPUs = 0
		}
	}

	return n
}

// Remaining returns how long a hold is expected to last from now on.
func (t *Timeline) Remaining(h *fleet.Hold) time.Duration {
	end, _ := t.endOf(h)
	return end - t.now
}

// endOf returns the clock time at which a hold is expected to end, and until when that estimate holds.
//
// One that is past its expected end is assumed to last as long again as it is late; one without an
// expected end, as long as earlier jobs suggest, or else as long again as it has lasted. Both times
// are rounded up (roundUp), so that the estimate is the same for a while and only then another.
func (t *Timeline) endOf(h *fleet.Hold) (end, valid time.Duration) {
	if !h.Ends.IsZero() {
		end = clockOf(h.Ends)
		if end > t.now {
			return end, end - 1
		}

		late := roundUp(t.now - end)

		return end + 2*late, end + late
	}

	if h.Since.IsZero() {
		return until(t.now, t.guess), t.now
	}

	since := clockOf(h.Since)
	age := roundUp(t.now - since)
	kin := queue.Kin{User: h.Owner, Program: queue.Program{Key: h.Program}, GPUs: bits.OnesCount64(h.GPUs)}
	pace := cmp.Or(h.Pace, 1)

	if left := t.past.RemainingTime(kin, job.Seconds(age.Seconds()*pace)); left > 0 {
		return since + age + job.Seconds(left.Seconds()/pace), since + age
	}

	return since + 2*age, since + age
}

// roundUp rounds a time up: to a multiple of the largest unit that is no more than an eighth of it, and of a minute at
// least.
func roundUp(d time.Duration) time.Duration {
	unit := time.Minute
	for _, u := range units {
		if 8*u <= d {
			unit = u
		}
	}

	return max((d+unit-1)/unit, 1) * unit
}

// units are those in which roundUp rounds.
var units = []time.Duration{
	5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 7 * 24 * time.Hour,
}
