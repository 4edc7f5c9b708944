package suggest

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDistanceCountsLettersAddedLeftOutChangedAndSwapped(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"gpus", "gpus", 0},
		{"gpu", "gpus", 1},
		{"gpsu", "gpus", 1},
		{"gqus", "gpus", 1},
		{"", "gpus", 4},
		{"kitten", "sitting", 3},
		{"größe", "grösse", 2},
	} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("from %q to %q it is %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestDistanceIsTheSameBothWaysAndNoneOnlyBetweenEqualWords(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abcé")), 0, 8, -1)
		a := word.Draw(t, "a")
		b := word.Draw(t, "b")

		there := distance(a, b)

		back := distance(b, a)
		if there != back || (there == 0) != (a == b) {
			t.Fatalf("%q and %q: %d there, %d back", a, b, there, back)
		}
	})
}

func TestClosest(t *testing.T) {
	t.Parallel()
	known := []string{"gpus", "cpus", "gpu", "memory", "max_duration", "name", "env", "image"}

	for word, want := range map[string]string{
		"gpsu":                  "gpus",
		"GPUS":                  "gpus",
		"memroy":                "memory",
		"max_duratoin":          "max_duration",
		"nmae":                  "name",
		"q":                     "",
		"":                      "",
		"something else":        "",
		strings.Repeat("x", 41): "",
		"xpus":                  "cpus", // as close as gpus, and first in the alphabet
	} {
		if got := Closest(word, known); got != want {
			t.Errorf("closest to %q is %q, want %q", word, got, want)
		}
	}
}

// "objective: fast" was answered with "did you mean cost?" (newcomer 35).
func TestHalfOfAShortWordIsNotClose(t *testing.T) {
	t.Parallel()

	known := []string{"time", "cost", "balanced"}
	for word, want := range map[string]string{"fast": "", "cots": "cost", "tim": "time", "balance": "balanced"} {
		if got := Closest(word, known); got != want {
			t.Errorf("closest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestTheOrderOfTheKnownWordsDoesNotMatter(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 1, 5, -1)
		known := rapid.SliceOfN(letters, 1, 8).Draw(t, "known")
		word := letters.Draw(t, "word")

		other := rapid.Permutation(known).Draw(t, "other")

		if a, b := Closest(word, known), Closest(word, other); a != b {
			t.Fatalf("%q of %v and %q of %v", a, known, b, other)
		}
	})
}

func TestTheWorkForAFileOfMistakesIsBounded(t *testing.T) {
	t.Parallel()
	var known []string
	for i := range 60 {
		known = append(known, fmt.Sprintf("known_key_%02d", i))
	}

	var f Finder

	suggested := 0
	for i := range 60_000 {
		if f.Closest(fmt.Sprintf("knwon_key%05d", i), known) != "" {
			suggested++
		}
	}

	if f.comparisons > maxComparisons {
		t.Errorf("%d comparisons, want at most %d", f.comparisons, maxComparisons)
	}

	// Long words cost no comparison at all.
	var long Finder
	long.Closest(strings.Repeat("known_key", 10_000), known)

	if long.comparisons != 0 {
		t.Errorf("%d comparisons of a long word", long.comparisons)
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()

	known := []string{"gpus", "cpus"}
	if got := DidYouMean("gpsu", known); got != "did you mean gpus?" {
		t.Error(got)
	}

	if got := DidYouMean("something", known); got != "use one of cpus, gpus" {
		t.Error(got)
	}
}
