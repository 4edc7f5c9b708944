package lines

import (
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// drawn is one drawing of a progress bar.
type drawn struct {
	name    string
	n       float64
	total   float64        // 0 if unknown
	rate    string         // "12.3it/s"
	left    reading.Number // seconds that remain, as the bar says
	postfix []reading.Value
	epoch   reading.Number // if the name contains it: "Epoch 3/10"
	epochs  reading.Number
}

// parseBar parses a tqdm bar: "name:  25%|██▌   | 5/20 [00:00<00:00, 48.37it/s, loss=0.2]", or
// without a total "name: 5it [00:00, 48.37it/s, loss=0.2]".
func parseBar(line string) (drawn, bool) {
	var b drawn
	open := strings.LastIndexByte(line, '[')

	shut := strings.LastIndexByte(line, ']')
	if open < 0 || shut < open {
		return b, false
	}

	inside := line[open+1 : shut]

	before := strings.TrimSpace(line[:open])
	if at := strings.Index(before, "%|"); at >= 0 {
		end := strings.LastIndexByte(before, '|')
		if end <= at+1 {
			return b, false
		}

		counts := strings.TrimSpace(before[end+1:])
		n, total, ok := strings.Cut(counts, "/")
		switch {
		case counts == "": // drawn without them: the percentage is all there is
			digits := strings.TrimLeft(before[:at], " ")
			digits = digits[strings.LastIndexAny(digits, " :")+1:]
			if !scaled(digits, &b.n) || b.n > 100 {
				return b, false
			}

			b.total = 100
		case !ok || !scaled(n, &b.n) || !scaled(total, &b.total):
			return b, false
		}

		b.name = strings.TrimRight(before[:at], "0123456789 ")
	} else {
		count, ok := strings.CutSuffix(before, "it")
		space := strings.LastIndexByte(count, ' ')
		if !ok || !scaled(count[space+1:], &b.n) {
			return b, false
		}

		b.name = strings.TrimSpace(count[:max(space, 0)])
	}

	b.name = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(b.name), ":"))
	if !strings.Contains(inside, ":") { // the brackets must hold the elapsed time
		return b, false
	}

	b.inside(inside)
	b.named()

	return b, true
}

// inside parses the text between the brackets: times, rate, and what the program adds.
func (b *drawn) inside(text string) {
	if _, rest, ok := strings.Cut(text, "<"); ok {
		rest, _, _ = strings.Cut(rest, ",")
		b.left = clockTime(strings.TrimSpace(rest))
	}

	for i, part := range strings.Split(text, ", ") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			if i == 1 {
				b.rate = part
			}

			continue
		}

		if v, ok := reading.Parse(strings.TrimSpace(value)); ok && len(b.postfix) < 64 && !IsCount(name) {
			b.postfix = append(b.postfix, reading.Value{Name: strings.TrimSpace(name), Value: v})
		}
	}
}

// clockTime parses a time as tqdm writes it: "02:15", "1:02:15", or "1 day, 3:02:15" of which the day is cut off here
// and nothing is known. "?" is unknown.
func clockTime(text string) reading.Number {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return reading.Number{}
	}

	seconds := 0.0
	for _, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return reading.Number{}
		}

		seconds = 60*seconds + float64(v)
	}

	return reading.Known(seconds)
}

// named takes the epoch and metrics from a bar's name and removes its numbers, so that the bar of the
// next epoch has the same name. A name that begins with "3/10" also states the epoch, as Ultralytics'
// does.
func (b *drawn) named() {
	lower := strings.ToLower(b.name)
	tokens := scan(nil, lower)
	for _, v := range collect(tokens).values {
		if surelyMetric(v.Name) && len(b.postfix) < 64 {
			b.postfix = append(b.postfix, v)
		}
	}

	if n, total, _ := countAfter(tokens, 0); n.Known && total.Known {
		b.epoch, b.epochs = n, total
	}

	for i, t := range tokens {
		if t.kind == word && slices.Contains(epochWords, t.text) {
			b.epoch, b.epochs, _ = countAfter(tokens, i+1)
			break
		}
	}

	var name strings.Builder
	for _, t := range tokens {
		if t.kind == word && name.Len() < 60 {
			name.WriteString(t.text + " ")
		}
	}

	b.name = strings.TrimSpace(name.String())
}

// scaled parses a count that may be given in thousands, millions or more.
func scaled(text string, to *float64) bool {
	if text == "" {
		return false
	}

	unit := 1.0

	switch text[len(text)-1] {
	case 'k', 'K':
		unit = 1e3
	case 'M':
		unit = 1e6
	case 'G':
		unit = 1e9
	case 'T':
		unit = 1e12
	}

	if unit > 1 {
		text = text[:len(text)-1]
	}

	v, ok := reading.Parse(text)
	*to = v * unit

	return ok && v >= 0 && v < 1e15
}
