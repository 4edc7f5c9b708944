package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
)

// BenchmarkChange is one change on each of 10,000 nodes with four runs each: a run goes
// and another comes.
func BenchmarkChange(b *testing.B) {
	prices := tariff()
	meters := make([]*ledger.Meter, 10_000)
	nodes := make([]*fleet.Node, len(meters))
	for i := range meters {
		nodes[i] = newNode(fmt.Sprint("n", i), fleet.Reserved, 8)
		meters[i] = ledger.NewMeter(nodes[i], prices, nil, monday)
	}

	var holders [2][]ledger.Holder
	for i := range 8 {
		h := gpus(i+1, "ann", 3<<(i%4*2))
		h.Project = id.Project("vision")
		holders[i/4] = append(holders[i/4], h)
	}

	idle := ledger.Status{Rest: ledger.Idle}
	var books []ledger.Posting
	now := monday
	round := 0
	b.ReportAllocs()

	for b.Loop() {
		now = now.Add(time.Minute)
		books = books[:0]
		for i, m := range meters {
			books = m.Change(books, now, nodes[i], prices, nil)
			books = m.Set(books, now, idle, holders[round%2])
		}

		round++
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(meters)), "ns/node")
}

// BenchmarkSum adds up a day of 1,000 nodes, rolled every hour, by researcher and class.
func BenchmarkSum(b *testing.B) {
	var books []ledger.Posting
	for hour := range 24 {
		for n := range 1000 {
			from := monday.Add(time.Duration(hour) * time.Hour)
			books = append(
				books,
				stretch(fmt.Sprint(n), fmt.Sprint("u", n%50), ledger.Use, from, time.Hour),
				stretch(fmt.Sprint(n), "", ledger.Idle, from, time.Hour),
			)
		}
	}

	b.ReportAllocs()

	for b.Loop() {
		if _, err := ledger.Sum(
			each(books),
			ledger.Query{Group: []ledger.Key{ledger.ByResearcher, ledger.ByClass}},
		); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(books)), "ns/posting")
}

// BenchmarkUsageOfTotals is how much of 1,000 nodes was used in a month, from the totals of its days.
func BenchmarkUsageOfTotals(b *testing.B) {
	sums := ledger.NewRollup()
	for day := range 30 {
		for n := range 1000 {
			at := monday.AddDate(0, 0, day)

			for _, p := range []ledger.Posting{
				stretch(fmt.Sprint("node", n), "ann", ledger.Use, at, 20*time.Hour),
				stretch(fmt.Sprint("node", n), "", ledger.Idle, at.Add(20*time.Hour), 4*time.Hour),
			} {
				sums.Add(&p)
			}
		}
	}

	var days []ledger.Total
	texts := map[ledger.Total]string{}
	rows := 0

	for _, t := range sums.Totals() {
		if t.Span == ledger.DayTotal && t.Of == ledger.NodeTotals {
			days, texts[t] = append(days, t), sums.Text(t)
			rows += strings.Count(texts[t], "\n")
		}
	}

	b.ReportAllocs()

	for b.Loop() {
		usage, err := ledger.NewUsageSummary(monday, monday.AddDate(0, 0, 30), "")
		if err != nil {
			b.Fatal(err)
		}

		for _, day := range days {
			err := ledger.EachTotal(day, texts[day], func(p *ledger.Posting) error {
				usage.AddNode(p)
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}

		if _, err := usage.Usage(nil); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
}
