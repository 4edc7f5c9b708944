package batch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
)

var now = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

type thing struct {
	batch.Mark
	value int
}

func taken(s *batch.Set[*thing], into []int) []int {
	return batch.Take(s, into, func(to *int, r *thing) { *to = r.value })
}

func TestAThingThatChangesTwiceIsTakenOnceWithItsLastValue(t *testing.T) {
	t.Parallel()
	var s batch.Set[*thing]
	a, b := &thing{value: 1}, &thing{value: 2}
	s.Add(a)
	s.Add(b)
	a.value = 3
	s.Add(a)
	old := make([]int, 1, 8)
	got := taken(&s, old)
	if diff := cmp.Diff([]int{3, 2}, got); diff != "" {
		t.Errorf("taken:\n%s", diff)
	}

	if a.Marked() || b.Marked() {
		t.Error("what was taken is still marked")
	}

	if &got[0] != &old[0] {
		t.Error("a list that is large enough is not used again")
	}

	got = taken(&s, got)
	if len(got) != 0 {
		t.Errorf("taken again: %v", got)
	}

	s.Add(b)

	if diff := cmp.Diff([]int{2}, taken(&s, got)); diff != "" {
		t.Errorf("taken after another change:\n%s", diff)
	}
}

func TestEventsAreNumberedOnFromTheLastThatIsStored(t *testing.T) {
	t.Parallel()
	var f batch.Feed
	f.Load(7)
	var b batch.Batch

	var numbers []uint64
	for range 3 {
		f.Add(now, batch.Event{Kind: "a"})

		if e := f.Add(now, batch.Event{Kind: "b"}); e.Seq == 0 || !e.At.Equal(now) {
			t.Errorf("told %+v", e)
		}

		f.Take(&b)
		for _, e := range b.Events {
			numbers = append(numbers, e.Seq)
		}
	}

	if diff := cmp.Diff([]uint64{8, 9, 10, 11, 12, 13}, numbers); diff != "" {
		t.Errorf("numbers:\n%s", diff)
	}

	f.Bug(now, nil)

	f.Take(&b)
	if len(b.Events) != 0 {
		t.Errorf("no error was told as %v", b.Events)
	}

	f.Bug(now, fmt.Errorf("cannot be"))

	f.Take(&b)
	if len(b.Events) != 1 || b.Events[0].Kind != "yard.bug" || b.Events[0].Reason != "cannot be" {
		t.Errorf("an error was told as %v", b.Events)
	}
}

func TestAnOrderThatIsClosedBeforeItIsTakenIsOnlyClosed(t *testing.T) {
	t.Parallel()
	o := batch.NewOrders()
	o.Open(&batch.Order{Run: "j1.1", Rank: 0})
	o.Close("j1.1", 0)
	o.Close("j1.1", 0) // again
	o.Stop("j1.1", 0, job.StopKill, false)
	var b batch.Batch
	o.Take(&b)
	if len(b.Orders) != 0 || len(b.Closed) != 1 || b.Closed[0] != "j1.1/0" {
		t.Errorf("opened %v, closed %v", b.Orders, b.Closed)
	}

	o.Take(&b)
	if !b.Empty() {
		t.Errorf("taken again: %+v", b)
	}
}

// TestOrdersAreWhatTheirBatchesSay keeps what batches say, as a store does.
func TestOrdersAreWhatTheirBatchesSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := batch.NewOrders()
		var b batch.Batch
		stored := map[string]batch.Order{}

		epoch := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			run := id.NewRun("j1", rapid.IntRange(1, max(epoch, 1)).Draw(t, "run"))

			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				epoch++
				o.Open(&batch.Order{Run: id.NewRun("j1", epoch), Epoch: epoch})
			case 1:
				o.Stop(run, 0, rapid.SampledFrom([]job.StopMode{job.StopTerm, job.StopKill}).Draw(t, "mode"),
					rapid.Bool().Draw(t, "dump"))
			case 2:
				o.Close(run, 0)
			case 3:
				o.Take(&b)
				for _, key := range b.Closed {
					delete(stored, key)
				}

				for _, order := range b.Orders {
					stored[order.Key()] = order
				}

				open := map[string]batch.Order{}
				for _, order := range o.All() {
					open[order.Key()] = order
				}

				if diff := cmp.Diff(open, stored); diff != "" {
					t.Fatalf("open and stored orders differ:\n%s", diff)
				}
			}
		}
	})
}
