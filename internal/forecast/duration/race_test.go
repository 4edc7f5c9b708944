//go:build race

package duration_test

// underRace says that the race detector slows everything down.
const underRace = true
