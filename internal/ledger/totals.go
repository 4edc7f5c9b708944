package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Totals says by what totals are kept. A job is in none of them: who asks for jobs is answered from postings.
type Totals string

// The totals.
const (
	NodeTotals  Totals = "node"  // by node, lease and offer
	PayerTotals Totals = "payer" // by researcher, project and offer
)

// AllTotals lists the totals that are kept, the smallest first.
func AllTotals() []Totals { return []Totals{PayerTotals, NodeTotals} }

// has reports whether totals can be grouped and filtered by a key.
func (t Totals) has(k Key) bool {
	switch k { //nolint:exhaustive // the others are in none
	case ByClass, ByGPU, ByProvider, ByOffer, ByAccount, ByHour, ByDay, ByWeek, ByMonth:
		return true
	case ByNode, ByLease:
		return t == NodeTotals
	case ByResearcher, ByProject:
		return t == PayerTotals
	}

	return false
}

// Totals returns the totals that are enough to answer a query, "" if only postings are.
func (q *Query) Totals() Totals {
	for _, t := range AllTotals() {
		lacks := func(k Key) bool { return !t.has(k) }
		if !slices.ContainsFunc(q.Group, lacks) &&
			!slices.ContainsFunc(q.Filter, func(f Filter) bool { return lacks(f.Key) }) {
			return t
		}
	}

	return ""
}

// TotalSpan is for how long a total is: an hour or a day, in UTC.
type TotalSpan string

// The spans.
const (
	HourTotal TotalSpan = "hour"
	DayTotal  TotalSpan = "day"
)

func (s TotalSpan) length() time.Duration {
	if s == HourTotal {
		return time.Hour
	}

	return 24 * time.Hour
}

// begin returns when the span begins that a time is in.
func (s TotalSpan) begin(at time.Time) time.Time { return at.UTC().Truncate(s.length()) }

// Total names the sums of one span.
type Total struct {
	Span  TotalSpan
	Start time.Time
	Of    Totals
}

// totalKey is what the postings have in common that are added up to one row of a total.
type totalKey struct {
	class, account, gpu, offer string
	node, lease                string // in NodeTotals
	owner, project             string // in PayerTotals
}

func (k totalKey) compare(other totalKey) int {
	return cmp.Or(
		cmp.Compare(k.node, other.node),
		cmp.Compare(k.owner, other.owner),
		cmp.Compare(k.project, other.project),
		cmp.Compare(k.class, other.class),
		cmp.Compare(k.account, other.account),
		cmp.Compare(k.gpu, other.gpu),
		cmp.Compare(k.offer, other.offer),
		cmp.Compare(k.lease, other.lease),
	)
}

func keyOf(t Totals, p *Posting) totalKey {
	k := totalKey{class: string(p.Class), account: string(p.Account), gpu: p.GPU, offer: p.Offer}
	if t == NodeTotals {
		k.node, k.lease = string(p.Node), string(p.Lease)
	} else {
		k.owner, k.project = string(p.Owner), string(p.Project)
	}

	return k
}

// Rollup adds postings up to the totals of hours and days. The postings of an entry must come together, in the order of
// the ledger. Sums of totals are exactly the sums of the postings: those that lie in several hours are divided among
// them in the way in which reports divide them.
type Rollup struct {
	cutter cutter
	sums   map[Total]map[totalKey]vector
}

// NewRollup returns an empty one.
func NewRollup() *Rollup {
	r := &Rollup{sums: map[Total]map[totalKey]vector{}}
	r.cutter = cutter{next: nextHour, emit: r.take}

	return r
}

// Add takes the next posting.
func (r *Rollup) Add(p *Posting) { r.cutter.add(p) }

func (r *Rollup) take(p *Posting, at time.Time, v vector) {
	for _, of := range AllTotals() {
		key := keyOf(of, p)
		for _, span := range []TotalSpan{HourTotal, DayTotal} {
			r.add(Total{span, span.begin(at), of}, key, v)
		}
	}
}

func (r *Rollup) add(to Total, key totalKey, v vector) {
	sums := r.sums[to]
	if sums == nil {
		sums = map[totalKey]vector{}
		r.sums[to] = sums
	}

	sums[key], _ = sums[key].plus(v)
}

// Totals lists the totals that postings were added to, in order of time.
func (r *Rollup) Totals() []Total {
	r.cutter.flush()

	return slices.SortedFunc(maps.Keys(r.sums), func(a, b Total) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Span, b.Span), cmp.Compare(a.Of, b.Of))
	})
}

// Merge adds what was stored of a total before.
func (r *Rollup) Merge(to Total, stored string) error {
	return EachTotal(to, stored, func(p *Posting) error {
		r.add(to, keyOf(to.Of, p), p.vector())
		return nil
	})
}

// Text returns a total in its stored form: a line for each row, in which tabs separate the fields.
func (r *Rollup) Text(of Total) string {
	sums := r.sums[of]
	var b strings.Builder

	for _, k := range slices.SortedFunc(maps.Keys(sums), totalKey.compare) {
		for _, field := range []string{k.class, k.account, k.gpu, k.offer, k.node, k.lease, k.owner, k.project} {
			b.WriteString(escapeField(field))
			b.WriteByte('\t')
		}

		for i, amount := range sums[k] {
			if i > 0 {
				b.WriteByte('\t')
			}

			b.WriteString(strconv.FormatInt(amount, 10))
		}

		b.WriteByte('\n')
	}

	return b.String()
}

// escapeField writes a name so that it has neither tabs nor line ends; unescapeField reads it.
func escapeField(s string) string {
	if !strings.ContainsAny(s, "\\\t\n") {
		return s
	}

	return strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`).Replace(s)
}

func unescapeField(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}

	return strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n").Replace(s)
}

// EachTotal yields the rows of a stored total as postings without duration at its beginning, so that they are added up
// as postings are. A posting is only valid until the next.
func EachTotal(of Total, stored string, yield func(*Posting) error) error {
	p := Posting{From: of.Start, To: of.Start}
	escaped := strings.IndexByte(stored, '\\') >= 0

	for row := 1; stored != ""; row++ {
		rest, ok := readTotal(stored, escaped, &p)
		if !ok {
			return fmt.Errorf("row %d of the total of the %s %s is not valid", row, of.Span, of.Start)
		}

		stored = rest
		if err := yield(&p); err != nil {
			return err
		}
	}

	return nil
}

// readTotal reads the first row and returns the others. A report of a month reads some 50,000 rows.
func readTotal(text string, escaped bool, p *Posting) (rest string, ok bool) {
	var names [8]string

	for i := range names {
		names[i], text, ok = strings.Cut(text, "\t")
		if !ok {
			return "", false
		}

		if escaped {
			names[i] = unescapeField(names[i])
		}
	}

	var amounts vector
	for i := range amounts {
		after := byte('\t')
		if i == len(amounts)-1 {
			after = '\n'
		}

		amounts[i], text, ok = readAmount(text, after)
		if !ok {
			return "", false
		}
	}

	p.Class, p.Account, p.GPU, p.Offer = fleet.Class(names[0]), Account(names[1]), names[2], names[3]
	p.Node, p.Lease = id.Node(names[4]), id.Lease(names[5])
	p.Owner, p.Project = id.User(names[6]), id.Project(names[7])
	p.Amounts = amounts.amounts()

	return text, true
}

// safeDigits is how many digits a number may have so that it certainly fits.
const safeDigits = 18

// readAmount reads a number up to a character, and returns what follows it.
func readAmount(text string, after byte) (amount int64, rest string, ok bool) {
	for i := range min(len(text), safeDigits+1) {
		c := text[i]
		if c == after {
			return amount, text[i+1:], i > 0
		}
		if c < '0' || c > '9' {
			break
		}

		amount = 10*amount + int64(c-'0')
	}

	// One with a sign or more digits is rare.
	end := strings.IndexByte(text, after)
	if end < 0 {
		return 0, "", false
	}

	amount, err := strconv.ParseInt(text[:end], 10, 64)

	return amount, text[end+1:], err == nil
}

// Piece is a part of a period. A zero time is no end on that side.
type Piece struct {
	From, To time.Time
	Span     TotalSpan // whose totals it consists of; "" if only postings tell
}

// Pieces divides a period into days and hours of which there are totals, and what is left at its ends. Who asks for
// hours gets no days.
func Pieces(from, to time.Time, byHour bool) []Piece {
	from, to = period(from, to)
	begin, end := HourTotal.whole(from, to)

	if !from.IsZero() && !to.IsZero() && end.Before(begin) {
		return []Piece{{From: from, To: to}} // within one hour
	}

	pieces := ends(from, begin, end, to, "")
	first, last := DayTotal.whole(begin, end)

	switch {
	case !begin.IsZero() && begin.Equal(end): // no whole hour
	case byHour, !begin.IsZero() && !end.IsZero() && !first.Before(last):
		pieces = append(pieces, Piece{begin, end, HourTotal})
	default:
		pieces = append(pieces, ends(begin, first, last, end, HourTotal)...)
		pieces = append(pieces, Piece{first, last, DayTotal})
	}

	return pieces
}

// whole returns the whole hours or days of a period. If there are none, they end where they begin or before.
func (s TotalSpan) whole(from, to time.Time) (begin, end time.Time) {
	if !from.IsZero() {
		begin = s.begin(from)
	}

	if begin.Before(from) {
		begin = s.begin(begin.Add(s.length()))
	}

	if !to.IsZero() {
		end = s.begin(to)
	}

	return begin, end
}

// ends returns what is left of a period on both sides of its middle.
func ends(from, begin, end, to time.Time, span TotalSpan) []Piece {
	var pieces []Piece
	if !from.Equal(begin) {
		pieces = append(pieces, Piece{from, begin, span})
	}

	if !end.Equal(to) {
		pieces = append(pieces, Piece{end, to, span})
	}

	return pieces
}

// Cut yields the part of postings that lies in a period, as postings without duration at its beginning. The postings of
// an entry must come together, in the order of the ledger.
type Cut struct{ cutter cutter }

// NewCut returns one for a period.
func NewCut(from, to time.Time, yield func(*Posting)) *Cut {
	return &Cut{cutter{from: from, to: to, emit: func(p *Posting, at time.Time, v vector) {
		piece := *p
		piece.From, piece.To, piece.Amounts = at, at, v.amounts()
		yield(&piece)
	}}}
}

// Add takes the next posting.
func (c *Cut) Add(p *Posting) { c.cutter.add(p) }

// End takes it that there are no more.
func (c *Cut) End() { c.cutter.flush() }
