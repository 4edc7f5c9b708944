package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/logs"
	"trainyard/test/bench/yard"
)

// Feed is what followers of one feed received.
type Feed struct {
	Delays *Latencies // from when something happened until a follower had it, of a sample

	clock clock.Clock
	open  atomic.Int64 // followers whose feed has begun
	items atomic.Int64 // received by all followers
}

// NewFeed returns a feed that nobody follows yet.
func NewFeed(clk clock.Clock) *Feed { return &Feed{Delays: NewLatencies(clk), clock: clk} }

// Open returns how many followers there are.
func (f *Feed) Open() int64 { return f.open.Load() }

// Items returns how many items all followers received together.
func (f *Feed) Items() int64 { return f.items.Load() }

// A line of output says when it was printed, in nanoseconds, between these two. It is found without decoding the line:
// the followers share the machine with the server.
const (
	stampBegins = "t="
	stampDigits = 19
	stampEnds   = ';'
)

// sampled is of how many lines that a follower receives one is taken into the delays.
const sampled = 20

// Line is a line of output that was printed at a time.
func Line(n int, at time.Time) []byte {
	return fmt.Appendf(nil, "step %d loss 0.4142 lr 0.001 %s%d%c\n", n, stampBegins, at.UnixNano(), stampEnds)
}

// FollowLog follows the output of a job from its beginning until ctx ends.
func (f *Feed) FollowLog(ctx context.Context, y *yard.Yard, j id.Job) error {
	return f.follow(ctx, y, "/api/v1/jobs/"+string(j)+"/logs/follow", f.readLines)
}

// readLines reads lines as Line makes them.
func (f *Feed) readLines(body io.Reader, began time.Time) error {
	var (
		buf  = make([]byte, 64<<10)
		kept int // bytes of a line that has not come whole
		seen int64
	)

	for {
		n, err := body.Read(buf[kept:])
		now := f.clock.Now()
		rest := buf[:kept+n]

		for at, after, found := nextStamp(rest); found; at, after, found = nextStamp(rest) {
			rest = after

			if at.Before(began) {
				continue
			}

			f.items.Add(1)

			if seen++; seen%sampled == 0 {
				f.Delays.Add(now.Sub(at))
			}
		}

		if err != nil {
			return err
		}

		// What cannot hold the beginning of a stamp is not looked at again.
		rest = rest[max(0, len(rest)-len(stampBegins)-stampDigits):]
		kept = copy(buf, rest)
	}
}

// nextStamp finds the next time in a piece of output, and returns what follows it.
func nextStamp(text []byte) (at time.Time, rest []byte, found bool) {
	for {
		i := bytes.Index(text, []byte(stampBegins))
		if i < 0 {
			return time.Time{}, text, false
		}

		digits := text[i+len(stampBegins):]
		if len(digits) <= stampDigits { // the rest has not come yet
			return time.Time{}, text, false
		}

		nanos, err := strconv.ParseInt(string(digits[:stampDigits]), 10, 64)
		if err == nil && digits[stampDigits] == stampEnds {
			return time.Unix(0, nanos), digits[stampDigits+1:], true
		}

		text = digits
	}
}

// FollowEvents follows the events of one kind until ctx ends.
func (f *Feed) FollowEvents(ctx context.Context, y *yard.Yard, kind string) error {
	return f.follow(ctx, y, "/api/v1/events/follow?tail=1&kind="+kind, func(body io.Reader, began time.Time) error {
		err := api.ReadFeed(body, func(item api.FeedItem) error {
			var event struct{ At time.Time }
			if err := json.Unmarshal(item.Data, &event); err != nil || item.Kind != "" || event.At.Before(began) {
				return err
			}

			f.items.Add(1)
			f.Delays.Add(f.clock.Now().Sub(event.At))

			return nil
		})
		if err == nil {
			err = io.EOF
		}

		return err
	})
}

// follow opens a feed and lets read read what happened since. A feed that ends before ctx does is a failure.
func (f *Feed) follow(
	ctx context.Context, y *yard.Yard, path string, read func(body io.Reader, began time.Time) error,
) error {
	reader, err := y.Reader()
	if err != nil {
		return err
	}

	defer reader.Close()

	body, err := reader.Open(ctx, path)
	if err != nil {
		return stopped(ctx, err)
	}

	defer func() { _ = body.Close() }()

	f.open.Add(1)
	err = read(body, f.clock.Now())
	f.open.Add(-1)

	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the server ended %s", path)
	}

	return stopped(ctx, err)
}

// stopped returns nil for what went wrong because ctx ended.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}

	return nil
}

// uploadEvery is how often an agent looks for output and sends it.
const uploadEvery = 50 * time.Millisecond

// Print lets a run print so many lines in a second until ctx ends, and sends them as an agent does. It returns how
// many there were.
func Print(ctx context.Context, clk clock.Clock, w *Writer, perSecond int) (lines int, err error) {
	each := time.Second / time.Duration(perSecond)
	printed := clk.Now() // up to when

	err = Pace(ctx, clk, float64(time.Second/uploadEvery), func(ctx context.Context) error {
		var frames bytes.Buffer
		out := logs.NewWriter(&frames, 0)

		for now := clk.Now(); now.Sub(printed) >= each; lines++ {
			printed = printed.Add(each)
			if err := out.Write(logs.Stdout, printed, Line(lines, printed)); err != nil {
				return err
			}
		}

		if frames.Len() == 0 {
			return nil
		}

		return w.Write(ctx, frames.Bytes())
	})

	return lines, err
}
