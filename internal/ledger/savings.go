package ledger

import (
	"cmp"
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
	// Decisions is of how many decisions it is the sum, by which it has no job and no reason; 0 for one decision.
	Decisions int `json:"decisions,omitempty"`
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

// SavingsSummary adds savings up to a report, and keeps the greatest of them.
type SavingsSummary struct {
	q        Query
	from, to time.Time
	rows     map[string]*SavingsRow
	total    SavingsRow
	most     int
	greatest []Saving // the greatest first
	buf      []byte
}

// NewSavingsSummary returns an empty summary for a query. It keeps at most so many of the greatest savings.
func NewSavingsSummary(q Query, most int) (*SavingsSummary, error) {
	if err := q.checkSavings(); err != nil {
		return nil, err
	}

	s := &SavingsSummary{q: q, rows: map[string]*SavingsRow{}, most: most}
	s.from, s.to = period(q.From, q.To)

	return s, nil
}

// Add takes the next saving.
func (s *SavingsSummary) Add(x *Saving) {
	if x.At.Before(s.from) || !s.to.IsZero() && !x.At.Before(s.to) || !x.matches(s.q.Filter) {
		return
	}

	s.buf = s.buf[:0]
	for _, k := range s.q.Group {
		value := x.key(k)
		s.buf = append(binary.AppendUvarint(s.buf, uint64(len(value))), value...)
	}

	row, ok := s.rows[string(s.buf)]
	if !ok {
		row = &SavingsRow{Keys: make([]string, len(s.q.Group))}
		for i, k := range s.q.Group {
			row.Keys[i] = x.key(k)
		}

		s.rows[string(s.buf)] = row
	}

	row.add(x)
	s.total.add(x)

	if x.Decisions == 0 {
		s.keep(x)
	}
}

// keep keeps a saving if it is one of the greatest; of equal ones it keeps the first.
func (s *SavingsSummary) keep(x *Saving) {
	at := len(s.greatest)
	for at > 0 && x.greater(&s.greatest[at-1]) {
		at--
	}

	if at == s.most {
		return
	}

	if len(s.greatest) == s.most {
		s.greatest = s.greatest[:s.most-1]
	}

	s.greatest = slices.Insert(s.greatest, at, *x)
}

// greater reports whether a decision saved or lost more than another.
func (s *Saving) greater(than *Saving) bool {
	return cmp.Or(cmp.Compare(max(s.Money, -s.Money), max(than.Money, -than.Money)),
		cmp.Compare(max(s.Time, -s.Time), max(than.Time, -than.Time))) > 0
}

// Greatest returns the savings of those that decisions saved or lost most by.
func (s *SavingsSummary) Greatest() []Saving { return s.greatest }

// Report returns the sums of what was added.
func (s *SavingsSummary) Report() *SavingsReport {
	r := &SavingsReport{
		From: s.from, To: s.to, Group: append([]Key{}, s.q.Group...), Rows: make([]SavingsRow, 0, len(s.rows)),
		Total: s.total,
	}

	for _, row := range s.rows {
		r.Rows = append(r.Rows, *row)
	}

	slices.SortFunc(r.Rows, func(a, b SavingsRow) int { return slices.Compare(a.Keys, b.Keys) })

	return r
}

func (r *SavingsRow) add(s *Saving) {
	r.Count += max(s.Decisions, 1)
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
