package agent

import (
	"log/slog"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cloud"
)

func TestAnAgentMeasuresItsClockByTheAnswersOfTheServer(t *testing.T) {
	t.Parallel()

	server := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

	for _, ahead := range []time.Duration{0, time.Hour, -time.Minute} {
		sent := cloud.Moment{Boot: "b", Since: time.Hour, Wall: server.Add(ahead)}
		a := &Agent{log: slog.New(slog.DiscardHandler), problems: map[string]string{}}
		a.cfg.Moment = func() (cloud.Moment, error) {
			// The clock was set meanwhile, which does not matter.
			return cloud.Moment{Boot: "b", Since: time.Hour + 40*time.Millisecond, Wall: server.Add(9 * time.Hour)}, nil
		}

		if err := a.measureClock(sent, &api.ReportReply{Time: server.Add(20 * time.Millisecond)}); err != nil {
			t.Fatal(err)
		}

		if o := a.clockOffset; o == nil || o.Ahead != ahead.Milliseconds() || o.Within < 20 || o.Within > 22 {
			t.Errorf("ahead by %s: %+v", ahead, o)
		}

		if said := a.problems["comparison of the clocks"] != ""; said != (ahead != 0) {
			t.Errorf("ahead by %s: it is said %t", ahead, said)
		}

		a.clockOffset = nil
		if err := a.measureClock(sent, &api.ReportReply{}); err != nil || a.clockOffset != nil {
			t.Errorf("a server of an earlier version, which says no time: %+v, %v", a.clockOffset, err)
		}
	}
}
