package checkpoints

// The bounds of chunks. Smaller chunks find more that two checkpoints have in common, larger ones cost fewer requests
// and a shorter manifest. None is larger than api.MaxChunk.
const (
	minChunk = 1 << 20
	avgChunk = 4 << 20
	maxChunk = 16 << 20
)

// A chunk ends where the hash of the bytes before is below a limit: a stricter one up to the average size and a looser
// one after, so that most chunks are of about that size (normalised chunking, as in FastCDC, USENIX ATC 2016). The
// limits ask for 2^22 bytes on average, times or divided by four.
const (
	strictLimit = uint64(1) << (64 - 24)
	looseLimit  = uint64(1) << (64 - 20)
)

// gear is the table of the rolling hash. Every agent must have the same one, or chunks of one never equal those of
// another.
type gear [256]uint64

// newGear makes the table with the generator splitmix64.
func newGear() *gear {
	var g gear
	state := uint64(0x74726169_6e796172)
	for i := range g {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		g[i] = z ^ z>>31
	}

	return &g
}

// cut returns the length of the first chunk of p. It depends on the content alone if p has at least maxChunk bytes or
// ends where the file ends.
func (g *gear) cut(p []byte) int {
	if len(p) <= minChunk {
		return len(p)
	}

	n := min(len(p), maxChunk)
	var hash uint64

	middle := min(n, avgChunk)
	for i, b := range p[minChunk:middle] {
		hash = hash<<1 + g[b]
		if hash < strictLimit && i >= 64 {
			return minChunk + i + 1
		}
	}

	for i, b := range p[middle:n] {
		hash = hash<<1 + g[b]
		if hash < looseLimit {
			return middle + i + 1
		}
	}

	return n
}
