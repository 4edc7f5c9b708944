package ledger

import (
	"encoding/binary"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// Saving is what one decision saved compared with what would have been done instead. It is booked
// when the job has ended, from what the job really did and cost; a loss is negative. Savings are
// not postings and are in none of their sums: money that was not spent is in no account.
type Saving struct {
	Seq     uint64     `json:"seq"`
	At      time.Time  `json:"at"`
	Job     id.Job     `json:"job"`
	Owner   id.User    `json:"owner"`
	Project id.Project `json:"project,omitempty"`
	Kind    string     `json:"kind"` // the kind of decision, see place.DecisionKinds
	Money   Nanos      `json:"saved_nanodollars"`
	Time    Span       `json:"saved_ms"` // negative if the decision made the job later
	Reason  string     `json:"reason"`   // what would have been done instead
}

// ByKind groups savings by the sort of decision.
const ByKind Key = "kind"

// SavingsReport is what decisions saved.
type SavingsReport struct {
	From  time.Time    `json:"from,omitzero"`
	To    time.Time    `json:"to,omitzero"`
	Group []Key        `json:"group"`
	Rows  []SavingsRow `json:"rows"` // sorted by their keys
	Total SavingsRow   `json:"total"`
}

// SavingsRow is one row of a savings report.
type SavingsRow struct {
	Keys  []string `json:"keys,omitempty"`
	Count int      `json:"decisions"`
	Money Nanos    `json:"saved_nanodollars"`
	Time  Span     `json:"saved_ms"`
}

// SavingKeys lists the keys by which savings can be grouped and filtered.
func SavingKeys() []Key {
	return []Key{ByResearcher, ByProject, ByJob, ByKind, ByHour, ByDay, ByWeek, ByMonth}
}

// SumSavings adds up the savings of a period.
func SumSavings(savings []Saving, q Query) (*SavingsReport, error) {
	if err := q.checkSavings(); err != nil {
		return nil, err
	}

	from, to := period(q.From, q.To)
	r := &SavingsReport{From: from, To: to, Group: append([]Key{}, q.Group...), Rows: []SavingsRow{}}
	rows := map[string]int{}
	var buf []byte

	for i := range savings {
		s := &savings[i]
		if s.At.Before(from) || !to.IsZero() && !s.At.Before(to) || !s.matches(q.Filter) {
			continue
		}

		buf = buf[:0]
		for _, k := range q.Group {
			value := s.key(k)
			buf = append(binary.AppendUvarint(buf, uint64(len(value))), value...)
		}

		at, ok := rows[string(buf)]
		if !ok {
			at = len(r.Rows)
			rows[string(buf)] = at

			row := SavingsRow{Keys: make([]string, len(q.Group))}
			for i, k := range q.Group {
				row.Keys[i] = s.key(k)
			}

			r.Rows = append(r.Rows, row)
		}

		r.Rows[at].add(s)
		r.Total.add(s)
	}

	slices.SortFunc(r.Rows, func(a, b SavingsRow) int { return slices.Compare(a.Keys, b.Keys) })

	return r, nil
}

func (r *SavingsRow) add(s *Saving) {
	r.Count++
	r.Money += s.Money
	r.Time += s.Time
}

// matches reports whether a saving passes all filters.
func (s *Saving) matches(filters []Filter) bool {
	for i := range filters {
		if !slices.Contains(filters[i].Values, s.key(filters[i].Key)) {
			return false
		}
	}

	return true
}

func (s *Saving) key(k Key) string {
	if k == ByKind {
		return s.Kind
	}

	return k.of(&Posting{Owner: s.Owner, Project: s.Project, Job: s.Job}, s.At)
}

func (q *Query) checkSavings() error {
	plain := Query{From: q.From, To: q.To}
	if err := plain.check(); err != nil {
		return err
	}

	for _, k := range q.Group {
		if !slices.Contains(SavingKeys(), k) {
			return fault.New(fault.Invalid, "ledger_key", "savings cannot be grouped by %q", k).WithField("group")
		}
	}

	for _, f := range q.Filter {
		if !slices.Contains(SavingKeys(), f.Key) || f.Key.time() {
			return fault.New(fault.Invalid, "ledger_key", "savings cannot be filtered by %q", f.Key).WithField("filter")
		}
	}

	return nil
}
