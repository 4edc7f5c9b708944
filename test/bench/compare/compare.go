package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"text/tabwriter"
)

// direction says which way a figure gets better.
type direction string

const (
	lower  direction = "lower"
	higher direction = "higher"
	same   direction = "same" // a count: any change must be looked at
)

// tolerance says how far figures with such names may move.
type tolerance struct {
	Figures string    `json:"figures"` // pattern of names, as in *_ms_*
	Better  direction `json:"better"`
	Allowed float64   `json:"allowed"` // as a share of the old value: 0.5 lets 10 become 15
	Floor   float64   `json:"floor"`   // a change no larger than this never counts: for figures near 0
	Why     string    `json:"why"`
}

// exact is for figures that no pattern matches: they are counts of a deterministic run.
var exact = tolerance{Figures: "*", Better: same}

// verdict is what became of a figure.
type verdict string

const (
	within  verdict = "ok"
	better  verdict = "better"
	worse   verdict = "WORSE"
	changed verdict = "CHANGED"
	gone    verdict = "GONE"
	added   verdict = "new"
)

// bad reports whether a verdict fails the comparison.
func (v verdict) bad() bool { return v == worse || v == changed || v == gone }

// row is one figure, before and now.
type row struct {
	name     string
	old, new float64
	verdict  verdict
	allowed  float64
}

// readTolerances reads the list in which the first pattern that matches counts.
func readTolerances(name string) ([]tolerance, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read tolerances: %w", err)
	}

	return parseTolerances(text)
}

func parseTolerances(text []byte) ([]tolerance, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()

	var list []tolerance
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("read tolerances: %w", err)
	}

	for i, t := range list {
		if _, err := path.Match(t.Figures, ""); err != nil || t.Figures == "" {
			return nil, fmt.Errorf("tolerance %d: %q is not a pattern of names", i+1, t.Figures)
		}

		if t.Better != lower && t.Better != higher && t.Better != same {
			return nil, fmt.Errorf("tolerance %d: better must be lower, higher or same, got %q", i+1, t.Better)
		}

		if t.Allowed < 0 || t.Floor < 0 {
			return nil, fmt.Errorf("tolerance %d: allowed (%g) and floor (%g) must not be negative", i+1, t.Allowed, t.Floor)
		}
	}

	return list, nil
}

// toleranceOf is the first tolerance whose pattern matches, exact if there is none.
func toleranceOf(name string, list []tolerance) tolerance {
	for _, t := range list {
		if ok, err := path.Match(t.Figures, name); ok && err == nil {
			return t
		}
	}

	return exact
}

// compare judges every figure of both sides, in order of names.
func compare(stored, measured map[string]float64, list []tolerance) []row {
	names := maps.Clone(stored)
	maps.Copy(names, measured)

	rows := make([]row, 0, len(names))

	for _, name := range slices.Sorted(maps.Keys(names)) {
		limit := toleranceOf(name, list)
		before, known := stored[name]
		now, here := measured[name]

		r := row{name: name, old: before, new: now, allowed: limit.Allowed}
		switch {
		case !known:
			r.verdict = added
		case !here:
			r.verdict = gone
		default:
			r.verdict = judge(before, now, limit)
		}

		rows = append(rows, r)
	}

	return rows
}

// judge compares two values of a figure.
func judge(before, now float64, limit tolerance) verdict {
	change := now - before
	if math.Abs(change) <= max(limit.Floor, limit.Allowed*math.Abs(before)) {
		return within
	}

	switch {
	case limit.Better == same:
		return changed
	case (limit.Better == lower) == (change > 0):
		return worse
	default:
		return better
	}
}

// printRows writes the table of one benchmark.
func printRows(w io.Writer, title string, rows []row) error {
	if _, err := fmt.Fprintln(w, title); err != nil {
		return err
	}

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "figure\told\tnew\tdelta\tallowed\t\t") // Flush returns its errors

	for _, r := range rows {
		before := number(r.old)
		now := number(r.new)

		delta := percent(r.old, r.new)
		if r.verdict == added {
			before, delta = "-", "-"
		}

		if r.verdict == gone {
			now, delta = "-", "-"
		}

		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f %%\t%s\t\n", r.name, before, now, delta, 100*r.allowed, r.verdict)
	}

	if err := table.Flush(); err != nil {
		return err
	}

	_, err := fmt.Fprintln(w)

	return err
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// percent is a change as a share of the old value.
func percent(before, now float64) string {
	switch before {
	case now:
		return "0 %"
	case 0:
		return "from 0"
	default:
		return fmt.Sprintf("%+.1f %%", 100*(now-before)/math.Abs(before))
	}
}
