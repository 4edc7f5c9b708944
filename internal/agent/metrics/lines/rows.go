package lines

import (
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// rowCounts are names in the rows of programs that boost trees that are no metrics.
var rowCounts = []string{"best", "total", "remaining"}

// row reads a row of a program that boosts trees, which are set apart by tabs: "[10]\ttrain-rmse:0.3\tvalid-rmse:0.4"
// of
// XGBoost's, "[10]\ttraining's l2: 0.3" of LightGBM's, "10:\tlearn: 0.3\ttest: 0.4" of CatBoost's.
func (p *Parser) row(line string) (reading.Reading, bool) {
	var r reading.Reading
	head, rest, ok := strings.Cut(line, "\t")
	if !ok {
		return r, false
	}

	inner, bracket := strings.CutSuffix(strings.TrimPrefix(head, "["), "]")
	if !bracket || head[0] != '[' {
		inner, ok = strings.CutSuffix(head, ":")
		if !ok {
			return r, false
		}
	}

	if inner == "" || digits(inner, 0) != len(inner) {
		return r, false
	}

	n, ok := reading.Parse(inner)
	if !ok || n > 1e15 {
		return r, false
	}

	for cell := range strings.SplitSeq(rest, "\t") {
		at := strings.LastIndexByte(cell, ':')
		if at < 0 || len(r.Values) == 64 {
			continue
		}

		name := strings.ReplaceAll(strings.TrimSpace(cell[:at]), "'s ", "_")
		value, _, _ := strings.Cut(strings.TrimSpace(cell[at+1:]), " ") // before what it varies by
		value, _, _ = strings.Cut(value, "+")
		if v, ok := reading.Parse(value); ok && !slices.Contains(rowCounts, name) {
			r.Add(name, v)
		}
	}

	if len(r.Values) == 0 {
		return r, false
	}

	p.within(&r, n, 0)

	return r, true
}
