package nodes

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
)

// CauseSkew is the cause of the warning that the clock of a node is wrong.
const CauseSkew = "clock_skew"

// SetClock records how far the clock of a node is from that of the server, with an event when it becomes too far and
// when it is right again: when half of that is left, so that a clock at the limit does not come and go.
func (r *Nodes) SetClock(now time.Time, n *Node, offset *fleet.ClockOffset) {
	if offset == nil {
		return // its agent is of an earlier version, or has not measured it yet
	}

	limit := fleet.MaxSkew
	if n.Skew != 0 {
		limit /= 2
	}

	was := n.Skew

	n.Skew = offset.Proven()
	if n.Skew.Abs() <= limit {
		n.Skew = 0
	}

	if was == 0 == (n.Skew == 0) {
		return
	}

	e := batch.Event{Kind: "node.clock_skew", Actor: "node/" + string(n.ID), Node: n.ID, Reason: n.skewed()}
	if n.Skew == 0 {
		e.Kind, e.Reason = "node.clock_right", "its clock is right again"
	}

	r.feed.Add(now, e)
	r.change(n)
}

// skewed says how far the clock of a node is from that of the server.
func (n *Node) skewed() string {
	where := "ahead of"
	if n.Skew < 0 {
		where = "behind"
	}

	return fmt.Sprintf("its clock is %s %s that of the server; synchronise both with NTP",
		job.Duration(n.Skew.Abs().Round(time.Second)), where)
}

// Time returns when something happened by the server's clock that happened at this time by the clock of a node, which
// may be wrong: not before a time and not after now.
func (n *Node) Time(at, from, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}

	at = at.Add(-n.Skew)

	switch {
	case at.After(now):
		return now
	case at.Before(from):
		return from
	}

	return at
}
