//go:build race

package history_test

// underRace says that the race detector slows everything down.
const underRace = true
