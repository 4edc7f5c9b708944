package rules

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/queue"
)

// lanes are the queued jobs in the order in which they are considered, so that a round can go through them without
// looking at each: most of a long queue are jobs of which it is known that they cannot start.
//
// A lane is sorted, and its order holds from round to round: the fair share multiplies the keys of all its jobs by
// the same factor. The lanes of a level are merged in each round (walk.go).
type lanes struct {
	levels []*level // highest priority first, and of each those that are due first
	byKey  map[laneKey]*lane
	dirty  []*lane // that have changed and are not settled yet
}

// level is the lanes of one priority, of jobs that are due or of those that are not. When the first are considered, the
// round has often looked at as much as it may: then most of the others are not even merged.
type level struct {
	priority int
	aged     bool
	lanes    []laneEntry
}

// compare tells which of two levels comes first.
func (v *level) compare(o *level) int {
	return cmp.Or(cmp.Compare(o.priority, v.priority), falseFirst(o.aged, v.aged))
}

// laneEntry is a lane with what every round reads of it, side by side in memory.
type laneEntry struct {
	*lane
	shape    *shape
	kin      *kin
	shortest time.Duration // the least that one of its jobs lasts, if they have no kin
	due      int64         // when the first of them is due, in nanoseconds since 1970
}

// lasts returns the least that one of the jobs of a lane lasts.
func (x *laneEntry) lasts() time.Duration {
	if x.kin != nil {
		return x.kin.lasts
	}

	return x.shortest
}

// laneKey is what the jobs of a lane have in common.
type laneKey struct {
	priority   int
	shape      *shape
	unprofiled bool
	kin        *kin       // nil if they say how long they last
	aged       bool       // they go first, by when they were due: who owns them does not matter
	leased     bool       // nodes are being provisioned for them
	alone      *queuedJob // a node that was provisioned for this job is ready: it has a lane of its own

	user    *queue.Portion[id.User]
	project *queue.Portion[id.Project]
	value   money.PerHour
}

// lane is queued jobs that only differ in how long they last and how long they have waited.
type lane struct {
	laneKey
	jobs     []*queuedJob
	sorted   int  // the first so many of them are in order
	changed  bool // it is listed as dirty
	outdated bool // the least of its jobs may have left
	index    int  // in its level

	// Of this round.
	next int // job to be considered
}

func newLanes() lanes { return lanes{byKey: map[laneKey]*lane{}} }

// compare tells which of two jobs of a lane is considered first.
func (x *lane) compare(a, b *queuedJob) int {
	order := 0

	switch {
	case x.aged:
		order = a.due.Compare(b.due)
	case x.kin == nil:
		order = cmp.Compare(a.lasts, b.lasts)
	}

	return cmp.Or(order, cmp.Compare(a.number, b.number))
}

// add adds a job to its lane.
func (l *lanes) add(j *queuedJob, now time.Time) {
	j.aged = !j.due.After(now)
	key := laneKey{priority: j.priority, shape: j.shape, unprofiled: j.unprofiled, kin: j.kin, aged: j.aged}
	if !j.aged {
		key.user, key.project, key.value = j.user, j.project, j.value
	}

	key.leased = len(j.leases) > 0
	if j.hasNode {
		key.alone = j
	}

	x, ok := l.byKey[key]
	if !ok {
		x = l.newLane(key)
	}

	if x.sorted == len(x.jobs) && (x.sorted == 0 || x.compare(x.jobs[x.sorted-1], j) < 0) {
		x.sorted++
	}

	x.jobs = append(x.jobs, j)
	j.lane = x

	entry := l.entry(x)
	entry.shortest = min(entry.shortest, j.lasts)
	if !j.aged {
		entry.due = min(entry.due, j.due.UnixNano())
	}

	l.touch(x)
}

// remove removes a job from its lane.
func (l *lanes) remove(j *queuedJob) {
	x := j.lane
	if x == nil {
		return
	}

	j.lane = nil
	at, _ := slices.BinarySearchFunc(x.jobs[:x.sorted], j, x.compare)
	if at == x.sorted || x.jobs[at] != j {
		at = slices.Index(x.jobs, j)
	}

	if at < x.sorted {
		x.sorted--
	}

	if at == 0 && len(x.jobs) > 1 { // the common case
		x.jobs[0] = nil
		x.jobs = x.jobs[1:]
	} else {
		x.jobs = slices.Delete(x.jobs, at, at+1)
	}

	entry := l.entry(x)
	x.outdated = x.outdated || entry.shortest == j.lasts || !x.aged && entry.due == j.due.UnixNano()
	l.touch(x)
}

// move puts a job into another lane, because it is due or nodes are provisioned for it.
func (l *lanes) move(j *queuedJob, now time.Time) {
	l.remove(j)
	l.add(j, now)
}

func (l *lanes) touch(x *lane) {
	if !x.changed {
		x.changed = true
		l.dirty = append(l.dirty, x)
	}
}

// entry returns the entry of a lane in its level.
func (l *lanes) entry(x *lane) *laneEntry {
	at, _ := l.find(&x.laneKey)
	return &l.levels[at].lanes[x.index]
}

// find returns where the level of a lane is or belongs.
func (l *lanes) find(key *laneKey) (at int, found bool) {
	return slices.BinarySearchFunc(l.levels, &level{priority: key.priority, aged: key.aged}, (*level).compare)
}

func (l *lanes) newLane(key laneKey) *lane {
	at, found := l.find(&key)
	if !found {
		l.levels = slices.Insert(l.levels, at, &level{priority: key.priority, aged: key.aged})
	}

	v := l.levels[at]
	x := &lane{laneKey: key, index: len(v.lanes)}
	v.lanes = append(v.lanes, laneEntry{
		lane: x, shape: key.shape, kin: key.kin, shortest: math.MaxInt64, due: math.MaxInt64,
	})
	l.byKey[key] = x

	return x
}

// drop removes a lane without jobs, and its level if that was the last one.
func (l *lanes) drop(x *lane) {
	delete(l.byKey, x.laneKey)

	at, _ := l.find(&x.laneKey)
	v := l.levels[at]
	last := len(v.lanes) - 1
	v.lanes[x.index] = v.lanes[last]
	v.lanes[x.index].index = x.index
	v.lanes[last] = laneEntry{}
	v.lanes = v.lanes[:last]

	if last == 0 {
		l.levels = slices.Delete(l.levels, at, at+1)
	}
}

// settle sorts the lanes that have changed.
func (l *lanes) settle() {
	for _, x := range l.dirty {
		x.changed = false

		if len(x.jobs) == 0 {
			l.drop(x)
			continue
		}

		x.sort()

		if x.outdated {
			x.outdated = false
			l.entry(x).measure()
		}
	}

	clear(l.dirty)
	l.dirty = l.dirty[:0]
}

// fewAdded is up to how many new jobs are sorted in one by one.
const fewAdded = 8

func (x *lane) sort() {
	if len(x.jobs)-x.sorted > fewAdded {
		slices.SortFunc(x.jobs, x.compare)
		x.sorted = len(x.jobs)
	}

	for ; x.sorted < len(x.jobs); x.sorted++ {
		j := x.jobs[x.sorted]
		at, _ := slices.BinarySearchFunc(x.jobs[:x.sorted], j, x.compare)
		copy(x.jobs[at+1:x.sorted+1], x.jobs[at:x.sorted])
		x.jobs[at] = j
	}
}

// measure finds the shortest job of a lane and the one that is due first.
func (x *laneEntry) measure() {
	x.shortest, x.due = math.MaxInt64, math.MaxInt64

	for _, j := range x.jobs {
		x.shortest = min(x.shortest, j.lasts)
		if !x.aged {
			x.due = min(x.due, j.due.UnixNano())
		}
	}
}

// age moves the jobs that have become due.
func (l *lanes) age(now time.Time) {
	l.settle()

	nanos := now.UnixNano()
	var due []*queuedJob

	for _, v := range l.levels {
		for i := range v.lanes {
			if v.lanes[i].due > nanos {
				continue
			}

			for _, j := range v.lanes[i].jobs {
				if !j.due.After(now) {
					due = append(due, j)
				}
			}
		}
	}

	for _, j := range due {
		l.move(j, now)
	}
}

// rejuvenate moves jobs back that are not due, because the clock was set back.
func (l *lanes) rejuvenate(now time.Time) {
	var young []*queuedJob

	for _, v := range l.levels {
		for i := range v.lanes {
			for _, j := range v.lanes[i].jobs {
				if j.aged && j.due.After(now) {
					young = append(young, j)
				}
			}
		}
	}

	for _, j := range young {
		l.move(j, now)
	}
}

// nextDue returns when the next job is due, false if all are or none is queued.
func (l *lanes) nextDue() (time.Time, bool) {
	first := int64(math.MaxInt64)

	for _, v := range l.levels {
		for i := range v.lanes {
			first = min(first, v.lanes[i].due)
		}
	}

	return time.Unix(0, first), first < math.MaxInt64
}
