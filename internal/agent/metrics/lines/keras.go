package lines

import (
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// keras parses a Keras progress bar: "16/16 ━━━━ 0s 13ms/step - loss: 6.55 - mae: 2.04", after a line "Epoch
// 1/3".
func (p *Parser) keras(line string) (reading.Reading, bool) {
	var r reading.Reading
	head, rest, ok := strings.Cut(line, " ")
	if !ok || head == "" || !strings.Contains(rest, " - ") || head[0] < '0' || head[0] > '9' {
		return r, false
	}

	first, last, ok := strings.Cut(head, "/")

	var n, total float64
	if !ok || !scaled(first, &n) {
		return r, false
	}
	if last != "Unknown" && !scaled(last, &total) {
		return r, false
	}

	parts := strings.Split(rest, " - ")
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			continue
		}

		if v, ok := reading.Parse(strings.TrimSpace(value)); ok && len(r.Values) < 64 {
			r.Add(name, v)
		}
	}

	if len(r.Values) == 0 {
		return r, false
	}

	p.within(&r, n, total)

	return r, true
}

// within adds a count inside an epoch to a reading.
func (p *Parser) within(r *reading.Reading, n, total float64) {
	count := p.counter(r)
	if p.epochs.known {
		count.epoch(p.epochs.current)
	}

	step := count.total(n, total)
	if p.epochs.known && total > 0 {
		step = p.epochs.completed()*total + n
		count.offset, count.high = step-n, n
	}

	r.Step, r.Done = reading.Known(step), reading.Known(step)
	switch {
	case total > 0 && p.epochs.total > 0:
		r.Total = reading.Known(total * p.epochs.total)
	case total > 0 && !p.epochs.known && count.offset == 0:
		r.Total = reading.Known(total)
	default:
		r.Total = reading.Known(0)
	}
}
