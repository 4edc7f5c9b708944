package simcli

import (
	"fmt"
	"strings"
	"time"

	"trainyard/internal/cli/console"
	"trainyard/internal/humanize"
	"trainyard/internal/sim/whatif"
)

// bar tells how far simulations have come: a line that changes on a terminal, and
// a line now and then elsewhere.
type bar struct {
	console *console.Console
	line    *console.Progress // nil where nobody looks
	written time.Duration     // when the last plain line was written
}

// plainEvery is how often a plain line is written.
const plainEvery = 10 * time.Second

func (s *simulation) newBar() *bar {
	b := &bar{console: s.Console}
	if s.OnTerminal(s.Stderr) {
		b.line = s.NewProgress()
	}

	return b
}

// show shows how far it is.
func (b *bar) show(p whatif.Progress) {
	switch {
	case b.line != nil:
		b.line.Set("%s", progressLine(p, true))
	case b.console.Output == console.Table && p.Elapsed-b.written >= plainEvery:
		b.written = p.Elapsed
		b.console.Note("%s", progressLine(p, false))
	}
}

// end takes the line away.
func (b *bar) end() {
	if b.line != nil {
		b.line.Done()
	}
}

// progressLine writes how far it is, how fast, and how long it will take.
func progressLine(p whatif.Progress, drawn bool) string {
	var parts []string
	share := -1.0
	switch {
	case p.Jobs > 0:
		share = min(float64(p.Done)/float64(p.Jobs), 1)
	case p.Total > 1:
		share = float64(p.Cells) / float64(p.Total)
	}

	if share >= 0 {
		const width = 24
		full := int(share * width)
		if drawn {
			parts = append(parts, "["+strings.Repeat("#", full)+strings.Repeat("-", width-full)+"]")
		}

		parts = append(parts, fmt.Sprintf("%3.0f %%", 100*share))
	}

	jobs := humanize.Count(p.Done, "job")
	if p.Jobs > 0 {
		jobs = fmt.Sprintf("%d of %s", p.Done, humanize.Count(p.Jobs, "job"))
	}

	parts = append(parts, jobs)
	if p.Total > 1 {
		parts = append(parts, fmt.Sprintf("%d of %d simulations", p.Cells, p.Total))
	}

	if p.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f jobs/s", p.Rate))
	}

	if p.Remaining > 0 {
		parts = append(parts, humanize.Duration(p.Remaining)+" left")
	}

	return strings.Join(parts, "  ")
}
