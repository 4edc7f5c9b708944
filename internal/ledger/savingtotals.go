package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Savings that are old are kept as totals of days, by researcher, project and kind.

// SavingTotalsDo reports whether totals of savings are enough to answer a query about savings.
func (q *Query) SavingTotalsDo() bool {
	detailed := func(k Key) bool { return k == ByJob || k == ByHour }

	return !slices.ContainsFunc(q.Group, detailed) &&
		!slices.ContainsFunc(q.Filter, func(f Filter) bool { return detailed(f.Key) })
}

// Day returns the beginning of the day whose total a saving belongs to.
func (s *Saving) Day() time.Time { return DayTotal.begin(s.At) }

// AddSavings adds savings of a day to the text of its total, "" for none, and returns the new text.
func AddSavings(text string, list []Saving) (string, error) {
	var rows []Saving
	if err := EachSavingTotal(text, func(s *Saving) error {
		rows = append(rows, *s)
		return nil
	}); err != nil {
		return "", err
	}

	for i := range list {
		s := &list[i]
		at, found := slices.BinarySearchFunc(rows, s, func(row Saving, s *Saving) int {
			return cmp.Or(cmp.Compare(row.Owner, s.Owner), cmp.Compare(row.Project, s.Project), cmp.Compare(row.Kind, s.Kind))
		})
		if !found {
			rows = slices.Insert(rows, at, Saving{
				At: s.Day(), Owner: s.Owner, Project: s.Project, Kind: s.Kind,
			})
		}

		rows[at].Decisions += max(s.Decisions, 1)
		rows[at].Money += s.Money
		rows[at].Time += s.Time
	}

	out, err := json.Marshal(rows)
	if err != nil {
		return "", fmt.Errorf("write a total of savings: %w", err)
	}

	return string(out), nil
}

// EachSavingTotal yields the sums of the text of a total.
func EachSavingTotal(text string, yield func(*Saving) error) error {
	if text == "" {
		return nil
	}

	var rows []Saving
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return fmt.Errorf("read a total of savings: %w", err)
	}

	for i := range rows {
		rows[i].At = rows[i].At.UTC()
		if err := yield(&rows[i]); err != nil {
			return err
		}
	}

	return nil
}

// midnight reports whether a time is the beginning of a day in UTC.
func midnight(at time.Time) bool { return at.Equal(DayTotal.begin(at)) }

// DaysDo reports whether totals of days have all of a period before a time.
func DaysDo(from, to, before time.Time) bool {
	return (from.IsZero() || midnight(from)) && (to.IsZero() || !to.Before(before) || midnight(to))
}
