// Package follow follows live feeds of the server: output, job states and events.
//
// A feed that is interrupted, because a connection was lost or the server
// restarted, is resumed where it was, so that nothing is left out
// and nothing is reported twice. The package passes what it reads to the functions
// it is given; it decides nothing and never changes a job. cli calls it for
// logs, submit, run, wait and events.
package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// maxAttempts bounds how often in a row a broken feed is taken up again: about
// a quarter of an hour. Attempts count, not time, so that a laptop that slept goes on.
const maxAttempts = 64

// Retries reports whether a feed that broke off with this error may be taken up again.
func Retries(err error) bool {
	kind := fault.KindOf(err)
	return err == nil || kind == fault.Unavailable || kind == fault.Internal || kind == fault.OverLimit
}

// Follower follows feeds.
type Follower struct {
	// Note tells the person that a connection was lost or is back.
	Note func(format string, args ...any)
}

// Persist keeps a feed going: it calls open until open reports that the feed
// is over, and again after a pause when it broke off. open calls alive with
// each item it gets.
func (f Follower) Persist(ctx context.Context, open func(alive func()) (over bool, err error)) error {
	failures, noted := 0, false
	alive := func() {
		if noted {
			f.Note("Connection restored.")
		}

		failures, noted = 0, false
	}

	for {
		over, err := open(alive)
		if over || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}

		failures++
		if !Retries(err) || failures > maxAttempts {
			return err
		}

		if err != nil && !noted && failures > 1 {
			f.Note("Server not responding, retrying. Jobs keep running.")
			noted = true
		}

		if !Backoff(ctx, failures) {
			return ctx.Err()
		}
	}
}

// Job follows a job's output and state until it has ended, over lost
// connections and restarts of the server, and returns the job as it ended.
func (f Follower) Job(
	ctx context.Context,
	client *api.Client,
	j id.Job,
	filter api.LogFilter,
	line func(api.LogLine) error,
	state func(api.Job),
) (api.Job, error) {
	var last api.Job
	err := f.Persist(ctx, func(alive func()) (bool, error) {
		over := false
		err := client.FollowLogs(ctx, j, filter, func(item api.LogItem) error {
			alive()

			if item.Line != nil {
				if err := line(*item.Line); err != nil {
					over = true
					return fmt.Errorf("write output: %w", err)
				}
			}

			if item.Cursor != "" {
				filter.Cursor, filter.Tail = item.Cursor, 0 // every line has one, so none is written twice
			}

			if item.Job != nil {
				last, over = *item.Job, item.End
				if over || !last.State.Final() { // the end is said after the last line, which may come later
					state(last)
				}
			}

			return nil
		})

		return over, err
	})

	return last, err
}

// UntilEnded asks for a job now and then until it has ended, or is paused until somebody decides. Until then it calls
// state with the job each time.
func (f Follower) UntilEnded(
	ctx context.Context,
	client *api.Client,
	j id.Job,
	every time.Duration,
	state func(api.Job),
) (api.Job, error) {
	var last api.Job
	err := f.Persist(ctx, func(alive func()) (bool, error) {
		for {
			detail, err := client.Job(ctx, j)
			if err != nil {
				return false, err
			}

			alive()

			last = detail.Job
			if last.State.Final() || last.State == job.Paused && asked(detail.Questions) {
				return true, nil
			}

			state(last)

			if !clock.Sleep(ctx, every) {
				return false, ctx.Err()
			}
		}
	})

	return last, err
}

// asked reports whether a question about a job waits for an answer.
func asked(questions []api.Question) bool {
	return slices.ContainsFunc(questions, func(q api.Question) bool { return !q.Notice })
}

// Backoff waits before attempt n (from 1) at what failed, longer each time, and
// reports whether it may be tried.
func Backoff(ctx context.Context, n int) bool {
	const first, longest = 250 * time.Millisecond, 15 * time.Second
	d := first
	for ; n > 1 && d < longest; n-- {
		d *= 2
	}

	return clock.Sleep(ctx, min(d, longest))
}
