package cli

import (
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/cli/table"
)

// hours writes seconds as hours: "0", "0.010", "1.5", "123.5K". What three decimals would show as nothing is "<0.001".
func hours(seconds float64) string {
	h := seconds / time.Hour.Seconds()
	switch size := math.Abs(h); {
	case size == 0:
		return "0"
	case size >= 10_000:
		return table.Amount(h)
	case size < 0.0005:
		return "<0.001"
	case size < 0.1:
		return strconv.FormatFloat(h, 'f', 3, 64)
	}

	return strconv.FormatFloat(h, 'f', 1, 64)
}

// barWidth is how many characters a full bar has.
const barWidth = 20

// bar draws a share of one: "█████████▌          ".
func bar(rate float64) string {
	eighths := int(math.Round(min(max(rate, 0), 1) * barWidth * 8))
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}

	return text + strings.Repeat("·", barWidth-len([]rune(text)))
}

// sparkWidth is how many characters a line has at peak.
const sparkWidth = 60

// spark draws values as a line of small bars, each relative to the greatest. Of more
// values than fit, neighbours are added up.
func spark(values []float64) string {
	if each := (len(values) + sparkWidth - 1) / sparkWidth; each > 1 {
		var sums []float64
		for i, v := range values {
			if i%each == 0 {
				sums = append(sums, 0)
			}

			sums[len(sums)-1] += v
		}

		values = sums
	}

	peak := 0.0
	for _, v := range values {
		peak = max(peak, v)
	}

	steps := []rune("▁▂▃▄▅▆▇█")

	var out strings.Builder
	for _, v := range values {
		switch {
		case v <= 0 || peak == 0:
			out.WriteRune('·')
		default:
			out.WriteRune(steps[min(int(v/peak*float64(len(steps))), len(steps)-1)])
		}
	}

	return out.String()
}
