package ordered_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
)

func TestUsersTakeTurns(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 8)

	for _, u := range []id.User{"ada", "ada", "ada", "ada", "bob", "bob", "bob"} {
		c.Add(placetest.Job{User: u, Spec: placetest.GPUs(1)})
	}

	if got, want := placetest.Started(c.Plan()), []id.Job{
		"j1",
		"j5",
		"j2",
		"j6",
		"j3",
		"j7",
		"j4",
	}; !cmp.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

func TestHeavyUserGoesAfterLightOne(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 2)

	c.Usage["ada"] = 100 * 3600
	for _, u := range []id.User{"ada", "ada", "bob", "bob", "bob"} {
		c.Add(placetest.Job{User: u, Spec: placetest.GPUs(1)})
	}

	if got, want := placetest.Started(c.Plan()), []id.Job{"j3", "j4"}; !cmp.Equal(got, want) {
		t.Errorf("started %v, want %v: bob has used nothing yet", got, want)
	}
}

func TestPriorityGoesBeforeFairShare(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 1)
	c.Usage["ada"] = 100 * 3600
	c.Add(placetest.Job{User: "bob", Spec: placetest.GPUs(1)})
	c.Add(placetest.Job{User: "ada", Priority: 1, Spec: placetest.GPUs(1)})

	if got, want := placetest.Started(c.Plan()), []id.Job{"j2"}; !cmp.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

func TestGangStartsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 4)
	c.Box("b", 4)
	r := placetest.GPUs(4)
	r.Nodes = job.Range{Min: 3, Max: 3}
	j := c.Add(placetest.Job{Spec: r}).Job

	if p := c.Plan(); len(p.Starts) > 0 || p.Reservation != nil {
		t.Errorf("plan = %+v, want nothing started and nothing kept: the yard has 2 nodes and 3 are needed", p)
	}

	c.Box("c", 4)

	if got := placetest.Where(c.Plan(), j); len(got) != 3 {
		t.Errorf("runs on %v, want 3 nodes", got)
	}
}

func TestRangeTakesWhatIsFree(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		ask  string
		want []int // GPUs of each seat
	}{
		{"2", []int{2}}, {"1..8", []int{6}}, {"2..4", []int{4}}, {"3..", []int{6}}, {"0..2", []int{2}}, {"0", []int{0}}, {"7..8", nil},
	} {
		c := placetest.NewCluster()
		c.Box("a", 8)
		c.Table.Book("a", fleet.Hold{Run: "j99.1", Job: "j99", GPUs: 0b1001})

		r, err := job.ParseRange(tc.ask)
		if err != nil {
			t.Fatal(err)
		}

		c.Add(placetest.Job{Spec: job.Resources{GPUs: r, CPUs: 1000}})

		var got []int
		for _, s := range c.Plan().Starts {
			for _, seat := range s.Allocations {
				got = append(got, len(fleet.Indices(seat.GPUs)))

				if seat.GPUs&0b1001 != 0 {
					t.Errorf("gpus: %s is given %b, of which 1001 are held", tc.ask, seat.GPUs)
				}
			}
		}

		if !cmp.Equal(got, tc.want) {
			t.Errorf("gpus: %s gets %v, want %v", tc.ask, got, tc.want)
		}
	}
}

func TestNodesThatMatch(t *testing.T) {
	t.Parallel()
	kinds := func(k ...job.GPUKind) job.Resources {
		r := placetest.GPUs(1)
		r.GPU = k
		return r
	}

	memory := func(m job.ByteRange) job.Resources {
		r := placetest.GPUs(1)
		r.GPUMemory = m
		return r
	}

	for name, tc := range map[string]struct {
		want placetest.Job
		on   []id.Node
	}{
		"smallest GPU that will do":   {placetest.Job{Spec: placetest.GPUs(1)}, []id.Node{"l4"}},
		"by model":                    {placetest.Job{Spec: kinds(job.GPUKind{Model: "A100"})}, []id.Node{"a100"}},
		"any of two models":           {placetest.Job{Spec: kinds(job.GPUKind{Model: "H200"}, job.GPUKind{Model: "A100"})}, []id.Node{"a100"}},
		"by model and memory":         {placetest.Job{Spec: kinds(job.GPUKind{Model: "A100", Memory: 80 << 30})}, []id.Node{"a100"}},
		"not of another memory":       {placetest.Job{Spec: kinds(job.GPUKind{Model: "A100", Memory: 40 << 30})}, nil},
		"by memory":                   {placetest.Job{Spec: memory(job.ByteRange{Min: 48 << 30})}, []id.Node{"a100"}},
		"memory as it is sold":        {placetest.Job{Spec: memory(job.ByteRange{Min: 24 << 30})}, []id.Node{"l4"}},
		"memory between":              {placetest.Job{Spec: memory(job.ByteRange{Min: 40 << 30, Max: 80 << 30})}, []id.Node{"a100"}},
		"more memory than there is":   {placetest.Job{Spec: memory(job.ByteRange{Min: 1 << 60})}, nil},
		"without GPUs":                {placetest.Job{Spec: placetest.GPUs(0)}, []id.Node{"cpu"}},
		"in the cloud":                {placetest.Job{Place: job.PlaceCloud, Spec: placetest.GPUs(0)}, []id.Node{"rented"}},
		"own machines first":          {placetest.Job{Spec: kinds(job.GPUKind{Model: "L4"})}, []id.Node{"l4"}},
		"not where it failed":         {placetest.Job{Avoid: []id.Node{"l4"}, Spec: placetest.GPUs(1)}, []id.Node{"a100"}},
		"where only part of the name": {placetest.Job{Avoid: []id.Node{"l", "4", "l44"}, Spec: placetest.GPUs(1)}, []id.Node{"l4"}},
		"not with too little memory":  {placetest.Job{Spec: job.Resources{Memory: 1 << 50}}, nil},
		"not with too few processors": {placetest.Job{Spec: job.Resources{CPUs: 1_000_000}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			l4 := fleet.GPU{Model: "NVIDIA L4", Memory: 23034 << 20} // sold as 24GB, reports a little less
			c.Node("cpu", fleet.Local, 16000, 64<<30)
			c.Box("a100", 4)
			c.Node("l4", fleet.Local, 8000, 32<<30, l4)
			c.Node("rented", fleet.Reserved, 8000, 32<<30, l4)

			j := c.Add(tc.want).Job
			if got := placetest.Where(c.Plan(), j); !cmp.Equal(got, tc.on) {
				t.Errorf("runs on %v, want %v", got, tc.on)
			}
		})
	}
}

func TestLargeJobIsNotStarvedBySmallOnes(t *testing.T) {
	t.Parallel()

	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("run times known ", known), func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			c.Box("a", 4)
			c.Box("b", 4)

			small := placetest.Job{User: "bob", Spec: placetest.GPUs(1)}
			if known {
				small.Lasts = time.Minute // wrongly: each will take ten
			}

			for range 8 {
				c.Add(small)
			}

			var ends []*queue.Item
			run := func() bool {
				for _, s := range c.Plan().Starts {
					c.Book(s)
					ends = append(ends, s.Item)

					if s.Item.Shape.Need.GPUs == 4 {
						return true
					}
				}

				return false
			}

			run()
			large := c.Add(placetest.Job{User: "ada", Lasts: time.Hour, Spec: placetest.GPUs(4)})

			for range 100 { // one small job ends and another comes, again and again
				c.Now = c.Now.Add(10 * time.Minute / 8)
				c.Add(small)
				over := ends[0]
				ends = ends[1:]

				for _, n := range []id.Node{"a", "b"} {
					c.Table.Release(n, id.NewRun(over.Job, 1))
				}

				if run() {
					return
				}
				if len(ends) == 0 {
					break
				}
			}

			t.Errorf("%s never started", large.Job)
		})
	}
}

func TestJobThatFitsNowhereDoesNotHoldUpTheNext(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 4)
	c.Table.Book("a", fleet.Hold{Run: "j99.1", Job: "j99", GPUs: 1, Ends: c.Now.Add(time.Hour)})
	c.Add(placetest.Job{Spec: placetest.GPUs(16)})
	second := c.Add(placetest.Job{Lasts: time.Hour, Spec: placetest.GPUs(4)})
	c.Add(placetest.Job{Lasts: 2 * time.Hour, Spec: placetest.GPUs(1)})

	p := c.Plan()
	if len(p.Starts) > 0 || p.Reservation == nil || p.Reservation.Job != second.Job ||
		!p.Reservation.At.Equal(c.Now.Add(time.Hour)) {
		t.Errorf("plan = %+v, want node a kept for %s from 10:00", p, second.Job)
	}
}

func TestEndsOfWhatThisRoundStartsCount(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 8)
	c.Box("b", 8)
	c.Table.Book("b", fleet.Hold{Run: "j99.1", Job: "j99", GPUs: 0xff, Ends: c.Now.Add(time.Hour)})
	c.Add(placetest.Job{Lasts: 10 * time.Minute, Spec: placetest.GPUs(4)}) // starts on a, and ends first
	head := c.Add(placetest.Job{Lasts: time.Hour, Spec: placetest.GPUs(8)})
	c.Add(placetest.Job{Lasts: 24 * time.Hour, Spec: placetest.GPUs(4)}) // would sit on a for a day

	p := c.Plan()
	if got, want := placetest.Started(p), []id.Job{"j1"}; !cmp.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}

	if p.Reservation == nil || p.Reservation.Job != head.Job || !cmp.Equal(p.Reservation.Nodes, []id.Node{"a"}) ||
		!p.Reservation.At.Equal(c.Now.Add(10*time.Minute)) {
		t.Errorf("held %+v, want node a for %s in 10 minutes", p.Reservation, head.Job)
	}
}

func TestReasonsSayWhyHere(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 4)
	c.Box("b", 4)
	c.Table.Book("b", fleet.Hold{Run: "j99.1", Job: "j99", GPUs: 1, Ends: c.Now.Add(time.Hour)})
	c.Table.Book("a", fleet.Hold{Run: "j98.1", Job: "j98", GPUs: 1})
	c.Add(placetest.Job{Spec: placetest.GPUs(2)})                          // a or b
	c.Add(placetest.Job{Lasts: time.Hour, Spec: placetest.GPUs(4)})        // waits for b
	c.Add(placetest.Job{Lasts: 30 * time.Minute, Spec: placetest.GPUs(1)}) // elsewhere or in time
	c.Add(placetest.Job{Lasts: 30 * time.Minute, Spec: placetest.GPUs(3)}) // in time on b
	c.Add(placetest.Job{Lasts: 2 * time.Hour, Spec: job.Resources{}})      // room to spare

	got := map[id.Job]string{}
	for _, s := range c.Plan().Starts {
		got[s.Item.Job] = s.Reason
	}

	want := map[id.Job]string{
		"j1": "a: first in the queue and fits",
		"j3": "a: fits; cannot be used by j2, which is ahead in the queue",
		"j4": "b: reserved for j2 from 10:00 UTC; this job is expected to end before that",
		"j5": "a: fits; cannot be used by j2, which is ahead in the queue",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
