package nodes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster/nodes"
)

func TestClockOfANode(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.joinAs("a", fleet.Inventory{CPUs: 1000})
	events := func() (kinds []string) {
		for _, kind := range y.told() {
			if strings.HasPrefix(kind, "node.clock") {
				kinds = append(kinds, kind)
			}
		}

		return kinds
	}

	for _, step := range []struct {
		ahead, within int64
		skew          time.Duration
		events        string
	}{
		{1900, 0, 0, "[]"},
		{4000, 3000, 0, "[]"}, // it may be right, for all that is known
		{2500, 100, 2400 * time.Millisecond, "[node.clock_skew]"},
		{3000, 0, 3 * time.Second, "[]"},
		{1500, 0, 1500 * time.Millisecond, "[]"}, // at the limit it does not come and go
		{900, 0, 0, "[node.clock_right]"},
		{1500, 0, 0, "[]"},
		{-7000, 1000, -6 * time.Second, "[node.clock_skew]"},
	} {
		y.SetClock(y.now, n, &fleet.ClockOffset{Ahead: step.ahead, Within: step.within})
		y.SetClock(y.now, n, nil)

		if got := fmt.Sprint(events()); n.Skew != step.skew || got != step.events {
			t.Errorf("ahead by %d±%d ms: %s with the events %s, want %s and %s", step.ahead, step.within, n.Skew, got,
				step.skew, step.events)
		}
	}

	if list := y.Warnings(n); len(list) != 1 || list[0].Cause != nodes.CauseSkew ||
		list[0].Reason != "its clock is 6s behind that of the server; synchronise both with NTP" {
		t.Errorf("the warnings are %+v", list)
	}

	if !y.open(n) {
		t.Error("a node with a wrong clock takes no jobs")
	}

	from, now := y.now.Add(-time.Minute), y.now
	for at, want := range map[time.Time]time.Time{
		{}: {}, from: from.Add(6 * time.Second), now: now, from.Add(-time.Hour): from, now.Add(time.Hour): now,
	} {
		if got := n.Time(at, from, now); !got.Equal(want) {
			t.Errorf("%s is %s, want %s", at, got, want)
		}
	}
}
