package ledger

import (
	"iter"
	"time"
)

// Sum adds postings up. They must come in the order of the ledger.
func Sum(postings iter.Seq[*Posting], q Query) (*Report, error) {
	s, err := NewSummary(q)
	if err != nil {
		return nil, err
	}

	for p := range postings {
		s.Add(p)
	}

	return s.Report()
}

// UsageOf returns the figures of a period.
func UsageOf(postings iter.Seq[*Posting], leases []LeaseCost, from, to time.Time) (*Usage, error) {
	s, err := NewUsageSummary(from, to, "")
	if err != nil {
		return nil, err
	}

	for p := range postings {
		s.AddNode(p)
		s.AddPayer(p)
	}

	return s.Usage(leases)
}

// Split and Until let tests look at the arithmetic itself.

// Split divides a total by weights.
func Split(total int64, weights []int64) []int64 {
	out := make([]int64, len(weights))
	split(total, weights, out)
	return out
}

// Until returns what of the lines of an entry falls on its first num of den milliseconds.
func Until(lines []Posting, num, den int64) []Amounts {
	out := make([]vector, len(lines))
	prefixOf(lines, num, den, out)

	list := make([]Amounts, len(lines))
	for i := range out {
		list[i] = out[i].amounts()
	}

	return list
}
