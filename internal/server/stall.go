package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// A commit that takes longer than stallAfter hangs. That is noticed within stallCheck.
const (
	stallAfter = time.Second
	stallCheck = 250 * time.Millisecond
)

// stall is what is known of a commit that does not go through: since when, and which agents have reported
// meanwhile. The loop does not run then, so it is asked beside the loop.
type stall struct {
	mu     sync.Mutex
	began  time.Time     // of the commit that is under way; zero if none is
	hangs  bool          // it takes too long, or has failed
	failed string        // why it failed; "" if it only takes long
	stuck  chan struct{} // closed while it hangs
	heard  map[id.Node]time.Time
}

func newStall() *stall { return &stall{stuck: make(chan struct{}), heard: map[id.Node]time.Time{}} }

// begin says that a commit is under way.
func (s *stall) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.began = now
}

// end says that the commit went through, and returns how long it had hung.
func (s *stall) end(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	took := now.Sub(s.began)
	s.began = time.Time{}
	if !s.hangs {
		return 0
	}

	s.hangs, s.failed = false, ""
	s.stuck = make(chan struct{})

	return took
}

// fail says that the commit failed and will be tried again.
func (s *stall) fail(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.failed = why
	s.hang()
}

// hang is called with the lock.
func (s *stall) hang() {
	if !s.hangs {
		s.hangs = true
		close(s.stuck)
	}
}

// notice finds a commit that hangs, and returns for how long it has if that was not known before.
func (s *stall) notice(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	took := now.Sub(s.began)
	if s.began.IsZero() || s.hangs || took < stallAfter {
		return 0
	}

	s.hang()

	return took
}

// failing returns why commits fail, and "" if they do not, or only take long.
func (s *stall) failing() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.failed
}

// why returns why nothing is stored now, and "" if all is well.
func (s *stall) why(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case !s.hangs:
		return ""
	case s.failed != "":
		return s.failed
	}

	return fmt.Sprintf("stuck: the store has not answered a commit for %s", now.Sub(s.began).Round(time.Second))
}

// waiting returns a channel that is closed when a commit hangs.
func (s *stall) waiting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.stuck
}

// hear notes that a node has reported while a commit hangs, and is false if none does. The loop takes note
// of it before it looks at the time again, so that nobody who was answered is taken for silent.
func (s *stall) hear(n id.Node, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.hangs {
		s.heard[n] = now
	}

	return s.hangs
}

// takeHeard returns who reported while a commit hung, for the yardmaster.
func (s *stall) takeHeard() yardmaster.NodesHeard {
	s.mu.Lock()
	defer s.mu.Unlock()

	var m yardmaster.NodesHeard
	for n, at := range s.heard {
		m.Nodes = append(m.Nodes, yardmaster.NodeHeard{Node: n, At: at})
	}

	slices.SortFunc(m.Nodes, func(a, b yardmaster.NodeHeard) int { return cmp.Compare(a.Node, b.Node) })
	clear(s.heard)

	return m
}

// Report hands a report of a node to the yard. While a commit hangs it answers at once, with an
// error that has the code api.CodeHeard: the yard counts the report as a sign of life and nothing else of it, so that
// the node's runs go on. Nothing is said while it is not certain that this server leads.
func (l *Loop) Report(ctx context.Context, m yardmaster.NodeReport) (any, error) {
	reply, err := l.ask(ctx, request{message: m}, l.stall.waiting())
	if fault.KindOf(err) != fault.Unavailable || !l.stall.hear(m.Node, l.clock.Now()) {
		return reply, err
	}
	if lost := l.held(); lost != nil {
		return nil, lost
	}

	return nil, fault.New(fault.Unavailable, api.CodeHeard, "the report was heard but cannot be stored now").
		WithRemedy("report again")
}
