package queue_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// TestPositionsAreThoseOfAWalk compares the position of every queued job with where a walk comes to it, at once and
// after the queue has changed.
func TestPositionsAreThoseOfAWalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s queue.Standings
		q, now := queue.New(), time.Unix(1000, 0)
		users := []id.User{"ada", "bob", "cyd"}
		usage := map[id.User]float64{}
		for _, u := range users {
			usage[u] = float64(rapid.IntRange(0, 40).Draw(t, "usage"))
		}

		type taken struct {
			standing *queue.Standing
			order    []*queue.Item
		}

		var kept []taken
		var in, out []*queue.Item

		for n := range uint64(rapid.IntRange(1, 300).Draw(t, "jobs")) {
			out = append(out, &queue.Item{
				Job: id.NewJob(n), Number: n, User: rapid.SampledFrom(users).Draw(t, "user"),
				Priority: rapid.IntRange(0, 1).Draw(t, "priority"), Cost: float64(rapid.IntRange(0, 3).Draw(t, "cost")),
			})
		}

		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for range rapid.IntRange(0, 300).Draw(t, "moves") {
				from, to, comes := &in, &out, false
				if len(in) == 0 || len(out) > 0 && rapid.IntRange(0, 3).Draw(t, "comes") > 0 {
					from, to, comes = &out, &in, true
				}

				// Mostly the first, as jobs come and go.
				at := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, len(*from)-1)).Draw(t, "who")
				it := (*from)[at]
				*from, *to = slices.Delete(*from, at, at+1), append(*to, it)

				if comes {
					q.Add(it, fleet.Need{GPUs: int(it.Number % 3)})
					s.Add(it)
				} else {
					q.Remove(it)
					s.Remove(it)
				}
			}

			standing := s.Standing(func(u id.User) queue.Decay { return queue.Decay{Use: usage[u], At: now} })
			if s.Changed() {
				t.Fatal("nothing has changed since")
			}

			walk := q.Walk(func(u id.User) float64 { return usage[u] })
			all := func(*queue.Shape) bool { return true }
			var order []*queue.Item
			for it := walk.Next(all); it != nil; it = walk.Next(all) {
				order = append(order, it)
			}

			kept = append(kept, taken{standing, order})
		}

		for _, k := range kept {
			var numbers []uint64
			for number, user := range k.standing.Order(now) {
				if want := k.order[len(numbers)].User; user != want {
					t.Fatalf("job %d is of %s, want %s", number, user, want)
				}

				numbers = append(numbers, number)
			}

			if len(numbers) != len(k.order) || k.standing.Len() != len(k.order) {
				t.Fatalf("the order has %d of %d jobs, and the standing %d", len(numbers), len(k.order), k.standing.Len())
			}

			for i, it := range k.order {
				if numbers[i] != it.Number {
					t.Fatalf("job %d is at %d in the order, want job %d", numbers[i], i+1, it.Number)
				}

				if got := k.standing.Position(now, it.Priority, it.User, it.Number); got != i+1 {
					t.Fatalf("job %d of %s is at %d of %d, want %d", it.Number, it.User, got, len(k.order), i+1)
				}
			}
		}

		last := kept[len(kept)-1]
		for _, it := range out {
			if got := last.standing.Position(now, it.Priority, it.User, it.Number); got != 0 {
				t.Fatalf("job %d is not queued and is at %d", it.Number, got)
			}
		}
	})
}
