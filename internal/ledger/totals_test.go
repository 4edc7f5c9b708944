package ledger_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/ledger"
)

// rolled returns the stored totals of postings, which were added up in several parts.
func rolled(t *rapid.T, books []ledger.Posting, parts int) map[ledger.Total]string {
	stored := map[ledger.Total]string{}

	for part := range parts {
		r := ledger.NewRollup()
		first, last := part*len(books)/parts, (part+1)*len(books)/parts
		for first > 0 && first < len(books) && sameEntry(&books[first], &books[first-1]) { // an entry is never parted
			first++
		}

		for last > 0 && last < len(books) && sameEntry(&books[last], &books[last-1]) {
			last++
		}

		for i := first; i < last; i++ {
			r.Add(&books[i])
		}

		for _, of := range r.Totals() {
			if err := r.Merge(of, stored[of]); err != nil {
				t.Fatal(err)
			}

			stored[of] = r.Text(of)
		}
	}

	return stored
}

func sameEntry(p, q *ledger.Posting) bool {
	return p.Node == q.Node && p.From.Equal(q.From) && p.To.Equal(q.To)
}

// Totals have no drift: of any history and however they were added up, they give the figures that postings give.
func TestTotalsAreThePostings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, now: monday, nodes: map[id.Node]*ledger.NodeRecord{}}
		h.tariff = h.prices()
		for range h.number("slots", 1, 3) {
			h.slots = append(h.slots, &slot{})
		}

		for range h.number("steps", 1, 40) {
			h.step()
		}

		stored := rolled(t, h.books, h.number("parts", 1, 4))

		want, err := ledger.UsageOf(each(h.books), nil, time.Time{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}

		for _, span := range []ledger.TotalSpan{ledger.HourTotal, ledger.DayTotal} {
			sum, err := ledger.NewUsageSummary(time.Time{}, time.Time{}, "")
			if err != nil {
				t.Fatal(err)
			}

			for of, text := range stored {
				if of.Span != span {
					continue
				}

				add := map[ledger.Totals]func(*ledger.Posting){
					ledger.NodeTotals: sum.AddNode, ledger.PayerTotals: sum.AddPayer,
				}[of.Of]

				err := ledger.EachTotal(of, text, func(p *ledger.Posting) error {
					add(p)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}

			got, err := sum.Usage(nil)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("from totals of the %s (-postings +totals):\n%s", span, diff)
			}
		}
	})
}

func TestAPeriodIsDividedIntoWhatThereAreTotalsOf(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}

		when, err := time.Parse("02T15:04", text)
		if err != nil {
			t.Fatal(err)
		}

		return when
	}

	for name, tc := range map[string]struct {
		from, to string
		byHour   bool
		want     string
	}{
		"all":                          {"", "", false, "-:day"},
		"all by hour":                  {"", "", true, "-:hour"},
		"days":                         {"03T00:00", "05T00:00", false, "03T00:00-05T00:00:day"},
		"days by hour":                 {"03T00:00", "05T00:00", true, "03T00:00-05T00:00:hour"},
		"hours around days":            {"03T22:00", "06T01:00", false, "03T22:00-04T00:00:hour 06T00:00-06T01:00:hour 04T00:00-06T00:00:day"},
		"hours without a day":          {"03T22:00", "04T02:00", false, "03T22:00-04T02:00:hour"},
		"minutes around hours":         {"03T22:10", "04T02:20", false, "03T22:10-03T23:00: 04T02:00-04T02:20: 03T23:00-04T02:00:hour"},
		"minutes of two hours":         {"03T22:10", "03T23:20", false, "03T22:10-03T23:00: 03T23:00-03T23:20:"},
		"minutes of one hour":          {"03T22:10", "03T22:20", false, "03T22:10-03T22:20:"},
		"the begin of an hour":         {"03T22:00", "03T22:20", false, "03T22:00-03T22:20:"},
		"nothing":                      {"03T22:00", "03T22:00", false, ""},
		"since a minute":               {"03T22:10", "", false, "03T22:10-03T23:00: 03T23:00-04T00:00:hour 04T00:00-:day"},
		"until a minute":               {"", "03T22:10", false, "03T22:00-03T22:10: 03T00:00-03T22:00:hour -03T00:00:day"},
		"until a minute, hour by hour": {"", "03T22:10", true, "03T22:00-03T22:10: -03T22:00:hour"},
	} {
		show := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}

			return t.Format("02T15:04")
		}

		var got []string
		for _, p := range ledger.Pieces(at(tc.from), at(tc.to), tc.byHour) {
			got = append(got, show(p.From)+"-"+show(p.To)+":"+string(p.Span))
		}

		if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestStoredTotalsThatAreDamagedAreRefused(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"local\n", "local\tuse\t\t\tn1\t\t\t\t1\t2\t3\t4\tfive\n", "\n"} {
		err := ledger.EachTotal(ledger.Total{Span: ledger.DayTotal}, text, func(*ledger.Posting) error { return nil })
		if err == nil {
			t.Errorf("%q was taken for a total", text)
		}
	}
}

func TestAmountsOfStoredTotalsAreExact(t *testing.T) {
	t.Parallel()

	names := strings.Repeat("\t", 8)
	for _, amount := range []int64{
		0, 7, -7, 999_999_999_999_999_999, 1_000_000_000_000_000_000, -1_000_000_000_000_000_000, math.MaxInt64,
		math.MinInt64,
	} {
		text := names + strconv.FormatInt(amount, 10) + "\t1\t2\t3\t" + strconv.FormatInt(amount, 10) + "\n"

		err := ledger.EachTotal(ledger.Total{Span: ledger.DayTotal}, text, func(p *ledger.Posting) error {
			if int64(p.NodeTime) != amount || p.GPUTime != 1 || int64(p.Energy) != amount {
				t.Errorf("%d is read as %+v", amount, p.Amounts)
			}

			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}

	for _, amount := range []string{"", "-", "1x", "9223372036854775808", "12345678901234567890"} {
		text := names + amount + "\t1\t2\t3\t4\n"

		err := ledger.EachTotal(ledger.Total{Span: ledger.DayTotal}, text, func(*ledger.Posting) error { return nil })
		if err == nil {
			t.Errorf("the amount %q is accepted", amount)
		}
	}
}

func TestQueriesThatTotalsAnswer(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		group  []ledger.Key
		filter ledger.Key
		want   ledger.Totals
	}{
		{nil, "", ledger.PayerTotals},
		{[]ledger.Key{ledger.ByResearcher, ledger.ByDay}, ledger.ByProject, ledger.PayerTotals},
		{[]ledger.Key{ledger.ByClass}, ledger.ByNode, ledger.NodeTotals},
		{[]ledger.Key{ledger.ByNode, ledger.ByLease}, "", ledger.NodeTotals},
		{[]ledger.Key{ledger.ByNode}, ledger.ByResearcher, ""},
		{[]ledger.Key{ledger.ByJob}, "", ""},
		{nil, ledger.ByRun, ""},
	} {
		q := ledger.Query{Group: tc.group}
		if tc.filter != "" {
			q.Filter = []ledger.Filter{{Key: tc.filter, Values: []string{"x"}}}
		}

		if got := q.Totals(); got != tc.want {
			t.Errorf("by %v of %s: %q, want %q", tc.group, tc.filter, got, tc.want)
		}
	}
}
