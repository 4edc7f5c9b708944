package agentapi

import (
	"sync"

	"trainyard/internal/id"
)

// sequences notices two processes that report for one node: two that say they are the same start of an agent,
// because they count alike, so that numbers come twice or are far behind, and two of which one reports again after the
// other. It is in memory only, as a restart of the server loses nothing but a few reports.
type sequences struct {
	mu    sync.Mutex
	nodes map[id.Node]*sequence
}

type sequence struct {
	boot    string
	before  string // the start before that one, which must not report again
	last    uint64
	seen    uint64 // which of the numbers up to the last have come, the last being the lowest bit
	reports int    // of which repeats are counted
	repeats int    // reports whose number was not new
}

// Of each repeatWindow reports of one start fewer than maxRepeats may come twice, as requests do that are sent again.
// Reports that come late, after later ones, are no repeats: when a network is back all those arrive, in any order, that
// were sent meanwhile.
const (
	repeatWindow = 100
	maxRepeats   = 5
)

func newSequences() *sequences { return &sequences{nodes: map[id.Node]*sequence{}} }

// doubled notes the number of a report and says whether somebody else counts, too.
func (s *sequences) doubled(n id.Node, boot string, number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	q, ok := s.nodes[n]
	if !ok {
		q = &sequence{boot: boot}
		s.nodes[n] = q
	}

	back := q.before != "" && boot == q.before
	if boot != q.boot && !back {
		q.boot, q.before, q.last, q.seen = boot, q.boot, 0, 0
	}

	if q.reports++; q.reports > repeatWindow {
		q.reports, q.repeats = 1, 0
	}

	if !back && (q.isNew(number) || number == 0 && q.last == 0) { // 0 is of an agent that does not count
		return false
	}

	q.repeats++
	if q.repeats < maxRepeats {
		return false
	}

	q.repeats = 0

	return true
}

// isNew notes a number and says whether it has not come before. One that is too far behind counts as one that has.
func (q *sequence) isNew(number uint64) bool {
	if number > q.last {
		q.seen = q.seen<<(number-q.last) | 1
		q.last = number

		return true
	}

	bit := uint64(1) << (q.last - number)
	late := bit != 0 && q.seen&bit == 0
	q.seen |= bit

	return late
}
