package checkpoints

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/clock"
)

// noise returns bytes that do not repeat.
func noise(seed uint64, size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(data) // never fails

	return data
}

// firstChunk returns the length of the first chunk of a file.
func firstChunk(g *gear, data []byte) int { return cmp.Or(g.end(data, 0), len(data)) }

// chunksOf cuts data and returns the chunks.
func chunksOf(g *gear, data []byte) [][]byte {
	var all [][]byte
	for len(data) > 0 {
		n := firstChunk(g, data)
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

// cutByByte is how the end of a chunk is defined. The stored chunks of every earlier agent end there.
func cutByByte(g *gear, p []byte) int {
	var hash uint64
	for i, b := range p[:min(len(p), maxChunk)] {
		hash = hash<<1 + g[b]
		if i >= minChunk && hash < limit {
			return i + 1
		}
	}

	return min(len(p), maxChunk)
}

// sampleFiles returns contents of which the chunks end in several ways.
func sampleFiles() map[string][]byte {
	all := map[string][]byte{
		"noise": noise(1, 48<<20), "bits": noise(2, 24<<20), "half": noise(3, 24<<20), "zeros": make([]byte, 40<<20),
		"small": noise(4, minChunk), "smaller": noise(5, 1000),
	}
	clear(all["half"][4<<20 : 12<<20])

	for i := range all["bits"] {
		all["bits"][i] &= 1
	}

	return all
}

func TestChunksEndWhereTheyAlwaysDid(t *testing.T) {
	t.Parallel()
	g := newGear()
	all := sampleFiles()

	for name, data := range all {
		for from := 0; from < len(data); {
			n, want := firstChunk(g, data[from:]), cutByByte(g, data[from:])
			if n != want {
				t.Fatalf("%s: the chunk at %d has %d bytes, want %d", name, from, n, want)
			}

			from += n
		}
	}

	// The end of a chunk, that of the file and those of the lanes come together.
	end := firstChunk(g, all["noise"])
	for _, size := range []int{
		minChunk - 1, minChunk, minChunk + 1, minChunk + 2*lane - 1, minChunk + 2*lane, minChunk + 2*lane + 1,
		end - 1, end, end + 1, maxChunk - 1, maxChunk, maxChunk + 1,
	} {
		for shift := range 3 {
			data := all["noise"][shift : shift+size]
			if n, want := firstChunk(g, data), cutByByte(g, data); n != want {
				t.Errorf("%d bytes from %d on: the chunk has %d bytes, want %d", size, shift, n, want)
			}
		}
	}
}

// Pieces are found while a file is read, and share segments with those of other files.
func TestAPackedFileHasTheChunksOfItsContent(t *testing.T) {
	t.Parallel()

	all := sampleFiles()
	dir := t.TempDir()
	for name, data := range all {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = root.Close() }()

	tree, err := scan(root)
	if err != nil {
		t.Fatal(err)
	}

	g := newGear()
	p := &packer{
		store: newStore(nil, dir), gear: g, tree: tree, progress: newTransfer(clock.Wall{}, 0, "test"), stays: true,
		cached: func(*file) ([]api.CheckpointChunk, bool) { return nil, false },
	}

	list, err := p.pack(t.Context(), tree.files)
	if err != nil || len(list) != len(all) {
		t.Fatalf("%d files were packed: %v", len(list), err)
	}

	for i := range list {
		var want []api.CheckpointChunk
		for data := all[list[i].file.path]; len(data) > 0; {
			n := cutByByte(g, data)
			want = append(want, api.CheckpointChunk{Digest: digestOf(data[:n]), Size: int64(n)})
			data = data[n:]
		}

		if got := list[i].entry().Chunks; !slices.Equal(got, want) {
			t.Errorf("%s has other chunks: %d, want %d", list[i].file.path, len(got), len(want))
		}
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
