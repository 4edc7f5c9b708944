package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
)

func never() bool { return false }

// searched is what a search costs that is done in parts, each with a budget of its own.
func searched(t *testing.T, s *shelf, f Filter, steps int64) (lines []api.LogLine, parts int) {
	t.Helper()

	for at, more := (Mark{}), true; more; parts++ {
		f.Budget = NewBudget(steps, never)
		got, next, again, err := s.lines(at, &f, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if f.Budget.Spent() && (next == at || !again) {
			t.Fatalf("part %d got nowhere from %+v", parts, at)
		}

		lines = append(lines, got...)
		at, more = next, again
	}

	return lines, parts
}

func TestASearchInPartsFindsWhatOneSearchFinds(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	var text []string
	for i := range 200 {
		text = append(text, fmt.Sprintf("o:line %d %s\n", i, strings.Repeat("x", i)), fmt.Sprintf("e:other %d\n", i))
	}

	text = append(text, "o:open 5", "e:open too")
	s.append(0, string(output(t, text...)), false)

	for _, f := range []Filter{{}, {Grep: matching(t, "5")}, {Grep: matching(t, "(x?){20}x{20}"), Stream: "stdout"}} {
		want, parts := searched(t, s, f, 1<<40)
		if parts != 1 || len(want) == 0 {
			t.Errorf("without a bound %d lines are found in %d parts", len(want), parts)
		}

		for _, steps := range []int64{1, 100, 10_000} {
			got, parts := searched(t, s, f, steps)
			if parts < 2 || len(got) != len(want) || got[len(got)-1].Text != want[len(want)-1].Text {
				t.Errorf("in %d parts of %d steps %d lines are found, want %d", parts, steps, len(got), len(want))
			}
		}
	}
}

// The cost of a search is bounded by its budget, however expensive its expression is.
func TestAnExpensiveSearchStopsWithItsBudget(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	line := "o:" + strings.Repeat("x", 999) + "\n"
	s.append(0, string(output(t, line, line, line, line, line, line, line, line)), false)

	cheap, expensive := Filter{Grep: matching(t, "nothing")}, Filter{Grep: matching(t, "(.*x){60}y")}
	perLine := expensive.Grep.Cost(999) + 999 + lineCost
	expensive.Budget = NewBudget(3*perLine, never)

	_, at, more, err := s.lines(Mark{}, &expensive, 1000)
	if err != nil || !more || !expensive.Budget.Spent() {
		t.Fatalf("more %v: %v", more, err)
	}

	if rest := readAll(t, s, at); len(rest) != 5 {
		t.Errorf("%d of 8 lines were left, want 5", len(rest))
	}

	cheap.Budget = NewBudget(3*perLine, never)
	if _, _, more, err := s.lines(Mark{}, &cheap, 1000); err != nil || more || cheap.Budget.Spent() {
		t.Errorf("a cheap search with the same budget: more %v, %v", more, err)
	}

	expensive.Budget = NewBudget(3*perLine, never)
	_, err = s.Tail(t.Context(), theLog, &expensive, 1)
	wantFault(t, err, fault.OverLimit, "search_too_long")

	expensive.Budget = NewBudget(1<<40, never)
	if _, err := s.Tail(t.Context(), theLog, &expensive, 1); err != nil {
		t.Errorf("a tail that may take long: %v", err)
	}
}

func TestASearchEndsWithItsTimeAndItsCaller(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, string(output(t, "o:1\n", "o:2\n", "o:3\n")), false)

	looks := 0
	late := Filter{Budget: NewBudget(1<<40, func() bool {
		looks++
		return looks == 2
	})}

	lines, _, more, err := s.lines(Mark{}, &late, 10)
	if err != nil || len(lines) != 2 || !more {
		t.Errorf("%d lines until its time was over, more %v, %v", len(lines), more, err)
	}

	// Each line is looked at only while the caller is there.
	gone, leave := context.WithCancel(t.Context())
	looks = 0
	left := Filter{Budget: NewBudget(1<<40, func() bool {
		looks++
		leave()

		return false
	})}

	if _, _, _, _, err := s.ReadLines(gone, theLog, Mark{}, &left, 10); !errors.Is(err, context.Canceled) || looks != 1 {
		t.Errorf("%d lines were looked at after its caller had left: %v", looks-1, err)
	}
}
