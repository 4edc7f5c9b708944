package console

import (
	"fmt"
	"io"
	"sync"
)

// Progress is one line on the terminal that tells how far something has come.
// It shows nothing where nobody looks.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer // nil shows nothing
	shown bool
}

// NewProgress returns a line that tells how far something has come.
func (c *Console) NewProgress() *Progress {
	p := &Progress{}
	if c.OnTerminal(c.Stderr) && c.Getenv("TERM") != "dumb" && !c.Quiet && c.Output == Table {
		p.w = c.Stderr
	}
	return p
}

// Set shows how far it has come.
func (p *Progress) Set(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
		p.shown = true
	}
}

// Done takes the line away.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
	p.w, p.shown = nil, false
}
