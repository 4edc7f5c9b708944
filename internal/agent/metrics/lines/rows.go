package lines

import (
	"slices"
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// rowCounts are names in the rows of gradient-boosting programs that are not metrics.
var rowCounts = []string{"best", "total", "remaining"}

// row parses a tab-separated row of a gradient-boosting program: "[10]\ttrain-rmse:0.3\tvalid-rmse:0.4" from
// XGBoost, "[10]\ttraining's l2: 0.3" from LightGBM, "10:\tlearn: 0.3\ttest: 0.4" from CatBoost.
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
		value, _, _ := strings.Cut(strings.TrimSpace(cell[at+1:]), " ") // without the standard deviation behind it
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
