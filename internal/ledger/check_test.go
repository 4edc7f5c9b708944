package ledger_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/ledger"
)

// TestCheckFindsWhatIsWrong spoils books that balance in every way it can think of.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := ledger.NewMeter(newNode("n", fleet.Reserved, 2), tariff(), nil, monday)
	end := monday.Add(time.Hour)
	var books []ledger.Posting
	books = m.Set(books, monday.Add(10*time.Minute), ledger.Status{Rest: ledger.Idle}, []ledger.Holder{gpus(1, "ann", 1)})
	books = m.Close(books, end)
	read := m.Read()
	node := func() []ledger.NodeBook {
		return []ledger.NodeBook{{Node: "n", Present: []ledger.Present{{From: monday, To: end, GPUs: 2}}, Read: &read}}
	}
	for name, tc := range map[string]struct {
		spoil func([]ledger.Posting, []ledger.NodeBook) []ledger.Posting
		want  string // "" if all is well
		part  string // the same, of ten minutes of the hour, where it differs
	}{
		"nothing":                 {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { return b }, "", ""},
		"a line is missing":       {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { return b[:2] }, "for node n ", "for node n "},
		"a line is there twice":   {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { return append(b, b[1]) }, "for node n ", "for node n "},
		"a cent is missing":       {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[1].Rent -= 1e7; return b }, "for node n ", ""},
		"a millijoule is missing": {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[2].Energy--; return b }, "for node n ", ""},
		"a GPU too many":          {func(b []ledger.Posting, n []ledger.NodeBook) []ledger.Posting { n[0].Present[0].GPUs++; return b }, "for node n ", "for node n "},
		"there for longer": {func(b []ledger.Posting, n []ledger.NodeBook) []ledger.Posting {
			n[0].Present[0].To = end.Add(1e6)
			return b
		}, "for node n ", ""},
		"an unknown node":            {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[1].Node = "x"; return b }, "for node n ", "for node n "},
		"a node of which nothing is": {func(b []ledger.Posting, n []ledger.NodeBook) []ledger.Posting { n[0].Node = "x"; return b }, "for node x ", "for node x "},
		"another node as well": {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting {
			return append(b, stretch("9", "", ledger.Idle, monday, time.Hour))
		}, `postings of node "n9", which was not there`, `postings of node "n9", which was not there`},
		"less than nothing":   {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[0].Rent = -1; return b }, "is less than nothing", "is less than nothing"},
		"ends first":          {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[0].To = monday.Add(-1); return b }, "ends before it begins", "ends before it begins"},
		"of no account":       {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[0].Account = "tea"; return b }, "is of no account", "is of no account"},
		"use of nobody":       {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[1].Owner = ""; return b }, "is use, and of nobody", "is use, and of nobody"},
		"a run that uses not": {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[0].Run = "j1.1"; return b }, "is of a run, and not use", "is of a run, and not use"},
		"time in no time":     {func(b []ledger.Posting, _ []ledger.NodeBook) []ledger.Posting { b[0].To = b[0].From; return b }, "has time in no time", "has time in no time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := node()
			spoiled := tc.spoil(slices.Clone(books), nodes)
			for period, want := range map[[2]time.Time]string{{}: tc.want, {monday.Add(20 * time.Minute), monday.Add(30 * time.Minute)}: tc.part} {
				err := ledger.Check(each(spoiled), nodes, period[0], period[1])
				switch {
				case want == "" && err != nil:
					t.Error(err)
				case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
					t.Errorf("%v, want something with %q", err, want)
				}
			}
		})
	}
	if err := ledger.Check(each(books), node(), end, monday); err == nil {
		t.Error("checked a period that ends before it begins")
	}
}
