package rows

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/test/fuzzing"
)

func TestSplitReadsWhatWasWrittenInQuotationMarks(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := rapid.SliceOfN(rapid.StringMatching(`[a-z",; ]{0,6}`), 1, 5).Draw(r, "fields")
		var line []string
		for _, f := range want {
			if strings.ContainsAny(f, `",`) || rapid.Bool().Draw(r, "quoted") {
				f = `"` + strings.ReplaceAll(f, `"`, `""`) + `"`
			}

			line = append(line, f)
		}

		table := NewTable(New("x", strings.NewReader("")), ',')
		if err := table.split(strings.Join(line, ",")); err != nil {
			r.Fatal(err)
		}

		if diff := cmp.Diff(want, table.Fields); diff != "" {
			r.Fatal(diff)
		}
	})
}

func TestTablesSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, row, says string
		column          int
		get             func(*Table)
	}{
		{"number", "a,NaN", `must be a number, got "NaN"`, 2, func(t *Table) { t.Number("y") }},
		{"infinite", "a,1e999", `must be a number`, 2, func(t *Table) { t.Number("y") }},
		{"count", "-1,b", `must be an integer between 0 and 16777216, got "-1"`, 1, func(t *Table) { t.Count("x") }},
		{"broken count", "1.5,b", "must be an integer", 1, func(t *Table) { t.Count("x") }},
		{"great count", "1e12,b", "must be an integer", 1, func(t *Table) { t.Count("x") }},
		{"time", "-1,b", "must be a time", 1, func(t *Table) { t.Seconds("x") }},
		{"long time", "1e11,b", "must be a time", 1, func(t *Table) { t.Seconds("x") }},
		{"date", "a,1066-10-14 09:00:00", "invalid time", 2, func(t *Table) { t.Wall("y", time.DateTime) }},
		{"clock", "a,25:00:00", "must be a time of day", 2, func(t *Table) { t.Clock("y") }},
		{"amount", "a,-2", "must be a non-negative number", 2, func(t *Table) { t.OrZero("y") }},
		{"missing", "a", "field is missing", 2, func(t *Table) { t.Text("y") }},
		{"the first of two", "a,b", `must be a number, got "a"`, 1, func(t *Table) {
			t.Number("x")
			t.Number("y")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, err := WithHeader(New("file", strings.NewReader("x,y\n\n"+c.row+"\n")), ',', "y")
			if err != nil {
				t.Fatal(err)
			}

			err = table.Each(func() { c.get(table) })

			var e *fault.Error
			if !errors.As(err, &e) || e.Code != BadRow || e.Line != 3 || e.Column != c.column ||
				!strings.Contains(e.Message, c.says) ||
				!strings.Contains(e.Message, "file") {
				t.Errorf("got %+v, want column %d to say %q", e, c.column, c.says)
			}
		})
	}
}

func TestTablesReadNumbersExactly(t *testing.T) {
	table := NewTable(
		New("f", strings.NewReader("1356996147.25 8.0 2017-09-04T10:30:41 13:09:45\n")),
		' ',
		"a",
		"b",
		"c",
		"d",
	)

	if err := table.Read(); err != nil {
		t.Fatal(err)
	}

	if got, want := table.Seconds("a"), 1356996147*time.Second+250*time.Millisecond; got != want {
		t.Errorf("got %v, want %v", got, want)
	}

	if got := table.Units("b", time.Millisecond); got != 8*time.Millisecond || table.Count("b") != 8 {
		t.Errorf("got %v", got)
	}

	if got := table.Wall("c", "2006-01-02T15:04:05"); got != 1504521041*time.Second {
		t.Errorf("got %v", got)
	}

	if got := table.Clock("d"); got != 13*time.Hour+9*time.Minute+45*time.Second {
		t.Errorf("got %v", got)
	}

	if table.Err != nil {
		t.Error(table.Err)
	}

	if err := table.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestAHeldLineComesAgainUnderItsNumber(t *testing.T) {
	f := New("f", strings.NewReader("\ufeffone\r\ntwo\n"))
	if begin := string(f.Peek()); !strings.Contains(begin, "two") {
		t.Errorf("peeked %q", begin)
	}

	first, err := f.Next()
	if err != nil || first != "one" {
		t.Fatalf("got %q, %v", first, err)
	}

	f.Unread(first)

	again, err := f.Next()
	if err != nil || again != "one" || f.Line != 1 {
		t.Errorf("got %q on line %d, %v", again, f.Line, err)
	}

	if second, err := f.Next(); err != nil || second != "two" || f.Line != 2 {
		t.Errorf("got %q on line %d, %v", second, f.Line, err)
	}
}

func TestJSONKnowsTheLineOfEachValue(t *testing.T) {
	text := "[\n 1,\n" + strings.Repeat(" ", 5000) + "{\"a\":\n 2},\n\n\n 3]"
	j := NewJSON(New("f", strings.NewReader(text)))
	if err := j.Expect(json.Delim('[')); err != nil {
		t.Fatal(err)
	}

	var lines []int
	for j.More() {
		if _, err := j.Element(); err != nil {
			t.Fatal(err)
		}

		lines = append(lines, j.Line)
	}

	if diff := cmp.Diff([]int{2, 3, 7}, lines); diff != "" {
		t.Error(diff)
	}

	err := j.Expect(json.Delim('}'))

	var e *fault.Error
	if !errors.As(err, &e) || e.Code != BadFile || e.Line != 7 {
		t.Errorf("got %v", err)
	}

	if _, err := NewJSON(New("f", strings.NewReader(""))).Element(); !errors.As(err, &e) ||
		!errors.Is(e.Cause, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}

	if _, err := NewJSON(New("f", strings.NewReader("{x"))).Key(); !errors.As(err, &e) {
		t.Errorf("got %v", err)
	}
}

func FuzzTable(f *testing.F) {
	f.Add("a,b\n1,\"2,\"\"3\"\n", byte(','))
	f.Add("a b\n 1  2 \n", byte(' '))

	f.Fuzz(func(t *testing.T, text string, comma byte) {
		defer fuzzing.Bounded(t)()

		table, err := WithHeader(New("f", strings.NewReader(text)), comma)
		for err == nil {
			if err = table.Read(); err == nil {
				table.Number("a")
				table.Wall("b", time.DateTime)
			}
		}

		var e *fault.Error
		if !errors.Is(err, io.EOF) && !errors.As(err, &e) {
			t.Fatal(err)
		}
	})
}
