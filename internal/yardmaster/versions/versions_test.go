package versions_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/yardmaster/versions"
)

// contents returns what a version has.
func contents(v versions.Version[string]) map[uint64]string {
	got := map[uint64]string{}
	for number, value := range v.All {
		got[number] = *value
	}

	return got
}

// TestVersionsStayAsTheyWere compares versions with copies of a plain map, also long after the map has changed.
func TestVersionsStayAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m versions.Map[string]
		type taken struct {
			version versions.Version[string]
			want    map[uint64]string
		}

		now, kept := map[uint64]string{}, []taken{{m.Version(), map[uint64]string{}}}
		// Neighbours, numbers of one block, of other blocks, and very large ones.
		numbers := rapid.OneOf(rapid.Uint64Range(0, 200), rapid.Uint64Range(0, 20_000), rapid.Uint64())

		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			number := numbers.Draw(t, "number")

			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0:
				kept = append(kept, taken{m.Version(), maps.Clone(now)})
			case 1:
				m.Set(number, nil)
				delete(now, number)
			default:
				value := rapid.StringN(1, 3, 3).Draw(t, "value")
				m.Set(number, &value)
				now[number] = value
			}
		}

		kept = append(kept, taken{m.Version(), now})
		for i, k := range kept {
			if diff := cmp.Diff(k.want, contents(k.version)); diff != "" {
				t.Fatalf("version %d has changed (-want +got):\n%s", i, diff)
			}

			for number, want := range k.want {
				if got := k.version.Get(number); got == nil || *got != want {
					t.Fatalf("version %d has %v for %d, want %q", i, got, number, want)
				}
			}

			if got := k.version.Get(1 << 40); got != nil && k.want[1<<40] == "" {
				t.Fatalf("version %d has %q for a number without value", i, *got)
			}
		}
	})
}

// TestAChangeCopiesLittle holds on to what a version costs: the parts that have changed since the last one.
func TestAChangeCopiesLittle(t *testing.T) {
	var m versions.Map[int]

	const numbers = 100_000
	for i := range uint64(numbers) {
		m.Set(i, new(int))
	}

	value := new(int)
	allocs := testing.AllocsPerRun(100, func() {
		m.Set(numbers/2, nil)
		m.Set(numbers/2, value)
		m.Version()
	})

	if allocs > 3 { // a list of blocks, a block and a page
		t.Errorf("a change and a version take %v allocations", allocs)
	}
}
