package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
)

func TestTogether(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name  string
		where string // of each machine, separated by spaces; - for unknown
		n     int
		want  []int
	}{
		{"unknown places keep their order", "- - - -", 2, []int{0, 1}},
		{"one rack", "r1 r2 r1 r2", 2, []int{0, 2}},
		{"the rack with the fewest that has enough", "r1 r1 r1 r2 r2", 2, []int{3, 4}},
		{"a rack rather than machines of unknown place", "- r1 - r1", 2, []int{1, 3}},
		{"few racks if none has enough", "r1 r2 r2 r3 r1 r2", 4, []int{1, 2, 5, 3}},
		{"all", "r2 r1 r2 r1", 4, []int{0, 2, 1, 3}},
		{"a switch within a rack", "r1/s1 r1/s2 r1/s1 r2/s1 r1/s2", 2, []int{0, 2}},
		{"a rack over two switches", "r1/s1 r2/s9 r1/s2 r1/s1 r2/s8", 3, []int{0, 3, 2}},
		{"one of several", "r1 r1 r2", 1, []int{2}},
		{"known to different depths", "r1 r1/s1 r1/s1", 2, []int{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			where := strings.Fields(strings.ReplaceAll(c.where, "-", `""`))
			for i := range where {
				where[i] = strings.Trim(where[i], `"`)
			}

			if got := fleet.Together(where, c.n); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTogetherTakesEachOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.SampledFrom([]string{"", "a", "b", "a/1", "a/2", "b/1", "b/1/x"})
		where := rapid.SliceOfN(place, 1, 12).Draw(t, "where")
		n := rapid.IntRange(1, len(where)).Draw(t, "n")
		got := fleet.Together(where, n)
		unique := slices.Compact(slices.Sorted(slices.Values(got)))

		if len(got) != n || len(unique) != n {
			t.Fatalf("%v of %q", got, where)
		}
	})
}

func TestCheckTopology(t *testing.T) {
	t.Parallel()

	for text, ok := range map[string]bool{
		"": true, "rack-7": true, "hall-2/Rack_7/s.1": true, "/rack": false, "rack/": false, "a//b": false, "rack 7": false,
		"a/b/c/d/e/f/g/h": true, "a/b/c/d/e/f/g/h/i": false, strings.Repeat("x", 64): false,
	} {
		if err := fleet.CheckTopology(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
