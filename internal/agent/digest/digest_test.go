package digest

import (
	"crypto/sha256"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noise returns bytes that do not repeat.
func noise(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails

	return data
}

// Every pair of lengths around those at which blocks and their padding begin and end.
func TestDigestsAreThoseOfTheStandardLibrary(t *testing.T) {
	t.Parallel()

	data := noise(1 << 10)
	lengths := []int{0, 1, 55, 56, 63, 64, 65, 119, 120, 127, 128, 129, 191, 192, 193, 500}

	for _, h := range []*Hasher{New(1), {limit: 1}} {
		for _, n := range lengths {
			for _, m := range lengths {
				p, q := data[3:3+n], data[500:500+m]
				sums := h.Sums(p, q)

				if sums[0] != sha256.Sum256(p) || sums[1] != sha256.Sum256(q) {
					t.Fatalf("wrong digests of %d and %d bytes (pairs: %v)", n, m, h.paired)
				}
			}
		}
	}
}

func TestManyGoroutinesShareAHasher(t *testing.T) {
	t.Parallel()

	data := noise(4 << 20)
	h := New(3)
	var callers sync.WaitGroup

	for i := range 8 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))

			for range 40 {
				pieces := make([][]byte, random.IntN(7))
				for i := range pieces {
					from := random.IntN(len(data))
					pieces[i] = data[from : from+random.IntN(min(len(data)-from, 200<<10))]
				}

				for i, sum := range h.Sums(pieces...) {
					if sum != sha256.Sum256(pieces[i]) {
						t.Errorf("wrong digest of %d bytes", len(pieces[i]))
					}
				}
			}
		})
	}

	callers.Wait()
}

// A Go release that marshals hashes in another way would slow us down without a word.
func TestPairsAreUsedWhereTheProcessorCan(t *testing.T) {
	t.Parallel()

	if !standard() {
		t.Error("crypto/sha256 does not go on from our state")
	}

	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}

	want := runtime.GOARCH == "amd64" && strings.Contains(string(text), " sha_ni")
	if got := inPairs(); got != want {
		t.Errorf("pairs are used: %v, want %v", got, want)
	}
}

func BenchmarkSums(b *testing.B) {
	data := noise(16 << 20)

	for name, h := range map[string]*Hasher{"pairs": New(1), "one": {limit: 1}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))

			for b.Loop() {
				h.Sums(data[:8<<20], data[8<<20:])
			}
		})
	}
}
