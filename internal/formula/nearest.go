package formula

import "strings"

// nearest returns the known word that is meant most likely, "" if none is near:
// one letter in three may be wrong, and one of a shorter word.
func nearest(word string, known []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to add, to drop and to change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		slant := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := slant
			if a[i] != b[j] {
				cost = min(slant, row[j], row[j+1]) + 1
			}
			slant, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
