// Package suggest finds the known word that a mistyped one was meant to be, for
// "did you mean gpus?" in errors about job files, prices, scenarios and formulas.
//
// Which words are known is the caller's to say. What is mistyped comes from outside, so
// the work is bounded: overlong words are not compared, and a Finder that reads a whole file gives up
// after a fixed number of comparisons.
package suggest

import (
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxRunes is the longest word that is compared: no name we know is longer.
	maxRunes = 40
	// maxDistance is how many letters of a long word may be wrong.
	maxDistance = 3
	// shortWord is the length at which a third of the letters would round up to half of the word.
	shortWord = 4
	// maxComparisons is how many pairs of words a Finder compares. A file with this many mistakes
	// needs another remedy than suggestions.
	maxComparisons = 20_000
)

// Closest returns the known word that was probably meant, or "" if none is close. One letter in three may be
// wrong, one of four, three at most; a word and its letters swapped, added or left out count alike. Of words
// equally close it is the one of the same length, and of those the first in the alphabet. Case does not matter.
func Closest(word string, known []string) string {
	var f Finder

	return f.Closest(word, known)
}

// Finder finds the closest words for all the mistakes of one file, with a bound on
// the work for all of them together. The zero value is ready to use.
type Finder struct {
	comparisons int
}

// Closest is as the function Closest, until the bound is reached; from then on it returns "".
func (f *Finder) Closest(word string, known []string) string {
	length := utf8.RuneCountInString(word)
	if length > maxRunes {
		return ""
	}

	word = strings.ToLower(word)
	limit := min(maxDistance, (length+2)/3)
	if length == shortWord {
		limit = 1 // with two of four letters wrong it is another word: fast is not cost
	}

	best := ""
	bestDistance := limit + 1

	for _, candidate := range known {
		size := utf8.RuneCountInString(candidate)
		if size-length > maxDistance || length-size > maxDistance {
			continue
		}

		if f.comparisons >= maxComparisons {
			return ""
		}

		f.comparisons++

		d := distance(word, strings.ToLower(candidate))
		if d >= size || d > bestDistance || d > limit {
			continue
		}

		if d < bestDistance || better(candidate, best, length) {
			best = candidate
			bestDistance = d
		}
	}

	return best
}

// better decides between two words that are equally close to one of this length.
func better(a, b string, length int) bool {
	sameA := utf8.RuneCountInString(a) == length
	sameB := utf8.RuneCountInString(b) == length
	if sameA != sameB {
		return sameA
	}

	return a < b
}

// distance counts the letters to add, take out, change or swap with their neighbour
// that make one word of the other (the optimal string alignment distance).
func distance(from, to string) int {
	a := []rune(from)
	b := []rune(to)

	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	beforeLast, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}

	for i := 1; i <= len(a); i++ {
		row[0] = i

		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}

			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)

			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}

		beforeLast, last, row = last, row, beforeLast
	}

	return last[len(b)]
}

// DidYouMean asks about the word that was probably meant, "did you mean gpus?", or
// lists what there is if none is close: "use one of cpus, gpus".
func DidYouMean(word string, known []string) string {
	var f Finder

	return f.DidYouMean(word, known)
}

// DidYouMean is as the function DidYouMean, within the Finder's bound.
func (f *Finder) DidYouMean(word string, known []string) string {
	if meant := f.Closest(word, known); meant != "" {
		return "did you mean " + meant + "?"
	}

	sorted := slices.Sorted(slices.Values(known))

	return "use one of " + strings.Join(sorted, ", ")
}
