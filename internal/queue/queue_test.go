package queue_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// model is the line as plainly as it can be written: a list.
type model struct {
	items []*queue.Item
	needs map[*queue.Item]fleet.Need
}

// walk returns the order in which a walk hands out jobs: level by level, and
// there always the earliest open job of the user who is charged least. closing
// says for each job handed out whether its shape is closed after it.
func (m *model) walk(usage map[id.User]float64, closing func(*queue.Item) bool) []id.Job {
	charged := maps.Clone(usage)
	closed := map[fleet.Need]bool{}
	left := slices.Clone(m.items)
	var order []id.Job

	for {
		left = slices.DeleteFunc(left, func(it *queue.Item) bool { return closed[m.needs[it]] })
		if len(left) == 0 {
			return order
		}

		best := slices.MinFunc(left, func(a, b *queue.Item) int {
			if a.Priority != b.Priority {
				return b.Priority - a.Priority
			}

			if x, y := charged[a.User], charged[b.User]; x != y && a.User != b.User {
				if x < y {
					return -1
				}

				return 1
			}

			return int(a.Number) - int(b.Number)
		})

		order = append(order, best.Job)
		charged[best.User] += best.Cost

		if closing(best) {
			closed[m.needs[best]] = true
		}

		left = slices.DeleteFunc(left, func(it *queue.Item) bool { return it == best })
	}
}

// TestWalkIsLikeTheModel adds and removes at random and compares walks.
func TestWalkIsLikeTheModel(t *testing.T) {
	t.Parallel()

	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, walkIsLikeTheModel)
		})
	}
}

func walkIsLikeTheModel(t *rapid.T) {
	l, m := queue.New(), &model{needs: map[*queue.Item]fleet.Need{}}
	users := []id.User{"ada", "bob", "cyd"}

	usage := map[id.User]float64{}
	for _, u := range users {
		usage[u] = float64(rapid.IntRange(0, 3).Draw(t, "usage"))
	}

	numbers := rapid.Permutation(seq(40)).Draw(t, "numbers") // a retried job comes back to its old place
	for range rapid.IntRange(1, 40).Draw(t, "operations") {
		if len(m.items) > 0 && rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
			it := rapid.SampledFrom(m.items).Draw(t, "which")
			l.Remove(it)
			l.Remove(it) // once more changes nothing
			m.items = slices.DeleteFunc(m.items, func(o *queue.Item) bool { return o == it })
		} else if len(numbers) > 0 {
			it := &queue.Item{
				Job:    id.NewJob(numbers[0]),
				Number: numbers[0],
				User:   rapid.SampledFrom(users).Draw(t, "user"),
				Priority: rapid.IntRange(0, 2).
					Draw(t, "priority"),
				Lasts: time.Duration(rapid.IntRange(0, 3).Draw(t, "lasts")),
				Cost:  float64(rapid.IntRange(0, 3).Draw(t, "cost")),
			}

			numbers = numbers[1:]
			need := fleet.Need{GPUs: rapid.IntRange(0, 3).Draw(t, "shape")}
			l.Add(it, need)
			m.items, m.needs[it] = append(m.items, it), need
		}

		compare(t, l, m, usage)
	}
}

func compare(t *rapid.T, l *queue.Queue, m *model, usage map[id.User]float64) {
	shapes, shortest := map[fleet.Need]int{}, map[fleet.Need]time.Duration{}
	for _, it := range m.items {
		shapes[m.needs[it]]++

		if least := shortest[m.needs[it]]; it.Lasts > 0 && (least == 0 || it.Lasts < least) {
			shortest[m.needs[it]] = it.Lasts
		}

		if it.Shape.Need != m.needs[it] {
			t.Fatalf("job %s has shape %+v", it.Job, it.Shape)
		}
	}

	if l.Len() != len(m.items) || l.Shapes() != len(shapes) {
		t.Fatalf("the line has %d jobs of %d shapes, want %d of %d", l.Len(), l.Shapes(), len(m.items), len(shapes))
	}

	for _, it := range m.items {
		if got, want := it.Shape.Shortest(job.Hardware{}), shortest[it.Shape.Need]; got != want {
			t.Fatalf("the shortest of shape %+v lasts %s, want %s", it.Shape.Need, got, want)
		}

		if it.Shape.Count != shapes[it.Shape.Need] {
			t.Fatalf("shape %+v counts %d, want %d", it.Shape.Need, it.Shape.Count, shapes[it.Shape.Need])
		}
	}

	modulus := uint64(rapid.IntRange(1, 5).Draw(t, "close each"))
	closing := func(it *queue.Item) bool { return it.Number%modulus == 1 }
	closed := map[*queue.Shape]bool{}
	open := func(s *queue.Shape) bool { return !closed[s] }
	var got []id.Job

	walk := l.Walk(func(u id.User) float64 { return usage[u] })
	for it := walk.Next(open); it != nil; it = walk.Next(open) {
		got = append(got, it.Job)

		if closing(it) {
			closed[it.Shape] = true
		}
	}

	if want := m.walk(usage, closing); !slices.Equal(got, want) {
		t.Fatalf("walk gives %v, want %v", got, want)
	}
}

func seq(n uint64) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i) + 1
	}

	return list
}

func TestAddingTwiceIsOnce(t *testing.T) {
	t.Parallel()
	l := queue.New()
	it := &queue.Item{Job: "j1", Number: 1, User: "ada"}
	l.Add(it, fleet.Need{GPUs: 1})
	l.Add(it, fleet.Need{GPUs: 1})

	if l.Len() != 1 || it.Shape.Count != 1 {
		t.Errorf("the line has %d jobs and the shape %d, want 1", l.Len(), it.Shape.Count)
	}

	l.Remove(it)

	if l.Len() != 0 || l.Shapes() != 0 {
		t.Errorf("%d jobs of %d shapes are left, want none", l.Len(), l.Shapes())
	}
}

func TestUseIsForgottenByHalfEachWeek(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		use, rate float64
		passed    time.Duration
		want      float64
	}{
		{100, 0, 0, 100},
		{100, 0, queue.HalfLife, 50},
		{100, 0, 2 * queue.HalfLife, 25},
		{100, 5, -time.Hour, 100}, // a clock that was set back
		{0, 2, time.Second, 2},
		{0, 1, 1000 * queue.HalfLife, queue.HalfLife.Seconds() / math.Ln2}, // the most that one GPU can come to
	} {
		if got := queue.Decayed(tc.use, tc.rate, tc.passed); math.Abs(got-tc.want) > 1e-4*max(1, tc.want) {
			t.Errorf("Decayed(%g, %g, %s) = %g, want %g", tc.use, tc.rate, tc.passed, got, tc.want)
		}
	}
}

func TestUseDoesNotDependOnHowOftenItIsCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		use, rate := rapid.Float64Range(0, 1e9).Draw(t, "use"), rapid.Float64Range(0, 1e4).Draw(t, "rate")
		a := time.Duration(rapid.Int64Range(0, int64(queue.HalfLife)).Draw(t, "a"))
		b := time.Duration(rapid.Int64Range(0, int64(queue.HalfLife)).Draw(t, "b"))
		once := queue.Decayed(use, rate, a+b)

		twice := queue.Decayed(queue.Decayed(use, rate, a), rate, b)
		if math.Abs(once-twice) > 1e-9*max(1, once) {
			t.Fatalf("counted once %g, twice %g", once, twice)
		}
	})
}

func TestWeight(t *testing.T) {
	t.Parallel()

	if got := queue.Weight(4, 2, 16, 1); got != 10 {
		t.Errorf("2 nodes with 4 GPUs and 16 CPUs each weigh %g, want 10", got)
	}
}

func TestItemsComeByOrderOfSubmission(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := queue.New()
		for _, n := range rapid.Permutation([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).Draw(t, "order")[:rapid.IntRange(0, 12).Draw(t, "jobs")] {
			line.Add(
				&queue.Item{
					Number:   n,
					User:     id.User(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "user")),
					Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
				},
				fleet.Need{GPUs: rapid.IntRange(1, 3).Draw(t, "gpus")},
			)
		}

		items := line.Items()
		if len(items) != line.Len() ||
			!slices.IsSortedFunc(items, func(a, b *queue.Item) int { return int(a.Number) - int(b.Number) }) {
			t.Fatalf("%d jobs wait and the list is %v", line.Len(), items)
		}
	})
}
