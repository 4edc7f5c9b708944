package formula

import (
	"strings"

	"trainyard/internal/near"
)

// nearest returns the known word that is meant most likely, "" if none is near:
// one letter in three may be wrong, and one of a shorter word.
func nearest(word string, known []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		if d := near.Distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}
