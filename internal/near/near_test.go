package near_test

import (
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/near"
)

func TestDistanceCountsLettersAddedTakenOutChangedAndSwapped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"gpus", "gpus", 0}, {"gpu", "gpus", 1}, {"gpsu", "gpus", 1}, {"gqus", "gpus", 1}, {"", "gpus", 4}, {"kitten", "sitting", 3}, {"größe", "grösse", 2},
	} {
		if got := near.Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("from %q to %q it is %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestDistanceIsTheSameBothWaysAndNoneOnlyBetweenEqualWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abcé")), 0, 8, -1)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		there, back := near.Distance(a, b), near.Distance(b, a)
		if there != back || (there == 0) != (a == b) {
			t.Fatalf("%q and %q: %d there, %d back", a, b, there, back)
		}
	})
}
