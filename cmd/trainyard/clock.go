package main

import (
	"context"
	"log/slog"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/yardmaster"
)

// continueTime lets the yard's time go on where it was when the last server stopped, if the clock of this
// machine is behind that: it was set back, or the last server ran on another machine.
func continueTime(clk *clock.Steady, state *yardmaster.State, log *slog.Logger) {
	if behind := clk.Advance(state.Newest()); behind > 0 {
		log.Warn("the clock of this machine is behind the newest time in the store; time goes on from there",
			"behind", behind)
	}
}

const (
	// clockCheck is how often the machine's clock is compared with the steady one.
	clockCheck = 10 * time.Second
	// clockJump is the change of the difference that is worth a line in the log.
	clockJump = time.Second
)

// watchClock writes into the log when the clock of the machine is set. Nothing else notices: times
// shown to people and in the log then differ until the steady clock has caught up.
func watchClock(ctx context.Context, clk *clock.Steady, log *slog.Logger) {
	known := clk.Behind()
	clock.Every(ctx, clk, clockCheck, func(time.Time) {
		behind := clk.Behind()
		if jump := behind - known; jump.Abs() >= clockJump {
			log.WarnContext(ctx, "the clock of this machine was set; durations are not affected, and times follow slowly",
				"by", jump, "difference", behind)
		}

		known = behind
	})
}
