package relocate

import (
	"fmt"
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/place"
)

// reason says why a job comes home, in money and minutes.
func (h *homeward) reason(m *move) string {
	return fmt.Sprintf("moves from %s to %s: saves est. %s; %s left, %s for save, transfer and restore, est. finish %s",
		h.describe(m.away.run.Allocations), h.describe(m.start), humanize.Dollars(m.money),
		humanize.Duration(m.away.left.mid), humanize.Duration(m.pause.total()), h.finish(m))
}

// finish says when a moved job ends, beside when it would have ended.
func (h *homeward) finish(m *move) string {
	at := humanize.Time(h.view.Now.Add(m.away.left.mid+m.delay), h.view.Now.UTC())

	switch {
	case m.delay >= time.Minute:
		return at + ", " + humanize.Duration(m.delay) + " later"
	case m.delay <= -time.Minute:
		return at + ", " + humanize.Duration(-m.delay) + " earlier"
	}

	return at
}

// describe names nodes with their class and GPUs: l-strong (local, 1× A100 40GB).
func (h *homeward) describe(list []place.Allocation) string {
	n := h.node(list[0].Node)
	text := string(list[0].Node)

	if more := len(list) - 1; more > 0 {
		text += " and " + humanize.Count(more, "other node")
	}

	text += " (" + className(n.Class)
	if gpus := bits.OnesCount64(list[0].GPUs); gpus > 0 {
		g := n.Inventory.GPU(bits.TrailingZeros64(list[0].GPUs))
		text += ", " + humanize.GPUs(gpus*len(list), g.Model, g.Memory)
	}

	return text + ")"
}

func className(c fleet.Class) string {
	if c == fleet.OnDemand {
		return "on-demand"
	}

	return string(c)
}
