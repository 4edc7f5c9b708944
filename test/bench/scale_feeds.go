package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/clock"
	"trainyard/test/bench/scale"
)

// feedsSection measures live feeds: many followers of one chatty log, and many of the events of the yard.
type feedsSection struct{ settings }

func (feedsSection) Name() string { return "feeds" }

const (
	lineRate  = 1000 // lines in a second that the followed job prints
	eventRate = 50   // submissions in a second, each of which is an event
)

// followers is how many follow at the same time.
func (y *largeYard) followers() int {
	if y.quick {
		return 5
	}

	return 500
}

// Run measures logs first, then events.
func (s feedsSection) Run(ctx context.Context) ([]figure, error) {
	y, err := s.at(ctx, defaultPolicy)
	if err != nil {
		return nil, err
	}

	out, err := y.logFeed(ctx)
	if err != nil {
		return out, fmt.Errorf("follow a log: %w", err)
	}

	events, err := y.eventFeed(ctx)
	if err != nil {
		err = fmt.Errorf("follow events: %w", err)
	}

	return append(out, events...), err
}

// logFeed measures the followers of a log.
func (y *largeYard) logFeed(ctx context.Context) ([]figure, error) {
	writer, err := y.fleet.Writer()
	if err != nil {
		return nil, err
	}

	job, _, _ := writer.Run.Split()
	lines := 0

	got, err := y.followed(ctx,
		func(ctx context.Context, f *scale.Feed) error { return f.FollowLog(ctx, y.Yard, job) },
		func(ctx context.Context) (err error) {
			lines, err = scale.Print(ctx, y.clock, writer, lineRate)
			return err
		})
	if err != nil {
		return nil, err
	}

	return got.figures("follow", y.followers(), lines,
		fmt.Sprintf("followers of a log, %d lines a second; from when a line was printed", lineRate)), nil
}

// eventFeed measures the followers of events.
func (y *largeYard) eventFeed(ctx context.Context) ([]figure, error) {
	submits := scale.NewLatencies(y.clock)

	submit, done, err := y.submitter(submits)
	if err != nil {
		return nil, err
	}

	defer done()

	got, err := y.followed(ctx,
		func(ctx context.Context, f *scale.Feed) error { return f.FollowEvents(ctx, y.Yard, "job.submitted") },
		func(ctx context.Context) error { return scale.Pace(ctx, y.clock, eventRate, submit) })
	if err != nil {
		return nil, err
	}

	return got.figures("events", y.followers(), len(submits.All()),
		fmt.Sprintf("followers of the submissions, %d a second; from the time of the event", eventRate)), nil
}

// fed is what followers received.
type fed struct {
	usage

	delays []time.Duration
	items  int64
}

// followed lets many follow a feed, and then something happen on it for a while.
func (y *largeYard) followed(
	ctx context.Context, follow func(context.Context, *scale.Feed) error, happen func(context.Context) error,
) (fed, error) {
	feed := scale.NewFeed(y.clock)

	tasks := make([]func(context.Context) error, y.followers())
	for i := range tasks {
		tasks[i] = func(ctx context.Context) error { return follow(ctx, feed) }
	}

	following, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)

	go func() { ended <- gather(following, tasks) }()

	used, err := y.whileFollowed(ctx, feed, ended, happen)

	stop()

	if err == nil {
		err = <-ended
	}

	return fed{usage: used, delays: feed.Delays.All(), items: feed.Items()}, err
}

// whileFollowed waits until all follow, lets things happen, and waits until the followers have what happened, or have
// received nothing for a moment.
func (y *largeYard) whileFollowed(
	ctx context.Context, feed *scale.Feed, ended <-chan error, happen func(context.Context) error,
) (usage, error) {
	for feed.Open() < int64(y.followers()) {
		select {
		case err := <-ended:
			return usage{}, errors.Join(errors.New("a follower stopped before it began"), err)
		default:
		}

		if !clock.Sleep(ctx, 20*time.Millisecond) {
			return usage{}, context.Cause(ctx)
		}
	}

	used, err := y.watch(ctx, func(ctx context.Context) error { return together(ctx, y.span(20*time.Second), happen) })
	if err != nil {
		return used, err
	}

	for last := int64(-1); last != feed.Items(); {
		last = feed.Items()
		clock.Sleep(ctx, y.span(5*time.Second))
	}

	return used, context.Cause(ctx)
}

// figures are the delays of what so many followers received of so many items.
func (f *fed) figures(prefix string, followers, happened int, note string) []figure {
	all := float64(max(1, happened)) * float64(followers)

	return []figure{
		{
			prefix + "_500_ms", milliseconds(percentile(f.delays, 50)), "ms",
			fmt.Sprintf("%d %s until a follower has it; %d of them", followers, note, happened),
		},
		{prefix + "_500_p99_ms", milliseconds(percentile(f.delays, 99)), "ms", ""},
		{prefix + "_500_received_pct", 100 * float64(f.items) / all, "%", "of what all followers should receive"},
		{prefix + "_500_cores", f.cores(), "cores", "of the server while it happened"},
	}
}
