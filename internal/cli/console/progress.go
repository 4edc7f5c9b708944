package console

import (
	"fmt"
	"io"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// Progress is one line on the terminal that tells how far something has come.
// It shows nothing where nobody looks.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer // nil shows nothing
	clock clock.Clock
	last  time.Time // when it was shown
}

// progressEvery is how often the line may change: more often nobody can read.
const progressEvery = 50 * time.Millisecond

// NewProgress returns a line that tells how far something has come.
func (c *Console) NewProgress() *Progress {
	p := &Progress{clock: c.Clock}
	if c.OnTerminal(c.Stderr) && c.Getenv("TERM") != "dumb" && !c.Quiet && c.Output == Table {
		p.w = c.Stderr
	}

	return p
}

// Set shows how far it has come.
func (p *Progress) Set(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if now := p.clock.Now(); p.w != nil && now.Sub(p.last) >= progressEvery {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
		p.last = now
	}
}

// Done takes the line away.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.w != nil && !p.last.IsZero() {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}

	p.w = nil
}
