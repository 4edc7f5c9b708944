package yardtest

import "time"

// Pauses between two questions of Await.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// Await asks until the answer is yes, and reports whether it came before patience was at an end. The pauses grow: many
// tests wait at the same time, and every question that starts a program takes processor time from what they wait for.
func Await(patience time.Duration, ok func() bool) bool {
	pause := firstPause

	for end := time.Now().Add(patience); !ok(); pause = min(pause*5/4, maxPause) {
		if time.Now().After(end) {
			return false
		}

		time.Sleep(pause)
	}

	return true
}
