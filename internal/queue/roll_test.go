package queue_test

import (
	"cmp"
	"runtime"
	"slices"
	"testing"
	"weak"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/queue"
)

// TestStaysTellWhoCameAndWent: who remembers the stays of a line finds by them alone
// what has changed since, and a job that left and came back is not taken for one that stayed.
func TestStaysTellWhoCameAndWent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := queue.New()
		var in, out []*queue.Item
		for n := range rapid.IntRange(1, 200).Draw(t, "jobs") {
			out = append(out, &queue.Item{Number: uint64(n), User: "ada"})
		}

		seen := map[uint64]*queue.Item{} // every stay there ever was

		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			was := map[*queue.Item]uint64{}
			for stay, it := range l.Stays {
				was[it] = stay
			}

			moved := map[*queue.Item]bool{}

			for range rapid.IntRange(0, 150).Draw(t, "moves") {
				from, to, come := &in, &out, false
				if len(in) == 0 || len(out) > 0 && rapid.Bool().Draw(t, "comes") {
					from, to, come = &out, &in, true
				}

				at := rapid.IntRange(0, len(*from)-1).Draw(t, "who")
				it := (*from)[at]
				*from, *to = slices.Delete(*from, at, at+1), append(*to, it)
				moved[it] = true

				if come {
					l.Add(it, fleet.Need{GPUs: int(it.Number % 3)})
				} else {
					l.Remove(it)
				}
			}

			want := slices.SortedFunc(slices.Values(in), func(a, b *queue.Item) int { return cmp.Compare(a.Number, b.Number) })
			if got := l.Items(); !slices.Equal(got, want) {
				t.Fatalf("%d jobs are in line, want %d", len(got), len(want))
			}

			for stay, it := range l.Stays {
				if old, known := seen[stay]; known && (old != it || moved[it]) {
					t.Fatalf("job %d has the stay of job %d", it.Number, old.Number)
				}

				if was[it] != stay && !moved[it] {
					t.Fatalf("job %d has stayed, and its stay is another", it.Number)
				}

				seen[stay] = it
			}
		}
	})
}

func TestALineKeepsNobodyWhoHasLeft(t *testing.T) {
	t.Parallel()
	l := queue.New()

	var gone []weak.Pointer[queue.Item]
	for n := range 500 {
		it := &queue.Item{Number: uint64(n), User: "ada"}
		l.Add(it, fleet.Need{GPUs: n % 5})

		if n%7 != 0 {
			gone = append(gone, weak.Make(it))
		}
	}

	for _, p := range gone {
		l.Remove(p.Value())
	}

	runtime.GC()

	for _, p := range gone {
		if it := p.Value(); it != nil {
			t.Fatalf("job %d is kept", it.Number)
		}
	}

	if l.Len() != len(l.Items()) {
		t.Errorf("%d jobs are counted and %d listed", l.Len(), len(l.Items()))
	}
}
