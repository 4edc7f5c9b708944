//go:build !amd64

package digest

// inPairs reports whether two digests are computed at a time.
func inPairs() bool { return false }

// blocks is for processors for which there is no better way than crypto/sha256.
func blocks(_, _ *state, _, _ *byte, _ int) {}
