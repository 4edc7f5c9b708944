package digest

// inPairs reports whether two digests are computed at a time.
func inPairs() bool { return hasInstructions() && standard() }

// blocks hashes n blocks at p into x, and as many at q into y.
//
//go:noescape
func blocks(x, y *state, p, q *byte, n int)

// hasInstructions reports whether the processor has the instructions that blocks uses.
func hasInstructions() bool
