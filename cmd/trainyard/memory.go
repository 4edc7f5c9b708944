package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is how far a server's heap grows between two collections, in percent
// of what lives. With Go's own 100 a small heap is collected again and again
// while submissions come in; a queued job takes little memory, so there is room.
// Whoever sets GOGC knows better.
const gcPercent = 300

// collectLess tells the collector so.
func collectLess() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
}
