package ordered

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/lineup"
	"trainyard/internal/queue"
)

// Conservative goes through the queue and gives every waiting job the earliest
// time at which it can run without delaying any job ahead of it. Those whose time
// is now start. It knows no more than the jobs' expected run times: a job of
// unknown length is assumed to last for ever. In a very long
// line only the first get a time; those far behind start where they delay none of
// these.
type Conservative struct{}

// maxReserved is how many waiting jobs get a time of their own.
const maxReserved = 256

var _ place.Deliberator = Conservative{}

// Name is what the policy is called in the configuration.
func (Conservative) Name() string { return "conservative" }

// Revises reports that it leaves alone what runs.
func (Conservative) Revises() bool { return false }

// Slow reports that the server does not wait for it: with many jobs in the queue, giving each a time takes many
// times as long as copying the view.
func (Conservative) Slow() bool { return true }

// Plan starts those whose time has come.
func (Conservative) Plan(v *place.View) place.Plan {
	c := newCalendar(v)
	walk := v.Queue.Walk(v.UsageOf)
	reserved := 0
	open := func(s *queue.Shape) bool { return reserved < maxReserved || !c.shapes[s].closed }
	for it := walk.Next(open); it != nil; it = walk.Next(open) {
		reserved++
		if reserved > maxReserved {
			c.backfill(it)
			continue
		}

		// Of the rest none can start now: their times are of no use to anybody.
		c.reserve(it)

		if c.open == 0 && c.plan.Reservation != nil {
			break
		}
	}

	return c.plan
}

// calendar is what will be free in each room as time goes on.
type calendar struct {
	view   *place.View
	days   [][]span // of each room, by time; the last lasts for ever
	groups []int32
	shapes map[*queue.Shape]*shapeNeed
	open   int // shapes in the queue that have room now
	plan   place.Plan
}

// shapeNeed is what is known of a shape.
type shapeNeed struct {
	match  *fleet.Matcher
	closed bool          // it has no room now
	failed time.Duration // as long as this, and longer, finds no time now; 0 if none failed
	of     job.Reference // that failed is for

	longestFor *queue.Item   // a job of several nodes
	longest    time.Duration // that it takes on the slowest that it may get
}

// span is a stretch of time in which nothing changes in a room.
type span struct {
	from   time.Time
	free   uint64
	cpus   job.CPUs
	memory job.Bytes
}

// never is the end of time, for jobs of unknown length.
func never(now time.Time) time.Time { return now.AddDate(1000, 0, 0) }

func newCalendar(v *place.View) *calendar {
	c := &calendar{view: v, days: make([][]span, len(v.Rooms)), groups: fleet.RankGroups(v.Rooms),
		shapes: map[*queue.Shape]*shapeNeed{}}
	for i := range v.Rooms {
		c.days[i] = c.foresee(&v.Rooms[i])
	}

	for _, it := range v.Queue.Items() {
		if c.shapes[it.Shape] != nil {
			continue
		}

		o := &shapeNeed{match: fleet.NewMatcher(it.Shape.Need)}
		c.shapes[it.Shape] = o
		o.closed = !c.fitsNow(o)
		if !o.closed {
			c.open++
		}
	}

	return c
}

// foresee makes the days of a room from the expected ends of what holds it. A run
// that is past its expected end is assumed to last as long again as it is late.
func (c *calendar) foresee(r *fleet.Room) []span {
	now := c.view.Now
	days := append(make([]span, 0, len(r.Holds)+1), span{now, r.Free, r.CPUs, r.Memory})

	var held uint64 // by runs that never end
	for i := range r.Holds {
		if r.Holds[i].Ends.IsZero() {
			held |= r.Holds[i].GPUs
		}
	}

	ends := make([]fleet.Hold, 0, len(r.Holds))
	for _, h := range r.Holds {
		if h.Ends.IsZero() {
			continue
		}

		if late := now.Sub(h.Ends); late >= 0 {
			h.Ends = now.Add(late + time.Second)
		}

		ends = append(ends, h)
	}

	slices.SortStableFunc(ends, func(a, b fleet.Hold) int { return a.Ends.Compare(b.Ends) })
	for i, h := range ends {
		d := days[len(days)-1]
		if h.Ends.After(d.from) {
			d.from = h.Ends
			days = append(days, d)
		}

		last := &days[len(days)-1]
		last.cpus += h.CPUs
		last.memory += h.Memory

		free := h.GPUs & r.Sound &^ held
		for _, o := range ends[i+1:] { // a promise of what somebody still holds
			free &^= o.GPUs
		}

		last.free |= free
	}

	return days
}

// reserve gives a job its time and its rooms.
func (c *calendar) reserve(it *queue.Item) {
	o := c.shapes[it.Shape]
	at, rooms := c.earliest(it, o)
	if rooms == nil {
		return
	}

	start := c.book(it, o, at, rooms)
	if at.Equal(c.view.Now) {
		start.Reason = start.Reason + ": fits and delays no job ahead of it"
		c.plan.Starts = append(c.plan.Starts, start)
	} else if c.plan.Reservation == nil {
		c.plan.Reservation = &place.Reservation{Job: it.Job, At: at}
		for _, s := range start.Allocations {
			c.plan.Reservation.Nodes = append(c.plan.Reservation.Nodes, s.Node)
		}
	}
}

// backfill starts a job far behind in the queue if it delays no reserved start.
func (c *calendar) backfill(it *queue.Item) {
	o := c.shapes[it.Shape]
	if o.failed > 0 && unmeasured(it) && it.Outlook.Reference == o.of && c.lasts(it) >= o.failed {
		return
	}

	var rooms []int
	for i := range c.days {
		if c.roomFrom(i, c.view.Now, it, o, true).Equal(c.view.Now) {
			rooms = append(rooms, i)
		}
	}

	if len(rooms) < o.match.Need.Nodes {
		if unmeasured(it) {
			o.failed, o.of = c.lasts(it), it.Outlook.Reference
		}

		return
	}

	slices.SortFunc(rooms, func(a, b int) int { return c.tighter(a, b, c.view.Now) })
	start := c.book(it, o, c.view.Now, rooms[:o.match.Need.Nodes])
	start.Reason = start.Reason + ": fits and delays no reserved start"
	c.plan.Starts = append(c.plan.Starts, start)
}

// lasts is how long a job is expected to run on what it asks for, for ever if nobody knows.
func (c *calendar) lasts(it *queue.Item) time.Duration {
	if it.Lasts == 0 {
		return never(c.view.Now).Sub(c.view.Now)
	}

	return it.Lasts
}

// unmeasured reports whether how long a job takes in a room follows from how long it takes in another.
func unmeasured(it *queue.Item) bool {
	return it.Outlook.Speed == nil && (it.Spec == nil || it.Spec.MaxDuration == 0)
}

// takes is how long a job is expected to run in a room, for ever if nobody knows. A job of several nodes is
// as slow as the slowest that it may get: which those are is not settled yet.
func (c *calendar) takes(it *queue.Item, room int, o *shapeNeed) time.Duration {
	if it.Lasts == 0 {
		return c.lasts(it)
	}
	if o.match.Need.Nodes == 1 {
		return c.takesIn(it, room, o)
	}

	if o.longestFor != it {
		o.longestFor, o.longest = it, 0
		seen := map[int32]bool{}

		for i := range c.view.Rooms {
			r := &c.view.Rooms[i]
			if r.Kind >= 0 && seen[r.Kind] || !o.match.Eligible(r) {
				continue
			}

			seen[r.Kind] = true
			o.longest = max(o.longest, c.takesIn(it, i, o))
		}
	}

	return o.longest
}

func (c *calendar) takesIn(it *queue.Item, room int, o *shapeNeed) time.Duration {
	r := &c.view.Rooms[room]
	return place.RunTimeIn(it, r.Node, o.match.MatchingGPUs(r))
}

// book takes a job's part out of rooms from a time on, and closes the shapes that
// have no room now any more. The reason of what it returns says where.
func (c *calendar) book(it *queue.Item, o *shapeNeed, at time.Time, rooms []int) place.Start {
	start := place.Start{Item: it}
	for _, room := range rooms {
		gpus := c.take(room, at, at.Add(c.takes(it, room, o)), o)
		start.Allocations = append(start.Allocations, place.Allocation{Node: c.view.Rooms[room].Node.ID, GPUs: gpus})
	}

	start.Reason = lineup.NodeNames(start.Allocations)

	if at.Equal(c.view.Now) {
		for _, other := range c.shapes {
			if !other.closed && !c.fitsNow(other) {
				other.closed = true
				c.open--
			}
		}
	}

	return start
}

// fitsNow reports whether enough rooms have room for the shape now. What is free
// now only gets less.
func (c *calendar) fitsNow(o *shapeNeed) bool {
	found := 0
	for i := range c.days {
		if c.fits(i, &c.days[i][0], o) {
			found++
			if found == o.match.Need.Nodes {
				return true
			}
		}
	}

	return false
}

// fits reports whether a rank fits into so much of a room.
func (c *calendar) fits(room int, d *span, o *shapeNeed) bool {
	r := c.view.Rooms[room]
	r.Free, r.CPUs, r.Memory = d.free, d.cpus, d.memory
	_, ok := o.match.Fits(&r)

	return ok
}

// earliest finds the first time at which the job can run on as many rooms as it
// needs, and those rooms. Each room says from when on it could; those that are taken
// again by the time at which there are enough say a later one. Which rooms it gets
// depends on that time alone and not on since when they have been free: else a later plan
// would choose others and delay jobs that come after.
func (c *calendar) earliest(it *queue.Item, o *shapeNeed) (time.Time, []int) {
	need := &o.match.Need
	from := c.view.Now

	times := make([]time.Time, len(c.days))
	for i := range times {
		times[i] = c.roomFrom(i, from, it, o, false)
	}

	rooms := make([]int, 0, len(c.days))
	for {
		rooms = rooms[:0]
		for i := range times {
			if !times[i].IsZero() {
				rooms = append(rooms, i)
			}
		}

		if len(rooms) < need.Nodes {
			return time.Time{}, nil
		}

		slices.SortFunc(rooms, func(a, b int) int { return cmp.Or(times[a].Compare(times[b]), cmp.Compare(a, b)) })
		from = times[rooms[need.Nodes-1]]

		for _, i := range rooms {
			if times[i].Before(from) {
				times[i] = c.roomFrom(i, from, it, o, false)
			}
		}

		rooms = slices.DeleteFunc(rooms, func(i int) bool { return !times[i].Equal(from) })
		if len(rooms) >= need.Nodes {
			slices.SortFunc(rooms, func(a, b int) int { return c.tighter(a, b, from) })
			return from, rooms[:need.Nodes]
		}
	}
}

// tighter orders rooms as they are to be filled: the cheapest, then the fullest when the job starts. What
// is free now does not count: it changes until then, and a later plan would choose other rooms and
// delay jobs that come after.
func (c *calendar) tighter(a, b int, at time.Time) int {
	x, y := &c.view.Rooms[a], &c.view.Rooms[b]
	return cmp.Or(cmp.Compare(c.groups[x.Group], c.groups[y.Group]),
		cmp.Compare(c.freeAt(a, at), c.freeAt(b, at)), cmp.Compare(a, b))
}

// freeAt returns how many GPUs of a room will be free at a time.
func (c *calendar) freeAt(room int, at time.Time) int {
	days := c.days[room]
	i, found := slices.BinarySearchFunc(days, at, func(d span, t time.Time) int { return d.from.Compare(t) })
	if !found {
		i--
	}

	return bits.OnesCount64(days[i].free)
}

// roomFrom returns the first time from a given one on at which a rank of the job
// can run in the room for as long as it lasts, zero if there is none, or if it is
// later and only that one will do.
func (c *calendar) roomFrom(room int, from time.Time, it *queue.Item, o *shapeNeed, only bool) time.Time {
	days, lasts := c.days[room], c.takes(it, room, o)
	i, found := slices.BinarySearchFunc(days, from, func(d span, t time.Time) int { return d.from.Compare(t) })
	if !found {
		i--
	}

	for i < len(days) {
		at := days[i].from
		if at.Before(from) {
			at = from
		}

		next := c.conflict(room, i, at.Add(lasts), o)
		switch {
		case next < 0:
			return at
		case only:
			return time.Time{}
		}

		i = next
	}

	return time.Time{}
}

// conflict returns -1 if a rank fits into the room from a day on until a time,
// and else the first day from which on that may be different.
func (c *calendar) conflict(room, first int, until time.Time, o *shapeNeed) int {
	days := c.days[room]
	d := days[first]
	for i := first; ; i++ {
		if i > first {
			d.and(&days[i])
		}

		if !c.fits(room, &d, o) {
			if !c.fits(room, &days[i], o) {
				return i + 1 // whoever runs on that day cannot
			}

			return first + 1
		}

		if i+1 == len(days) || !days[i+1].from.Before(until) {
			return -1
		}
	}
}

// and keeps what is free on both days.
func (d *span) and(o *span) {
	d.free &= o.free
	d.cpus = min(d.cpus, o.cpus)
	d.memory = min(d.memory, o.memory)
}

// take takes a rank's part out of a stretch of the room's time, and returns its GPUs.
func (c *calendar) take(room int, from, until time.Time, o *shapeNeed) uint64 {
	need := &o.match.Need
	days := cut(cut(c.days[room], from), until)
	c.days[room] = days
	first := slices.IndexFunc(days, func(d span) bool { return d.from.Equal(from) })
	r := c.view.Rooms[room]

	d := days[first]
	for i := first; i < len(days) && days[i].from.Before(until); i++ {
		d.and(&days[i])
	}

	r.Free, r.CPUs, r.Memory = d.free, d.cpus, d.memory
	fits, _ := o.match.Fits(&r)

	take := need.GPUs
	if from.Equal(c.view.Now) { // a range gets what there is
		take = min(need.MaxGPUs, bits.OnesCount64(fits))
	}

	gpus := fleet.LowestGPUs(fits, take)
	for i := first; i < len(days) && days[i].from.Before(until); i++ {
		days[i].free &^= gpus
		days[i].cpus -= need.CPUs
		days[i].memory -= need.Memory
	}

	return gpus
}

// cut lets a day begin at that time.
func cut(days []span, at time.Time) []span {
	i, found := slices.BinarySearchFunc(days, at, func(d span, t time.Time) int { return d.from.Compare(t) })
	if found || i == 0 {
		return days
	}

	d := days[i-1]
	d.from = at

	return slices.Insert(days, i, d)
}
