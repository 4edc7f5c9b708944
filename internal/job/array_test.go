package job_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"trainyard/internal/job"
)

func TestRangesOfArraysAreRead(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]struct {
		values string
		limit  int
	}{
		"0..3":        {"0 1 2 3", 0},
		"0..3%2":      {"0 1 2 3", 2},
		"1..10:4":     {"1 5 9", 0},
		"1..9:4%1":    {"1 5 9", 1},
		"-2..1":       {"-2 -1 0 1", 0},
		"7..7":        {"7", 0},
		" 0 .. 2 % 3": {"0 1 2", 3},
	} {
		a, err := job.ParseArray(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}

		var values []string
		for i := range a.Len() {
			values = append(values, a.Value(i))
		}

		if got := strings.Join(values, " "); got != want.values || a.Limit != want.limit {
			t.Errorf("%q has the values %s and the limit %d, want %s and %d", text, got, a.Limit, want.values, want.limit)
		}
	}
}

func TestWhatIsNoRangeOfAnArrayIsRefused(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"", "5", "..", "0..", "..5", "a..b", "3..1", "0..9:0", "0..9:-1", "0..9%0", "0..9%", "0..9:", "0-9", "0..9%x", "0..1..2",
		"0..99999999999999999999", "0..9:2:3", "0..9%2%3", "1e3..2e3",
	} {
		if a, err := job.ParseArray(text); err == nil {
			t.Errorf("%q was read as %v", text, a)
		}
	}
}

func TestArraysAreStoredAsTheyWere(t *testing.T) {
	t.Parallel()

	for _, a := range []job.Array{
		{Range: job.Steps{Last: 99, Step: 1}},
		{Range: job.Steps{First: -5, Last: 100, Step: 7}, Limit: 3},
		{Values: []string{"0.1", "", "a b\n", `"`, "%2"}},
		{Values: []string{"x"}, Limit: 1},
	} {
		text, err := json.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}

		var back job.Array
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(a, back) {
			t.Errorf("%s was read as %+v, %v; want %+v", text, back, err, a)
		}
	}
}
