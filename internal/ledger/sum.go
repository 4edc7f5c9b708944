package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
)

// Key is a property by which postings are grouped and filtered.
type Key string

// The keys. Hours, days, weeks (from Monday) and months are in UTC; a posting that
// lies in several is divided among them.
const (
	ByResearcher Key = "researcher" // who pays; "" is the yard
	ByProject    Key = "project"
	ByClass      Key = "class"
	ByNode       Key = "node"
	ByGPU        Key = "gpu"
	ByProvider   Key = "provider"
	ByOffer      Key = "offer"
	ByLease      Key = "lease"
	ByJob        Key = "job"
	ByRun        Key = "run"
	ByAccount    Key = "account"
	ByHour       Key = "hour"
	ByDay        Key = "day"
	ByWeek       Key = "week"
	ByMonth      Key = "month"
)

// Keys lists every key.
func Keys() []Key {
	return []Key{
		ByResearcher, ByProject, ByClass, ByNode, ByGPU, ByProvider, ByOffer, ByLease, ByJob, ByRun, ByAccount,
		ByHour, ByDay, ByWeek, ByMonth,
	}
}

// Query is a query on the ledger.
type Query struct {
	From, To time.Time // zero for no end on that side; cut to milliseconds
	Group    []Key     // rows are by these, in this order; none gives one row
	Filter   []Filter  // all must match
}

// Filter selects postings whose key has one of the values.
type Filter struct {
	Key    Key
	Values []string
}

// Report is the answer to a query.
type Report struct {
	From  time.Time `json:"from,omitzero"`
	To    time.Time `json:"to,omitzero"`
	Group []Key     `json:"group"`
	Rows  []Row     `json:"rows"` // sorted by their keys
	Total Amounts   `json:"total"`
}

// Row is one row of a report.
type Row struct {
	Keys []string `json:"keys"` // one for each key of the group
	Amounts
}

// Summary adds postings up to a report. They must come in the order of the ledger.
type Summary struct {
	q        Query
	cutter   cutter
	rows     map[string]*sumRow
	total    vector
	buf      []byte
	overflow bool
}

type sumRow struct {
	keys []string
	sum  vector
}

// NewSummary returns an empty summary for a query.
func NewSummary(q Query) (*Summary, error) {
	if err := q.check(); err != nil {
		return nil, err
	}

	s := &Summary{q: q, rows: map[string]*sumRow{}}
	s.q.Group = append([]Key{}, q.Group...)
	s.q.From, s.q.To = period(q.From, q.To)
	s.cutter = cutter{from: s.q.From, to: s.q.To, next: borders(q.Group), emit: s.take}

	return s, nil
}

// Add takes the next posting.
func (s *Summary) Add(p *Posting) { s.cutter.add(p) }

// Cuts reports whether a posting is cut in pieces, for which all postings of its entry are needed.
func (s *Summary) Cuts(p *Posting) bool { return s.cutter.within(p) && s.cutter.crosses(p) }

// Report returns the sums of what was added.
func (s *Summary) Report() (*Report, error) {
	s.cutter.flush()

	if s.overflow {
		return nil, fault.New(fault.OverLimit, "ledger_overflow", "the sum is too large to be exact").
			WithRemedy("query a shorter period")
	}

	r := &Report{From: s.q.From, To: s.q.To, Group: s.q.Group, Rows: make([]Row, 0, len(s.rows)), Total: s.total.amounts()}
	for _, row := range s.rows {
		r.Rows = append(r.Rows, Row{Keys: row.keys, Amounts: row.sum.amounts()})
	}

	slices.SortFunc(r.Rows, func(a, b Row) int { return slices.Compare(a.Keys, b.Keys) })

	return r, nil
}

// take adds a piece to its row.
func (s *Summary) take(p *Posting, at time.Time, v vector) {
	for i := range s.q.Filter {
		f := &s.q.Filter[i]
		if !slices.Contains(f.Values, f.Key.of(p, at)) {
			return
		}
	}

	s.buf = s.buf[:0]
	for _, k := range s.q.Group {
		value := k.of(p, at)
		s.buf = append(binary.AppendUvarint(s.buf, uint64(len(value))), value...)
	}

	row, ok := s.rows[string(s.buf)]
	if !ok {
		row = &sumRow{keys: make([]string, len(s.q.Group))}
		for i, k := range s.q.Group {
			row.keys[i] = k.of(p, at)
		}

		s.rows[string(s.buf)] = row
	}

	var fits, all bool
	row.sum, fits = row.sum.plus(v)
	s.total, all = s.total.plus(v)
	s.overflow = s.overflow || !fits || !all
}

// of returns what a posting has for the key; at is when the piece of it begins.
func (k Key) of(p *Posting, at time.Time) string {
	switch k {
	case ByResearcher:
		return string(p.Owner)
	case ByProject:
		return string(p.Project)
	case ByClass:
		return string(p.Class)
	case ByNode:
		return string(p.Node)
	case ByGPU:
		return p.GPU
	case ByProvider:
		return p.Provider()
	case ByOffer:
		return p.Offer
	case ByLease:
		return string(p.Lease)
	case ByJob:
		return string(p.Job)
	case ByRun:
		return string(p.Run)
	case ByAccount:
		return string(p.Account)
	case ByHour, ByDay, ByWeek, ByMonth:
		return k.label(at)
	case ByKind: // of savings alone
	}

	return ""
}

// How stretches are named; days as in time.DateOnly.
const (
	hourLabel  = "2006-01-02T15"
	weekLabel  = "%04d-W%02d"
	monthLabel = "2006-01"
)

// label names the stretch of time that a time is in.
func (k Key) label(at time.Time) string {
	at = at.UTC()

	switch k { //nolint:exhaustive // those that are times
	case ByHour:
		return at.Format(hourLabel)
	case ByDay:
		return at.Format(time.DateOnly)
	case ByWeek:
		year, week := at.ISOWeek()
		return fmt.Sprintf(weekLabel, year, week)
	case ByMonth:
		return at.Format(monthLabel)
	}

	return ""
}

// borders returns where pieces end so that each lies in one stretch of every time key.
// Days are borders of weeks and months alike, and hours of all.
func borders(group []Key) func(time.Time) time.Time {
	has := func(k Key) bool { return slices.Contains(group, k) }
	switch {
	case has(ByHour):
		return nextHour
	case has(ByDay), has(ByWeek) && has(ByMonth):
		return nextDay
	case has(ByWeek):
		return nextWeek
	case has(ByMonth):
		return nextMonth
	}

	return nil
}

// period brings the ends of a period to whole milliseconds.
func period(from, to time.Time) (begin, end time.Time) {
	if !from.IsZero() {
		begin = wholeMillis(from)
	}

	if !to.IsZero() {
		end = wholeMillis(to)
	}

	return begin, end
}

// check refuses a query that makes no sense.
func (q *Query) check() error {
	if !q.To.IsZero() && q.To.Before(q.From) {
		return fault.New(fault.Invalid, "ledger_period", "the period ends before it begins").WithField("to")
	}

	for i, k := range q.Group {
		if !slices.Contains(Keys(), k) {
			return unknownKey(k).WithField("group")
		}
		if slices.Contains(q.Group[:i], k) {
			return fault.New(fault.Invalid, "ledger_key", "duplicate key %q", k).WithField("group")
		}
	}

	for _, f := range q.Filter {
		if !slices.Contains(Keys(), f.Key) {
			return unknownKey(f.Key).WithField("filter")
		}

		if f.Key.time() {
			return fault.New(fault.Invalid, "ledger_key", "cannot filter by %q", f.Key).WithField("filter").
				WithRemedy("set the start and the end of the period instead")
		}
	}

	return nil
}

func (k Key) time() bool { return k == ByHour || k == ByDay || k == ByWeek || k == ByMonth }

func unknownKey(k Key) *fault.Error {
	names := make([]string, 0, len(Keys()))
	for _, known := range Keys() {
		names = append(names, string(known))
	}

	return fault.New(fault.Invalid, "ledger_key", "unknown key %q", k).
		WithRemedy("use one of %s", strings.Join(names, ", "))
}

// maxBuckets is how many stretches of time are named at most: hours of ten years.
const maxBuckets = 100_000

// Buckets names all stretches of a time key that a period touches, in order, so that
// those in which nothing was posted can be shown as well. It names none for a key that
// is no time, and for a period without ends.
func Buckets(k Key, from, to time.Time) []string {
	next := borders([]Key{k})
	if next == nil || from.IsZero() || to.IsZero() {
		return nil
	}

	var names []string
	for at := from; at.Before(to) && len(names) < maxBuckets; at = next(at) {
		names = append(names, k.label(at))
	}

	return names
}

// StretchStart returns when a stretch of a time key begins, by the name that rows and Buckets give it.
func StretchStart(k Key, label string) (time.Time, error) {
	layouts := map[Key]string{ //nolint:exhaustive // weeks are below, and the others are no times
		ByHour: hourLabel, ByDay: time.DateOnly, ByMonth: monthLabel,
	}
	if layout, ok := layouts[k]; ok {
		return time.Parse(layout, label)
	}

	var year, week int
	if _, err := fmt.Sscanf(label, weekLabel, &year, &week); err != nil || k != ByWeek {
		return time.Time{}, fmt.Errorf("%q is not the name of a stretch by %s", label, k)
	}

	fourth := time.Date(year, time.January, 4, 0, 0, 0, 0, time.UTC) // in the first week, by ISO 8601
	sinceMonday := (int(fourth.Weekday()) + 6) % 7

	return fourth.AddDate(0, 0, 7*(week-1)-sinceMonday), nil
}
