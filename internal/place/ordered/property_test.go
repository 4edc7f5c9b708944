package ordered_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
)

// fits reports whether a job could start on these rooms, leaving out some.
func fits(rooms []fleet.Room, need fleet.Need, without []id.Node) bool {
	m, found := fleet.NewMatcher(need), 0
	for i := range rooms {
		if _, ok := m.Fits(&rooms[i]); ok && !slices.Contains(without, rooms[i].Node.ID) {
			found++
		}
	}

	return found >= need.Nodes
}

// take books a start on rooms of its own.
func take(t *rapid.T, rooms []fleet.Room, s place.Start) {
	for _, seat := range s.Allocations {
		i := slices.IndexFunc(rooms, func(r fleet.Room) bool { return r.Node.ID == seat.Node })
		r := &rooms[i]
		if seat.GPUs&^r.Free != 0 {
			t.Fatalf("job %s is given GPUs %b of %s, where %b are free", s.Item.Job, seat.GPUs, seat.Node, r.Free)
		}

		r.Free &^= seat.GPUs
		r.CPUs -= s.Item.Shape.Need.CPUs
		r.Memory -= s.Item.Shape.Need.Memory
		if r.CPUs < 0 || r.Memory < 0 {
			t.Fatalf("node %s is overbooked by job %s", seat.Node, s.Item.Job)
		}
	}
}

// TestPlanIsSound looks at single plans: what is planned can be carried out,
// nothing that could start is left, and nobody is passed over.
func TestPlanIsSound(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 8, func(t *rapid.T) {
		c := placetest.DrawCluster(t)
		for range rapid.IntRange(0, 6).Draw(t, "rounds before") { // so that rooms are partly held
			c.Add(placetest.DrawJob(t, false))
		}

		for _, s := range c.Plan().Starts {
			c.Book(s)
		}

		c.Now = c.Now.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "minutes")) * time.Minute)
		for range rapid.IntRange(1, 12).Draw(t, "jobs") {
			w := placetest.DrawJob(t, false)
			w.Priority = rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "priority")
			c.Add(w)
		}

		v := c.View()
		before := slices.Clone(v.Rooms)

		p := c.Plan()
		if good, bad := place.Check(v, p); len(bad) > 0 || len(good.Starts) != len(p.Starts) {
			t.Fatalf("plan does not pass the check: %v", bad)
		}

		if again := c.Plan(); !cmp.Equal(p, again, cmpopts.EquateComparable(&queue.Item{})) {
			t.Fatalf("same view, another plan: %s", cmp.Diff(p, again))
		}

		if !cmp.Equal(before, v.Rooms) {
			t.Fatalf("the plan changed its view: %s", cmp.Diff(before, v.Rooms))
		}

		inOrder(t, c, v.Rooms, p)
	})
}

// inOrder checks, job by job in the order of the line, that a job which was
// not started had no room left by those ahead of it, except on nodes that are
// kept for one ahead.
func inOrder(t *rapid.T, c *placetest.Cluster, rooms []fleet.Room, p place.Plan) {
	var kept []id.Node
	walk := c.Queue.Walk(func(id.User) float64 { return 0 })

	all := func(*queue.Shape) bool { return true }
	for it := walk.Next(all); it != nil; it = walk.Next(all) {
		i := slices.IndexFunc(p.Starts, func(s place.Start) bool { return s.Item == it })
		if i >= 0 {
			checkSeats(t, rooms, p.Starts[i])
			take(t, rooms, p.Starts[i])
			continue
		}

		if fits(rooms, it.Shape.Need, kept) {
			t.Fatalf("job %s has room and is not started; kept: %v", it.Job, kept)
		}

		if kept == nil && placetest.Feasible(rooms, it.Shape.Need) {
			if p.Reservation == nil || p.Reservation.Job != it.Job {
				t.Fatalf("job %s is the first that has to wait and %+v is held", it.Job, p.Reservation)
			}

			kept = p.Reservation.Nodes
			if len(kept) != it.Shape.Need.Nodes {
				t.Fatalf("job %s needs %d nodes and %v are kept", it.Job, it.Shape.Need.Nodes, kept)
			}
		}
	}

	if kept == nil && p.Reservation != nil {
		t.Fatalf("%+v is held and nothing has to wait", p.Reservation)
	}
}

// checkSeats checks that a start takes as much of its range as there is.
func checkSeats(t *rapid.T, rooms []fleet.Room, s place.Start) {
	need := s.Item.Shape.Need
	if s.Reason == "" || len(s.Allocations) < need.Nodes || len(s.Allocations) > need.MaxNodes {
		t.Fatalf("job %s: %+v", s.Item.Job, s)
	}

	m := fleet.NewMatcher(need)
	for _, seat := range s.Allocations {
		r := &rooms[slices.IndexFunc(rooms, func(r fleet.Room) bool { return r.Node.ID == seat.Node })]
		free, ok := m.Fits(r)
		if want := min(need.MaxGPUs, bits.OnesCount64(free)); !ok || bits.OnesCount64(seat.GPUs) != want {
			t.Fatalf(
				"job %s takes GPUs %b of %s, where %b are free for it and it asks for %d to %d",
				s.Item.Job,
				seat.GPUs,
				seat.Node,
				free,
				need.GPUs,
				need.MaxGPUs,
			)
		}
	}
}

// TestBackfillNeverDelaysTheHead lets clusters run in virtual time, with run
// times that are known and exact. When a job becomes the first to wait, the
// time is taken at which it would start if nothing behind it were started at
// all; it must not start later than that. And nothing may wait for ever.
func TestBackfillNeverDelaysTheHead(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 8, func(t *rapid.T) {
		c := placetest.DrawCluster(t)
		s := simulation{Cluster: c, latest: map[id.Job]time.Time{}}
		for i := range rapid.IntRange(2, 16).Draw(t, "jobs") {
			at := 0
			if i > 0 {
				at = max(0, rapid.IntRange(-20, 30).Draw(t, "arrives"))
			}

			s.arrivals = append(
				s.arrivals,
				arrival{placetest.Start.Add(time.Duration(at) * time.Minute), placetest.DrawJob(t, true)},
			)
		}

		slices.SortStableFunc(s.arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
		s.run(t)
	})
}

type arrival struct {
	at   time.Time
	want placetest.Job
}

type ending struct {
	at time.Time
	s  place.Start
}

type simulation struct {
	*placetest.Cluster
	arrivals []arrival
	running  []ending
	latest   map[id.Job]time.Time // by when a head must have started
}

func (s *simulation) run(t *rapid.T) {
	for {
		for len(s.arrivals) > 0 && !s.arrivals[0].at.After(s.Now) {
			s.Add(s.arrivals[0].want)
			s.arrivals = s.arrivals[1:]
		}

		s.round(t)

		next := time.Time{}
		for _, e := range s.running {
			if next.IsZero() || e.at.Before(next) {
				next = e.at
			}
		}

		if len(s.arrivals) > 0 && (next.IsZero() || s.arrivals[0].at.Before(next)) {
			next = s.arrivals[0].at
		}

		if next.IsZero() {
			break
		}

		s.Now = next
		s.running = slices.DeleteFunc(s.running, func(e ending) bool {
			if e.at.After(s.Now) {
				return false
			}

			for _, seat := range e.s.Allocations {
				s.Table.Release(seat.Node, id.NewRun(e.s.Item.Job, 1))
			}

			return true
		})
	}

	for _, it := range s.waiting() {
		if placetest.Feasible(s.Table.Rooms(), it.Shape.Need) {
			t.Fatalf("job %s was never started", it.Job)
		}
	}
}

// round plans and starts, and watches the head.
func (s *simulation) round(t *rapid.T) {
	v := s.View()
	p := s.Plan()
	if _, bad := place.Check(v, p); len(bad) > 0 {
		t.Fatalf("plan does not pass the check: %v", bad)
	}

	head := s.head(p)
	if head != nil {
		if _, known := s.latest[head.Job]; !known {
			s.latest[head.Job] = s.alone(head, p)
		}
	}

	for _, st := range p.Starts {
		if latest, was := s.latest[st.Item.Job]; was && s.Now.After(latest) {
			t.Fatalf(
				"job %s starts at %s; without backfill it would have at %s",
				st.Item.Job,
				s.Now.Format(time.TimeOnly),
				latest.Format(time.TimeOnly),
			)
		}

		s.Book(st)
		s.running = append(s.running, ending{s.HoldOf(st, st.Allocations[0]).Ends, st})
	}
}

// head returns the first job that has to wait though the nodes could run it.
func (s *simulation) head(p place.Plan) *queue.Item {
	rooms := s.Table.Rooms()
	for _, it := range s.waiting() {
		if !slices.Contains(placetest.Started(p), it.Job) && placetest.Feasible(rooms, it.Shape.Need) {
			return it
		}
	}

	return nil
}

// alone returns when the head starts if of this plan only the jobs ahead of it are started.
func (s *simulation) alone(head *queue.Item, p place.Plan) time.Time {
	table := fleet.NewTable()
	rooms := s.Table.Rooms()
	for i := range rooms {
		table.Put(rooms[i].Node, 0)

		for _, h := range rooms[i].Holds {
			table.Book(rooms[i].Node.ID, h)
		}
	}

	ends := []time.Time{s.Now}

	for _, st := range p.Starts {
		if st.Item.Number < head.Number {
			for _, seat := range st.Allocations {
				table.Book(seat.Node, s.HoldOf(st, seat))
			}
		}
	}

	for _, r := range table.Rooms() {
		for _, h := range r.Holds {
			ends = append(ends, h.Ends)
		}
	}

	slices.SortFunc(ends, time.Time.Compare)
	for _, at := range ends {
		for _, r := range table.Rooms() {
			for _, h := range r.Holds {
				if !h.Ends.After(at) {
					table.Release(r.Node.ID, h.Run)
				}
			}
		}

		if fits(table.Rooms(), head.Shape.Need, nil) {
			return at
		}
	}

	panic(fmt.Sprint(head.Job, " never fits"))
}

// waiting lists the waiting jobs in order of submission.
func (s *simulation) waiting() []*queue.Item {
	var list []*queue.Item
	walk := s.Queue.Walk(func(id.User) float64 { return 0 })

	all := func(*queue.Shape) bool { return true }
	for it := walk.Next(all); it != nil; it = walk.Next(all) {
		list = append(list, it)
	}

	return list
}

func TestOneMoreNodeNeverHurtsAJobThatIsAlone(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 8, func(t *rapid.T) {
		c := placetest.DrawCluster(t)
		for range rapid.IntRange(0, 5).Draw(t, "running") {
			c.Add(placetest.DrawJob(t, false))
		}

		for _, s := range c.Plan().Starts {
			c.Book(s)
		}

		for _, it := range c.Items {
			c.Queue.Remove(it)
		}

		it := c.Add(placetest.DrawJob(t, false))
		before := c.Plan()
		placetest.DrawNode(t, c, "extra")

		after := c.Plan()
		if len(before.Starts) > len(after.Starts) {
			t.Fatalf("job %s could start, and with one more node it cannot", it.Job)
		}
	})
}
