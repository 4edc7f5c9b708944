package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is how far a server's heap grows between two collections, in percent
// of what lives. Go's own 100 spends about a fifth of the time of a submission
// on collecting a small heap again and again; a queued job takes little memory,
// so there is room. Whoever sets GOGC knows better.
const gcPercent = 300

// collectLess tells the collector so.
func collectLess() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
}
