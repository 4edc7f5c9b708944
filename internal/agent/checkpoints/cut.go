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

// lane is how many bytes are hashed beside as many others. Each byte of a hash waits for the one before, so two hashes
// at a time take little longer than one.
const lane = 8 << 10

// end looks for the end of a chunk of which p is the beginning or all, and returns its length; 0 if p is too short to
// know. What is before from was searched already.
func (g *gear) end(p []byte, from int) int {
	if len(p) > maxChunk {
		p = p[:maxChunk]
	}

	from = max(from, minChunk)
	if from < len(p) {
		at, hash := g.skip(p, from)

		for i, b := range p[at:] {
			hash = hash<<1 + g[b]
			if hash < limit {
				return at + i + 1
			}
		}
	}

	if len(p) == maxChunk {
		return maxChunk
	}

	return 0
}

// skip goes on from a place until a chunk ends or p does, both soon, and returns where it is and the hash there.
func (g *gear) skip(p []byte, from int) (at int, hash uint64) {
	at, hash = from, g.hash(p[:from])

	for ; at+2*lane <= len(p); at += 2 * lane {
		first, second := p[at:at+lane], p[at+lane:at+2*lane]
		x, y := hash, g.hash(p[:at+lane])

		for i, b := range first {
			x = x<<1 + g[b]
			y = y<<1 + g[second[i]]

			if x < limit || y < limit {
				return at, hash
			}
		}

		hash = y
	}

	return at, hash
}

// hash returns the hash at the end of p.
func (g *gear) hash(p []byte) uint64 {
	var hash uint64
	for _, b := range p[len(p)-window:] {
		hash = hash<<1 + g[b]
	}

	return hash
}
