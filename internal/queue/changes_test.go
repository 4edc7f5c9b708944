package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// follower knows the queue by its changes.
type follower struct {
	position uint64
	stays    map[id.Job]uint64
}

// follow reads what has changed, and reports whether the changes told it all.
func (f *follower) follow(t *rapid.T, l *queue.Queue) bool {
	changes, ok := l.ChangesSince(f.position)
	f.position = l.Position()
	if !ok {
		clear(f.stays)
		for stay, it := range l.Stays {
			f.stays[it.Job] = stay
		}

		return false
	}

	for c := range changes {
		switch known, here := f.stays[c.Job]; {
		case c.Item != nil && here:
			t.Fatalf("job %s has entered and has not left", c.Job)
		case c.Item != nil:
			f.stays[c.Job] = c.Stay
		case here && known == c.Stay:
			delete(f.stays, c.Job)
		}
	}

	return true
}

// TestChangesTellWhoCameAndWent: who follows the changes knows the same jobs and stays as who looks at all of them,
// however often they come and go.
func TestChangesTellWhoCameAndWent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := queue.New()
		f := &follower{stays: map[id.Job]uint64{}}
		items := make([]*queue.Item, rapid.IntRange(1, 40).Draw(t, "jobs"))
		queued := map[int]bool{}

		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for range rapid.IntRange(0, 60).Draw(t, "moves") {
				n := rapid.IntRange(0, len(items)-1).Draw(t, "who")
				if queued[n] {
					l.Remove(items[n])
				} else {
					items[n] = &queue.Item{Job: id.Job(fmt.Sprint("j", n)), Number: uint64(n), User: "ada"}
					l.Add(items[n], fleet.Need{GPUs: n % 3})
				}

				queued[n] = !queued[n]
			}

			if !f.follow(t, l) {
				t.Fatal("a few changes are too many")
			}

			want := map[id.Job]uint64{}
			for stay, it := range l.Stays {
				want[it.Job] = stay
			}

			for n := range items {
				if it := l.Find(uint64(n)); (it != nil) != queued[n] || it != nil && it != items[n] {
					t.Fatalf("job %d is found: %v, want %v", n, it, queued[n])
				}
			}

			if !maps.Equal(f.stays, want) {
				t.Fatalf("by its changes %v are queued, want %v", f.stays, want)
			}
		}
	})
}

// TestTooManyChangesAreNotToldOneByOne: the journal is bounded, and who reads too late is told so.
func TestTooManyChangesAreNotToldOneByOne(t *testing.T) {
	t.Parallel()
	l := queue.New()
	first := l.Position()

	for n := range 10_000 {
		it := &queue.Item{Job: id.NewJob(uint64(n)), Number: uint64(n), User: "ada"}
		l.Add(it, fleet.Need{})

		if n%2 == 0 {
			l.Remove(it)
		}
	}

	if _, ok := l.ChangesSince(first); ok {
		t.Error("15,000 changes are listed")
	}
	if _, ok := l.ChangesSince(l.Position() + 1); ok {
		t.Error("changes of the future are listed")
	}

	now := l.Position()
	l.Add(&queue.Item{Job: "j99999", Number: 99999, User: "ada"}, fleet.Need{})

	changes, ok := l.ChangesSince(now)
	if got := slices.Collect(changes); !ok || len(got) != 1 || got[0].Job != "j99999" {
		t.Errorf("the changes are %v (%v), want that j99999 has entered", got, ok)
	}
}
