package checkpoints

// The bounds of chunks, which have 5 MB on average. Smaller chunks find more that two checkpoints have in common,
// larger ones cost fewer requests and files and a shorter manifest. None is larger than api.MaxChunk.
const (
	minChunk = 3 << 20
	maxChunk = 16 << 20
)

// A chunk ends where the hash of the last window bytes is below a limit, which is so once in 2^21 bytes. Nothing is
// hashed up to the smallest size, which is most of a chunk: finding the end of chunks would cost as much as their
// digests otherwise.
const (
	window = 64
	limit  = uint64(1) << (64 - 21)
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

	for _, b := range p[minChunk-window : minChunk] {
		hash = hash<<1 + g[b]
	}

	for i, b := range p[minChunk:n] {
		hash = hash<<1 + g[b]
		if hash < limit {
			return minChunk + i + 1
		}
	}

	return n
}
