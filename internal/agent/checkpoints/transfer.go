package checkpoints

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// transfer is how far an upload or a restore is. It is safe for concurrent use.
type transfer struct {
	what  string // uploading checkpoint x
	clk   clock.Clock
	total int64
	begun time.Time

	mu      sync.Mutex
	present int64     // bytes that were there already
	moved   int64     // bytes that were transferred
	last    time.Time // when something moved last, zero if nothing has
	trouble error     // why nothing moves
	staged  []string  // files in the server's folder that are not synced yet
}

func newTransfer(clk clock.Clock, total int64, format string, args ...any) *transfer {
	now := clk.Now()
	return &transfer{what: fmt.Sprintf(format, args...), clk: clk, total: total, begun: now}
}

// done counts bytes that were transferred.
func (t *transfer) done(n int64) { t.count(0, n) }

// skip counts bytes that were there already.
func (t *transfer) skip(n int64) { t.count(n, 0) }

func (t *transfer) count(present, moved int64) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.present += present
	t.moved += moved
	t.last = t.clk.Now()
}

// note records what holds the transfer up, nil if nothing does.
func (t *transfer) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = err
}

// lastMoved returns when something moved last, zero if nothing has.
func (t *transfer) lastMoved() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// sent returns how many bytes were transferred.
func (t *transfer) sent() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved
}

// stage notes that a file in the server's folder is to be synced.
func (t *transfer) stage(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.staged = append(t.staged, name)
}

// unsynced returns the files in the server's folder that are to be synced.
func (t *transfer) unsynced() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.staged)
}

// words describes the transfer for people.
func (t *transfer) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()

	text := fmt.Sprintf("%s: %s of %s", t.what, job.Bytes(min(t.present+t.moved, t.total)).Short(),
		job.Bytes(t.total).Short())
	if seconds := t.clk.Now().Sub(t.begun).Seconds(); seconds >= 1 && t.moved > 0 {
		text += fmt.Sprintf(", %s/s", job.Bytes(float64(t.moved)/seconds).Short())
	}

	if t.trouble != nil {
		text += "; " + t.trouble.Error()
	}

	return text
}
