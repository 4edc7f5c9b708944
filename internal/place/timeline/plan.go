package timeline

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/share"
)

// Start records that the plan starts a job in a room now, on these GPUs.
func (t *Timeline) Start(at int32, gpus uint64, need *fleet.Need, lasts time.Duration) {
	o := &t.open[at]
	o.GPUs &^= gpus
	o.CPUs -= need.CPUs
	o.Memory -= need.Memory

	takes := Size{bits.OnesCount64(gpus), need.CPUs, need.Memory}

	p := t.plan(at)
	if p.profile != nil {
		p.profile.reserve(0, takes, lasts)
	} else {
		p.started = append(p.started, started{takes: takes, lasts: lasts})
	}

	t.relist(at)
}

// StartPart records that the plan starts a job in a room now, on a part of a GPU. The GPU is kept from others who want
// it whole until the last of those who share it has ended.
func (t *Timeline) StartPart(at int32, gpu uint64, c share.Cut, need *fleet.Need, lasts time.Duration) {
	last := t.lastShare(at, gpu)

	r := t.Room(at)
	first := r.PartOf(gpu) < 0
	r.Cut(gpu, c)

	o := &t.open[at]
	o.GPUs, o.Parts = r.Free, r.Parts
	o.CPUs -= need.CPUs
	o.Memory -= need.Memory

	p, pool := t.plan(at), t.PoolOf(at)
	if _, listed := slices.BinarySearch(pool.shared, at); !listed && !slices.Contains(pool.cut, at) {
		pool.cut = append(pool.cut, at)
	}

	takes := Size{0, need.CPUs, need.Memory}
	if first {
		takes.GPUs = 1
	}

	p.add(started{takes: takes, lasts: lasts})

	if !first && lasts > last {
		p.add(started{takes: Size{GPUs: 1}, from: last, lasts: lasts - last})
	}

	i := slices.IndexFunc(p.shared, func(s sharing) bool { return s.gpu == gpu })
	if i < 0 {
		p.shared = append(p.shared, sharing{gpu: gpu})
		i = len(p.shared) - 1
	}

	p.shared[i].last = max(p.shared[i].last, lasts)
	t.relist(at)
}

// add records what a job takes of a room.
func (p *roomPlan) add(s started) {
	if p.profile != nil {
		p.profile.reserve(s.from, s.takes, s.lasts)
		return
	}

	p.started = append(p.started, s)
}

// lastShare returns when the last of those who share a GPU ends, 0 if nobody does.
func (t *Timeline) lastShare(at int32, gpu uint64) time.Duration {
	last, ends := time.Duration(0), t.states[at].ends
	for i := range t.rooms[at].Holds {
		if h := &t.rooms[at].Holds[i]; h.GPUs&gpu != 0 && !t.vacated[h.Job] {
			last = max(last, ends[i]-t.now)
		}
	}

	if p := t.plans[at]; p != nil {
		for _, s := range p.shared {
			if s.gpu == gpu {
				last = max(last, s.last)
			}
		}
	}

	return last
}

// Reserve keeps a part of a room for a job from a later time on.
func (t *Timeline) Reserve(at int32, from time.Duration, takes Size, lasts time.Duration) {
	p := t.plan(at)
	t.profileOf(p).reserve(from, takes, lasts)
	t.touch(at)
	p.reserved = true
}

// Vacate records that the plan stops a running job: what it held in a room is free.
func (t *Timeline) Vacate(at int32, j id.Job, gpus uint64, need *fleet.Need) {
	t.vacated[j] = true
	o := &t.open[at]
	o.GPUs |= gpus & t.rooms[at].Sound
	o.CPUs += need.CPUs
	o.Memory += need.Memory
	t.plan(at).profile = nil
	t.relist(at)
}

// Vacated reports whether this plan stops a job.
func (t *Timeline) Vacated(j id.Job) bool { return t.vacated[j] }

// Dedicate restricts a room to one job.
func (t *Timeline) Dedicate(at int32, j id.Job) { t.dedicated[at] = j }

// Undedicate opens a room to all jobs again.
func (t *Timeline) Undedicate(at int32) { delete(t.dedicated, at) }

// Dedicated returns the job to which a room is dedicated, "" if any job may use it.
func (t *Timeline) Dedicated(at int32) id.Job { return t.dedicated[at] }

// DedicatedTo lists the rooms that are dedicated to a job.
func (t *Timeline) DedicatedTo(j id.Job) []int32 {
	var list []int32
	for at, owner := range t.dedicated {
		if owner == j {
			list = append(list, at)
		}
	}

	return list
}

// closedTo reports whether a room is dedicated to another job.
func (t *Timeline) closedTo(j id.Job, at int32) bool {
	if len(t.dedicated) == 0 {
		return false
	}

	owner, ok := t.dedicated[at]

	return ok && owner != j
}

// plan returns the plan of a room for changing it, and makes one if there is none.
func (t *Timeline) plan(at int32) *roomPlan {
	p := t.plans[at]
	if p == nil {
		n := &t.rooms[at].Node.Inventory
		p = &roomPlan{room: at, total: Size{bits.OnesCount64(t.states[at].sound), n.CPUs, n.Memory}}
		t.plans[at] = p
		t.used = append(t.used, at)
	}

	return p
}

// planned reports whether this round's plan changes anything in a room.
func (t *Timeline) planned(at int32) bool {
	p := t.plans[at]
	return p != nil && p.changed
}

// relist lists a room under its present number of free GPUs.
func (t *Timeline) relist(at int32) {
	t.PoolOf(at).put(at, bits.OnesCount64(t.open[at].GPUs))
	t.shifts++
	t.touch(at)
}

// touch records that this round's plan changes a room.
func (t *Timeline) touch(at int32) {
	if p := t.plan(at); !p.changed {
		p.changed = true
		pool := t.PoolOf(at)
		pool.changed = append(pool.changed, p)
	}
}

// profileOf returns the profile of a room, computed when it is first needed.
func (t *Timeline) profileOf(s *roomPlan) *profile {
	if s.profile != nil {
		return &s.profile
	}

	ends := t.states[s.room].ends
	p := make(profile, 1, len(ends)+8)
	p[0].free = t.open[s.room].Size()
	for i, end := range ends {
		if n := t.pending(s.room, i); n != (Size{}) {
			p.release(end-t.now, n)
		}
	}

	for _, x := range s.started {
		if x.from > 0 {
			p.reserve(x.from, x.takes, x.lasts)
			continue
		}

		p.release(x.lasts, x.takes)
	}

	s.profile = p

	return &s.profile
}
