//go:build !race

package yardmaster_test

// underRace says that the race detector slows everything down.
const underRace = false
