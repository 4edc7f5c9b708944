//go:build race

package fuzzing

// slower is how many times longer code takes that the race detector watches.
const slower = 10
