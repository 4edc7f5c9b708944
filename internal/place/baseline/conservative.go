package baseline

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Conservative goes through the line and gives every waiting job the earliest
// time at which it can run without delaying any job ahead of it. Those whose time
// is now start. It knows no more than the jobs' expected run times: a job of
// which nobody knows how long it lasts is taken to last for ever.
type Conservative struct{}

var _ place.Policy = Conservative{}

// Name is what the policy is called in the configuration.
func (Conservative) Name() string { return "conservative" }

// Revises reports that it leaves alone what runs.
func (Conservative) Revises() bool { return false }

// Plan starts those whose time has come.
func (Conservative) Plan(v *place.View) place.Plan {
	c := newCalendar(v)
	walk := v.Line.Walk(v.Usage)
	all := func(*queue.Shape) bool { return true }
	for it := walk.Next(all); it != nil && c.closed < v.Line.Shapes(); it = walk.Next(all) {
		c.reserve(it)
	}
	return c.plan
}

// calendar is what will be free in each room as time goes on.
type calendar struct {
	view   *place.View
	days   [][]day // of each room, by time; the last lasts for ever
	groups []int32
	shapes map[*queue.Shape]*search
	closed int // shapes that cannot start now
	plan   place.Plan
}

// day is a stretch of time in which nothing changes in a room.
type day struct {
	from   time.Time
	free   uint64
	cpus   job.CPUs
	memory job.Bytes
}

// never is the end of time, for jobs of unknown length.
func never(now time.Time) time.Time { return now.AddDate(1000, 0, 0) }

func newCalendar(v *place.View) *calendar {
	c := &calendar{view: v, days: make([][]day, len(v.Rooms)), groups: fleet.RankGroups(v.Rooms), shapes: map[*queue.Shape]*search{}}
	for i := range v.Rooms {
		c.days[i] = c.open(&v.Rooms[i])
	}
	return c
}

// open makes the days of a room from the expected ends of what holds it. A run
// that is past its expected end is taken to last as long again as it is late.
func (c *calendar) open(r *fleet.Room) []day {
	now := c.view.Now
	days := append(make([]day, 0, len(r.Holds)+1), day{now, r.Free, r.CPUs, r.Memory})
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
	st := c.shapes[it.Shape]
	if st == nil {
		st = &search{match: fleet.NewMatcher(it.Shape.Need)}
		c.shapes[it.Shape] = st
	}
	now := c.view.Now
	if !st.closed && !c.fitsNow(st) {
		st.closed = true
		c.closed++
	}
	at, rooms := c.earliest(it, st)
	if rooms == nil {
		return
	}
	until := never(now)
	if it.Lasts > 0 {
		until = at.Add(it.Lasts)
	}
	need := &st.match.Need
	start := place.Start{Item: it}
	for _, room := range rooms {
		gpus := c.book(room, at, until, st)
		start.Seats = append(start.Seats, place.Seat{Node: c.view.Rooms[room].Node.ID, GPUs: gpus})
	}
	if at.Equal(now) {
		where := string(start.Seats[0].Node)
		if need.Nodes > 1 {
			where = fmt.Sprintf("%s and %d more", where, need.Nodes-1)
		}
		start.Reason = where + " has room for it, and no job ahead of it starts later for that"
		c.plan.Starts = append(c.plan.Starts, start)
		return
	}
	if c.plan.Held == nil {
		c.plan.Held = &place.Reservation{Job: it.Job, At: at}
		for _, s := range start.Seats {
			c.plan.Held.Nodes = append(c.plan.Held.Nodes, s.Node)
		}
	}
}

// fitsNow reports whether enough rooms have room for the shape now. What is free
// now only gets less.
func (c *calendar) fitsNow(st *search) bool {
	found := 0
	for i := range c.days {
		if d := &c.days[i][0]; c.fits(i, d.free, d.cpus, d.memory, st) {
			if found++; found == st.match.Need.Nodes {
				return true
			}
		}
	}
	return false
}

// fits reports whether a rank fits into so much of a room.
func (c *calendar) fits(room int, free uint64, cpus job.CPUs, memory job.Bytes, st *search) bool {
	r := c.view.Rooms[room]
	r.Free, r.CPUs, r.Memory = free, cpus, memory
	_, ok := st.match.Fits(&r)
	return ok
}

// earliest finds the first time at which the job can run on as many rooms as it
// needs, and those rooms: each room says from when on it could, the last of the
// best tells the time, and those that are taken again by then say a later one.
func (c *calendar) earliest(it *queue.Item, st *search) (time.Time, []int) {
	need := &st.match.Need
	from := c.view.Now
	times := make([]time.Time, len(c.days))
	for i := range times {
		times[i] = c.roomFrom(i, from, it, st)
	}
	best := make([]int, 0, len(c.days))
	for {
		best = best[:0]
		for i := range times {
			if !times[i].IsZero() {
				best = append(best, i)
			}
		}
		if len(best) < need.Nodes {
			return time.Time{}, nil
		}
		slices.SortFunc(best, func(a, b int) int {
			if d := times[a].Compare(times[b]); d != 0 {
				return d
			}
			return c.tighter(a, b)
		})
		from = times[best[need.Nodes-1]]
		again := false
		for _, i := range best[:need.Nodes] {
			if times[i].Before(from) {
				times[i] = c.roomFrom(i, from, it, st)
				again = again || !times[i].Equal(from)
			}
		}
		if !again {
			return from, best[:need.Nodes]
		}
	}
}

// tighter orders rooms as they are to be filled: the cheapest, then the fullest.
func (c *calendar) tighter(a, b int) int {
	x, y := &c.view.Rooms[a], &c.view.Rooms[b]
	if d := c.groups[x.Group] - c.groups[y.Group]; d != 0 {
		return int(d)
	}
	if d := bits.OnesCount64(c.days[a][0].free) - bits.OnesCount64(c.days[b][0].free); d != 0 {
		return d
	}
	return a - b
}

// roomFrom returns the first time from a given one on at which a rank of the job
// can run in the room for as long as it lasts, zero if there is none.
func (c *calendar) roomFrom(room int, from time.Time, it *queue.Item, st *search) time.Time {
	days := c.days[room]
	for i := range days {
		if i+1 < len(days) && !days[i+1].from.After(from) {
			continue
		}
		at := days[i].from
		if at.Before(from) {
			at = from
		}
		until := never(c.view.Now)
		if it.Lasts > 0 {
			until = at.Add(it.Lasts)
		}
		d := least(days[i:], until)
		if c.fits(room, d.free, d.cpus, d.memory, st) {
			return at
		}
	}
	return time.Time{}
}

// least is what is free all the time until then.
func least(days []day, until time.Time) day {
	d := days[0]
	for _, o := range days[1:] {
		if !o.from.Before(until) {
			break
		}
		d.free &= o.free
		d.cpus = min(d.cpus, o.cpus)
		d.memory = min(d.memory, o.memory)
	}
	return d
}

// book takes a rank's part out of a stretch of the room's time, and returns its GPUs.
func (c *calendar) book(room int, from, until time.Time, st *search) uint64 {
	need := &st.match.Need
	days := cut(cut(c.days[room], from), until)
	c.days[room] = days
	first := slices.IndexFunc(days, func(d day) bool { return d.from.Equal(from) })
	d := least(days[first:], until)
	r := c.view.Rooms[room]
	r.Free, r.CPUs, r.Memory = d.free, d.cpus, d.memory
	fits, _ := st.match.Fits(&r)
	take := need.GPUs
	if from.Equal(c.view.Now) { // a range gets what there is
		take = min(need.MaxGPUs, bits.OnesCount64(fits))
	}
	gpus := fleet.Take(fits, take)
	for i := first; i < len(days) && days[i].from.Before(until); i++ {
		days[i].free &^= gpus
		days[i].cpus -= need.CPUs
		days[i].memory -= need.Memory
	}
	return gpus
}

// cut lets a day begin at that time.
func cut(days []day, at time.Time) []day {
	i, found := slices.BinarySearchFunc(days, at, func(d day, t time.Time) int { return d.from.Compare(t) })
	if found || i == 0 {
		return days
	}
	d := days[i-1]
	d.from = at
	return slices.Insert(days, i, d)
}
