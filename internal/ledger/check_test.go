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
	node := func() []ledger.NodeRecord {
		return []ledger.NodeRecord{{Node: "n", Present: []ledger.Present{{From: monday, To: end, GPUs: 2}}, Read: &read}}
	}
	for name, tc := range map[string]struct {
		spoil func([]ledger.Posting, []ledger.NodeRecord) []ledger.Posting
		want  string // "" if all is well
		part  string // the same, of ten minutes of the hour, where it differs
	}{
		"nothing":               {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting { return b }, "", ""},
		"a line is missing":     {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting { return b[:2] }, "node n: posted", "node n: posted"},
		"a line is there twice": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting { return append(b, b[1]) }, "node n: posted", "node n: posted"},
		"a cent is missing": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[1].NodeCost -= 1e7
			return b
		}, "node n: posted", ""},
		"a millijoule is missing": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[2].Energy--
			return b
		}, "node n: posted", ""},
		"a GPU too many": {func(b []ledger.Posting, n []ledger.NodeRecord) []ledger.Posting {
			n[0].Present[0].GPUs++
			return b
		}, "node n: posted", "node n: posted"},
		"there for longer": {func(b []ledger.Posting, n []ledger.NodeRecord) []ledger.Posting {
			n[0].Present[0].To = end.Add(1e6)
			return b
		}, "node n: posted", ""},
		"an unknown node": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[1].Node = "x"
			return b
		}, "node n: posted", "node n: posted"},
		"a node of which nothing is": {func(b []ledger.Posting, n []ledger.NodeRecord) []ledger.Posting {
			n[0].Node = "x"
			return b
		}, "node x: posted", "node x: posted"},
		"another node as well": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			return append(b, stretch("9", "", ledger.Idle, monday, time.Hour))
		}, `postings of node "n9", which did not exist`, `postings of node "n9", which did not exist`},
		"less than nothing": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[0].NodeCost = -1
			return b
		}, "has a negative amount", "has a negative amount"},
		"ends first": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[0].To = monday.Add(-1)
			return b
		}, "ends before it begins", "ends before it begins"},
		"of no account": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[0].Account = "tea"
			return b
		}, "has an unknown account", "has an unknown account"},
		"use of nobody": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[1].Owner = ""
			return b
		}, "has no owner or no run", "has no owner or no run"},
		"a run that uses not": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[0].Run = "j1.1"
			return b
		}, "has a run but is not of account use", "has a run but is not of account use"},
		"time in no time": {func(b []ledger.Posting, _ []ledger.NodeRecord) []ledger.Posting {
			b[0].To = b[0].From
			return b
		}, "has node or GPU time but no duration", "has node or GPU time but no duration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := node()
			spoiled := tc.spoil(slices.Clone(books), nodes)
			for period, want := range map[[2]time.Time]string{{}: tc.want,
				{monday.Add(20 * time.Minute), monday.Add(30 * time.Minute)}: tc.part} {
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
