package checkpoints

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"trainyard/internal/api"
)

// noise returns bytes that do not repeat.
func noise(seed uint64, size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(data) // never fails

	return data
}

// chunksOf cuts data and returns the chunks.
func chunksOf(g *gear, data []byte) [][]byte {
	var all [][]byte
	for len(data) > 0 {
		n := g.cut(data)
		all = append(all, data[:n])
		data = data[n:]
	}

	return all
}

func TestChunksAreOfBoundedSizeAndAreTheFile(t *testing.T) {
	t.Parallel()
	g := newGear()

	for name, data := range map[string][]byte{
		"noise": noise(1, 100<<20), "zeros": make([]byte, 40<<20), "short": []byte("abc"), "nothing": nil,
	} {
		chunks := chunksOf(g, data)
		if !bytes.Equal(bytes.Join(chunks, nil), data) {
			t.Errorf("%s: the chunks are not the file", name)
		}

		for i, c := range chunks {
			if len(c) > api.MaxChunk || len(c) < minChunk && i < len(chunks)-1 {
				t.Errorf("%s: chunk %d has %d bytes", name, i, len(c))
			}
		}
	}

	if n := len(chunksOf(g, noise(1, 100<<20))); n < 14 || n > 30 {
		t.Errorf("100 MB have %d chunks, want about 20", n)
	}
}

func TestAChangeChangesFewChunks(t *testing.T) {
	t.Parallel()
	g := newGear()
	before := noise(1, 64<<20)
	after := bytes.Join([][]byte{before[:20<<20], []byte("inserted"), before[20<<20:]}, nil)

	known := map[string]bool{}
	for _, c := range chunksOf(g, before) {
		known[digestOf(c)] = true
	}

	changed := 0
	for _, c := range chunksOf(g, after) {
		if !known[digestOf(c)] {
			changed += len(c)
		}
	}

	if changed > 2*maxChunk {
		t.Errorf("8 inserted bytes changed chunks of %d bytes", changed)
	}
}

func BenchmarkCut(b *testing.B) {
	g := newGear()
	data := noise(1, 64<<20)
	b.SetBytes(int64(len(data)))

	for b.Loop() {
		chunksOf(g, data)
	}
}

func BenchmarkHash(b *testing.B) {
	data := noise(1, 4<<20)
	b.SetBytes(int64(len(data)))

	for b.Loop() {
		digestOf(data)
	}
}
