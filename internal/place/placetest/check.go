package placetest

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Check tries a property in so many subtests at the same time, each as often as -rapid.checks
// says: a hundred times by default.
func Check(t *testing.T, subtests int, prop func(*rapid.T)) {
	t.Helper()

	for i := range subtests {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, prop)
		})
	}
}
