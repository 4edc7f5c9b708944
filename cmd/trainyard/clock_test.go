package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/ledger"
	"trainyard/internal/yardmaster"
)

func TestTimeGoesOnWhereTheLastServerStopped(t *testing.T) {
	t.Parallel()
	wall := time.Date(2026, 11, 16, 3, 0, 0, 0, time.UTC)

	for name, test := range map[string]struct {
		state yardmaster.State
		want  time.Time
	}{
		"new yard":         {yardmaster.State{}, wall},
		"earlier":          {yardmaster.State{LastEventAt: wall.Add(-time.Hour)}, wall},
		"clock set back":   {yardmaster.State{LastEventAt: wall.Add(time.Hour)}, wall.Add(time.Hour)},
		"costs are posted": {yardmaster.State{Ledger: posted(wall, wall.Add(2*time.Hour))}, wall.Add(2 * time.Hour)},
	} {
		clk := clock.SteadyOf(clock.Source{
			Wall:    func() time.Time { return wall },
			Running: func() time.Duration { return 0 },
		})

		var out bytes.Buffer
		continueTime(clk, &test.state, slog.New(slog.NewTextHandler(&out, nil)))

		if got := clk.Now(); !got.Equal(test.want) {
			t.Errorf("%s: it is %s, want %s", name, got, test.want)
		}
		if warned := strings.Contains(out.String(), "behind"); warned != test.want.After(wall) {
			t.Errorf("%s: the log says %q", name, out.String())
		}
	}
}

// posted is a ledger in which the costs of nodes are posted until then.
func posted(until ...time.Time) ledger.Stored {
	var s ledger.Stored
	for _, t := range until {
		s.Meters = append(s.Meters, ledger.State{Since: t})
	}

	return s
}
