// Package digest computes the SHA-256 digests of large pieces of memory, two at a time where the processor can.
//
// The instructions that processors have for SHA-256 wait for each other most of the time. With two digests at a time
// one does not wait in vain for the other, which takes two thirds of the time of one after the other. crypto/sha256
// computes one. Everything but the blocks of two at a time (blocks_amd64.s) is left to it: the last bytes, a piece
// without a second one, and all pieces on other processors.
//
// minio/sha256-simd was considered and not used. It computes several at a time only with AVX-512, sixteen of them.
package digest

import (
	"crypto/sha256"
	"sync"
)

// Sum is the digest of a piece.
type Sum = [sha256.Size]byte

// Hasher computes digests for many goroutines, whose pieces it pairs. It is safe for concurrent use.
type Hasher struct {
	mu      sync.Mutex
	queue   []*lane
	workers int
	limit   int // of workers
	paired  bool
}

// New returns a hasher that computes on so many processors at a time. Its goroutines end when there is nothing to do.
func New(processors int) *Hasher { return &Hasher{limit: processors, paired: inPairs()} }

// Sums returns the digests of pieces, in their order.
func (h *Hasher) Sums(pieces ...[]byte) []Sum {
	sums := make([]Sum, len(pieces))
	var done sync.WaitGroup
	done.Add(len(pieces))

	h.mu.Lock()

	for i, p := range pieces {
		h.queue = append(h.queue, &lane{state: initial, data: p, sum: &sums[i], done: &done})
	}

	for range min(len(pieces), h.limit-h.workers) {
		h.workers++

		go h.work()
	}

	h.mu.Unlock()
	done.Wait()

	return sums
}

// work computes until the queue is empty.
func (h *Hasher) work() {
	for x := h.next(); x != nil; {
		y := h.second()
		if y == nil {
			x.finish()
			x = h.next()

			continue
		}

		x = together(x, y)
	}
}

// next takes a piece from the queue. If there is none, the worker that asks has ended.
func (h *Hasher) next() *lane {
	h.mu.Lock()
	defer h.mu.Unlock()

	x := h.pop()
	if x == nil {
		h.workers--
	}

	return x
}

// second takes a piece from the queue to go with another, nil if there is none.
func (h *Hasher) second() *lane {
	h.mu.Lock()
	defer h.mu.Unlock()

	if !h.paired {
		return nil
	}

	return h.pop()
}

func (h *Hasher) pop() *lane {
	if len(h.queue) == 0 {
		return nil
	}

	x := h.queue[0]
	h.queue[0] = nil
	h.queue = h.queue[1:]

	return x
}

// lane is a piece of which a part has been hashed.
type lane struct {
	state state
	data  []byte
	at    int // how much of it has been hashed: whole blocks
	sum   *Sum
	done  *sync.WaitGroup
}

// blocks is how many whole blocks are left.
func (x *lane) blocks() int { return (len(x.data) - x.at) / sha256.BlockSize }

// finish hashes the rest.
func (x *lane) finish() {
	*x.sum = x.state.finish(x.data, x.at)
	x.done.Done()
}

// together hashes two pieces until one of them is finished, and returns the other.
func together(x, y *lane) *lane {
	if n := min(x.blocks(), y.blocks()); n > 0 {
		blocks(&x.state, &y.state, &x.data[x.at], &y.data[y.at], n)
		x.at += n * sha256.BlockSize
		y.at += n * sha256.BlockSize
	}

	if x.blocks() > 0 {
		x, y = y, x
	}

	x.finish()

	return y
}
