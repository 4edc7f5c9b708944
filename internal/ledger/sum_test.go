package ledger_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
)

// stretch returns a line of an hour's worth of $1 for each hour it lasts.
func stretch(node, owner string, account ledger.Account, from time.Time, lasts time.Duration) ledger.Posting {
	p := ledger.Posting{
		Node:    id.Node("n" + node),
		Class:   fleet.Reserved,
		GPU:     "A100",
		From:    from,
		To:      from.Add(lasts),
		Account: account,
		Owner:   id.User(owner),
		Amounts: ledger.Amounts{
			NodeTime: ledger.Span(lasts.Milliseconds()),
			GPUTime:  2 * ledger.Span(lasts.Milliseconds()),
			NodeCost: ledger.Nanos(lasts.Hours() * 1e9),
		},
	}

	if account == ledger.Use {
		p.Job, p.Run = "j1", "j1.1"
	}

	return p
}

func rowsOf(t *testing.T, books []ledger.Posting, q ledger.Query) []string {
	t.Helper()
	r, err := ledger.Sum(each(books), q)
	if err != nil {
		t.Fatal(err)
	}

	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, strings.Join(append(row.Keys, row.NodeTime.String(), row.NodeCost.String()), " "))
	}

	return rows
}

func TestSumsByEveryKey(t *testing.T) {
	t.Parallel()
	provisioned := stretch("2", "bob", ledger.Use, monday.Add(time.Hour), time.Hour)
	provisioned.Class = fleet.OnDemand
	provisioned.GPU = "H100"
	provisioned.Lease = "l7"
	provisioned.Offer = "aws/p5/eu"
	provisioned.Project = "vision"
	provisioned.Job, provisioned.Run = "j2", "j2.3"
	books := []ledger.Posting{
		stretch("1", "ann", ledger.Use, monday, 2*time.Hour),
		provisioned,
		stretch("1", "", ledger.Idle, monday.Add(2*time.Hour), time.Hour),
	}

	for _, tc := range []struct {
		key  ledger.Key
		want []string
	}{
		{ledger.ByResearcher, []string{" 3600 1", "ann 7200 2", "bob 3600 1"}},
		{ledger.ByProject, []string{" 10800 3", "vision 3600 1"}},
		{ledger.ByClass, []string{"ondemand 3600 1", "reserved 10800 3"}},
		{ledger.ByNode, []string{"n1 10800 3", "n2 3600 1"}},
		{ledger.ByGPU, []string{"A100 10800 3", "H100 3600 1"}},
		{ledger.ByProvider, []string{" 10800 3", "aws 3600 1"}},
		{ledger.ByOffer, []string{" 10800 3", "aws/p5/eu 3600 1"}},
		{ledger.ByLease, []string{" 10800 3", "l7 3600 1"}},
		{ledger.ByJob, []string{" 3600 1", "j1 7200 2", "j2 3600 1"}},
		{ledger.ByRun, []string{" 3600 1", "j1.1 7200 2", "j2.3 3600 1"}},
		{ledger.ByAccount, []string{"idle 3600 1", "use 10800 3"}},
		{ledger.ByHour, []string{"2026-11-16T08 3600 1", "2026-11-16T09 7200 2", "2026-11-16T10 3600 1"}},
		{ledger.ByDay, []string{"2026-11-16 14400 4"}},
		{ledger.ByWeek, []string{"2026-W47 14400 4"}},
		{ledger.ByMonth, []string{"2026-11 14400 4"}},
	} {
		if diff := cmp.Diff(tc.want, rowsOf(t, books, ledger.Query{Group: []ledger.Key{tc.key}})); diff != "" {
			t.Errorf("by %s: %s", tc.key, diff)
		}
	}

	q := ledger.Query{
		Group:  []ledger.Key{ledger.ByClass, ledger.ByAccount},
		Filter: []ledger.Filter{{Key: ledger.ByResearcher, Values: []string{"ann", "bob"}}},
	}

	if diff := cmp.Diff([]string{"ondemand use 3600 1", "reserved use 7200 2"}, rowsOf(t, books, q)); diff != "" {
		t.Errorf("of two people: %s", diff)
	}
}

func TestPostingsAreDividedAtBorders(t *testing.T) {
	t.Parallel()
	newYear := time.Date(2026, 12, 31, 22, 0, 0, 0, time.UTC) // a Thursday
	long := []ledger.Posting{stretch("1", "ann", ledger.Use, newYear, 100*time.Hour)}
	due := stretch("1", "ann", ledger.Use, newYear, time.Hour)
	due.Account = ledger.Waste
	due.Run = ""
	due.To = due.From
	due.NodeTime = 0
	due.GPUTime = 0
	for name, tc := range map[string]struct {
		books []ledger.Posting
		query ledger.Query
		want  []string
	}{
		"by day": {long, ledger.Query{Group: []ledger.Key{ledger.ByDay}}, []string{
			"2026-12-31 7200 2", "2027-01-01 86400 24", "2027-01-02 86400 24", "2027-01-03 86400 24", "2027-01-04 86400 24", "2027-01-05 7200 2"}},
		"by week":  {long, ledger.Query{Group: []ledger.Key{ledger.ByWeek}}, []string{"2026-W53 266400 74", "2027-W01 93600 26"}},
		"by month": {long, ledger.Query{Group: []ledger.Key{ledger.ByMonth}}, []string{"2026-12 7200 2", "2027-01 352800 98"}},
		"by month and week": {long, ledger.Query{Group: []ledger.Key{ledger.ByMonth, ledger.ByWeek}}, []string{
			"2026-12 2026-W53 7200 2", "2027-01 2026-W53 259200 72", "2027-01 2027-W01 93600 26"}},
		"within":                         {long, ledger.Query{From: newYear.Add(time.Hour), To: newYear.Add(90 * time.Minute)}, []string{"1800 0.5"}},
		"begun before":                   {long, ledger.Query{From: newYear.Add(99 * time.Hour)}, []string{"3600 1"}},
		"until then":                     {long, ledger.Query{To: newYear.Add(time.Hour)}, []string{"3600 1"}},
		"before it all":                  {long, ledger.Query{To: newYear}, nil},
		"after it all":                   {long, ledger.Query{From: newYear.Add(100 * time.Hour)}, nil},
		"nothing between":                {long, ledger.Query{From: newYear.Add(time.Hour), To: newYear.Add(time.Hour)}, nil},
		"due at the begin of the period": {[]ledger.Posting{due}, ledger.Query{From: newYear, To: newYear.Add(1)}, nil},
		"due in the period":              {[]ledger.Posting{due}, ledger.Query{From: newYear, To: newYear.Add(time.Hour)}, []string{"0 1"}},
		"due at its end":                 {[]ledger.Posting{due}, ledger.Query{From: newYear.Add(-time.Hour), To: newYear}, nil},
	} {
		if diff := cmp.Diff(tc.want, rowsOf(t, tc.books, tc.query)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestSumRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	huge := stretch("1", "ann", ledger.Use, monday, time.Hour)
	huge.NodeCost = math.MaxInt64
	for name, tc := range map[string]struct {
		query ledger.Query
		want  string
	}{
		"unknown key":    {ledger.Query{Group: []ledger.Key{"colour"}}, "ledger_key"},
		"key twice":      {ledger.Query{Group: []ledger.Key{ledger.ByDay, ledger.ByNode, ledger.ByDay}}, "ledger_key"},
		"unknown filter": {ledger.Query{Filter: []ledger.Filter{{Key: "colour"}}}, "ledger_key"},
		"time as filter": {ledger.Query{Filter: []ledger.Filter{{Key: ledger.ByDay}}}, "ledger_key"},
		"ends first":     {ledger.Query{From: monday, To: monday.Add(-1)}, "ledger_period"},
		"too much":       {ledger.Query{}, "ledger_overflow"},
	} {
		_, err := ledger.Sum(each([]ledger.Posting{huge, huge}), tc.query)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

func TestBucketsNameTimesInWhichNothingHappened(t *testing.T) {
	t.Parallel()
	to := monday.Add(50 * time.Hour)
	for _, tc := range []struct {
		key  ledger.Key
		want []string
	}{
		{ledger.ByDay, []string{"2026-11-16", "2026-11-17", "2026-11-18"}},
		{ledger.ByWeek, []string{"2026-W47"}},
		{ledger.ByMonth, []string{"2026-11"}},
		{ledger.ByNode, nil},
	} {
		if diff := cmp.Diff(tc.want, ledger.Buckets(tc.key, monday, to)); diff != "" {
			t.Errorf("by %s: %s", tc.key, diff)
		}
	}

	if got := ledger.Buckets(ledger.ByHour, monday.Add(time.Minute), to); len(got) != 50 || got[0] != "2026-11-16T08" {
		t.Errorf("hours: %v", got)
	}

	if got := ledger.Buckets(ledger.ByDay, time.Time{}, to); got != nil {
		t.Errorf("a period without a begin has %d days", len(got))
	}
}

func TestReportsAsText(t *testing.T) {
	t.Parallel()
	odd := stretch("1", "", ledger.Idle, monday, 1500*time.Millisecond)
	odd.GPU = "=1+1, \"x\""
	odd.EnergyCost = 250_000_000
	odd.Energy = 3_600_000_000

	r, err := ledger.Sum(
		each([]ledger.Posting{stretch("1", "ann", ledger.Use, monday, time.Hour), odd}),
		ledger.Query{From: monday, Group: []ledger.Key{ledger.ByGPU, ledger.ByResearcher}},
	)
	if err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	if err := r.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}

	want := `gpu,researcher,node_seconds,gpu_seconds,rent_usd,power_usd,cost_usd,energy_kwh
"'=1+1, ""x""",,1.5,3,0.000416666,0.25,0.250416666,1.000000
A100,ann,3600,7200,1,0,1,0.000000
`

	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}

	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}

	const part = `{"keys":["A100","ann"],"node_ms":3600000,"gpu_ms":7200000,"node_cost_nanodollars":1000000000,"energy_cost_nanodollars":0,"energy_mj":0}`
	if !strings.Contains(string(text), part) {
		t.Errorf("JSON is %s", text)
	}

	if err := r.WriteCSV(full{}); !errors.Is(err, errFull) {
		t.Errorf("writing to a full disk: %v", err)
	}
}

// full is a disk with no room left.
type full struct{}

var errFull = errors.New("no room left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestStretchesBeginWhereTheirNamesSay(t *testing.T) {
	t.Parallel()

	for _, key := range []ledger.Key{ledger.ByHour, ledger.ByDay, ledger.ByWeek, ledger.ByMonth} {
		from := time.Date(2024, 12, 20, 5, 30, 0, 0, time.UTC) // over two ends of a year, one with 53 weeks
		for _, label := range ledger.Buckets(key, from, from.AddDate(2, 1, 0)) {
			start, err := ledger.StretchStart(key, label)
			if err != nil {
				t.Fatal(err)
			}

			if got := ledger.Buckets(key, start, start.Add(time.Millisecond)); len(got) != 1 || got[0] != label {
				t.Fatalf("%s begins at %s, which is in %v", label, start, got)
			}

			if got := ledger.Buckets(key, start.Add(-time.Millisecond), start); len(got) != 1 || got[0] == label {
				t.Fatalf("%s begins at %s, and before that was %v", label, start, got)
			}
		}
	}

	for key, label := range map[ledger.Key]string{ //nolint:exhaustive // some that do not fit
		ledger.ByWeek: "2026-11-15", ledger.ByDay: "2026-W46", ledger.ByNode: "n1",
	} {
		if at, err := ledger.StretchStart(key, label); err == nil {
			t.Errorf("%q by %s begins at %s", label, key, at)
		}
	}
}
