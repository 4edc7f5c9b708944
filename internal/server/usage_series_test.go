package server

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/tenant"
)

// series asks for how a period went.
func (y *yard) series(token, query string) (out api.UsageSeries) {
	y.t.Helper()

	got := y.raw(y.http, http.MethodGet, "/api/v1/usage/series?"+query, token, "")
	if got.status != http.StatusOK {
		y.t.Fatalf("%s: %d %s", query, got.status, got.body)
	}

	y.must(json.Unmarshal(got.body, &out))

	return out
}

func sumOf(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}

	return sum
}

func TestUsageOverTimeAddsUp(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	n := y.join("box1")
	n.listen()

	began := y.clock.Now().UTC()

	for _, user := range []string{"ada", "bob", "cleo"} { // one after the other, each longer than the one before
		_, run := n.started(y.researcher(idUser(user)))
		y.advance(time.Duration(len(user)) * 10 * time.Hour)
		n.ends(run, 0, 0)
	}

	y.srv.rollUpAll(t.Context())

	root := y.token("root", tenant.Admin, tenant.ScopeRead)
	period := "from=" + began.Truncate(24*time.Hour).Format(time.RFC3339) +
		"&to=" + y.clock.Now().UTC().Format(time.RFC3339)

	all := y.series(root, "by=researcher&"+period)
	if all.Step != "day" || len(all.Starts) < 5 || !all.Starts[1].Equal(all.Starts[0].Add(24*time.Hour)) {
		t.Errorf("the period of 100 hours is in stretches of a %s, at %v", all.Step, all.Starts)
	}

	total := 0.0
	for _, l := range all.Lines {
		if len(l.Cost) != len(all.Starts) || len(l.GPUSeconds) != len(all.Starts) || len(l.Energy) != len(all.Starts) {
			t.Errorf("%q has %d figures for %d stretches", l.Key, len(l.Cost), len(all.Starts))
		}

		total += sumOf(l.Cost)
	}

	if d := total - all.Total.Cost; all.Total.Cost < 100 || d > 1e-6 || d < -1e-6 {
		t.Errorf("the lines come to $%v and the total is $%v", total, all.Total.Cost)
	}

	if len(all.Lines) != 4 || all.Lines[0].Key != "" || all.Lines[1].Key != "cleo" { // most of the node was idle
		t.Errorf("the one who pays most comes first: %+v", all.Lines)
	}

	few := y.series(root, "by=researcher&most=1&"+period)
	if len(few.Lines) != 2 || few.Lines[1].Others != len(all.Lines)-1 || few.Lines[0].Others != 0 {
		t.Fatalf("one line and the others: %+v", few.Lines)
	}

	if d := sumOf(few.Lines[0].Cost) + sumOf(few.Lines[1].Cost) - total; d > 1e-6 || d < -1e-6 {
		t.Errorf("the others are $%v off", d)
	}

	short := y.series(root, "by=class&from="+began.Format(time.RFC3339)+"&to="+began.Add(5*time.Hour).Format(time.RFC3339))
	if short.Step != "hour" || len(short.Starts) < 5 || len(short.Starts) > 6 {
		t.Errorf("five hours are in stretches of a %s: %v", short.Step, short.Starts)
	}

	whole := y.series(root, "")
	if whole.Step != "week" || len(whole.Starts) == 0 || whole.Starts[0].Weekday() != time.Monday {
		t.Errorf("everything is in stretches of a %s: %v", whole.Step, whole.Starts)
	}

	mine := y.series(y.token("ada", tenant.Researcher, tenant.ScopeRead), "by=researcher&"+period)
	if len(mine.Lines) != 1 || mine.Lines[0].Key != "ada" {
		t.Errorf("ada sees %+v", mine.Lines)
	}

	byJob := y.raw(y.http, http.MethodGet, "/api/v1/usage/series?by=job", root, "")
	if byJob.status != http.StatusUnprocessableEntity {
		t.Errorf("by job: %d", byJob.status)
	}
}

// pieces is a response that counts what is written at once, and fails after some of it.
type pieces struct {
	http.ResponseWriter
	writes, largest, all int
	failAfter            int
}

func (p *pieces) Write(text []byte) (int, error) {
	p.writes++
	p.largest = max(p.largest, len(text))
	p.all += len(text)

	if p.failAfter > 0 && p.all > p.failAfter {
		return 0, errors.New("gone")
	}

	return len(text), nil
}

func TestTablesAreSentAsTheyAreWritten(t *testing.T) {
	t.Parallel()

	table := func(w io.Writer) error {
		out := csv.NewWriter(w)
		for i := range 100_000 {
			if err := out.Write([]string{"j" + strconv.Itoa(i), "1.000000"}); err != nil {
				return err
			}
		}

		out.Flush()

		return out.Error()
	}

	form := Form{Format: "csv"}
	answer, err := form.write(func() any { t.Error("the table was made as JSON, too"); return nil }, table)
	if err != nil {
		t.Fatal(err)
	}

	send := func(to *pieces) {
		to.ResponseWriter = httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		answer.Body(humago.NewContext(&huma.Operation{}, r, to))
	}

	whole := &pieces{}
	send(whole)

	if whole.all < 1_000_000 || whole.largest > 64<<10 {
		t.Errorf("%d bytes came in %d pieces of up to %d", whole.all, whole.writes, whole.largest)
	}

	defer func() {
		if recover() != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			t.Error("a table that broke off looks whole")
		}
	}()

	send(&pieces{failAfter: 10_000})
}
