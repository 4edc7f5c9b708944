// Package follow follows live feeds of the server: output, job states and events.
//
// A feed that is interrupted, because a connection was lost or the server
// restarted, is resumed where it was, so that nothing is left out
// and nothing is reported twice. The package passes what it reads to the functions
// it is given; it decides nothing and never changes a job. cli calls it for
// logs, submit, run, wait and events.
package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// maxAttempts bounds how often in a row a broken feed is taken up again: about
// a quarter of an hour. Attempts count, not time, so that a laptop that slept goes on.
const maxAttempts = 64

// Printer writes lines of output. Several jobs may share it.
type Printer struct {
	Out    io.Writer
	Stamps bool // with the time of each line
	JSON   bool // as objects, one a line
	Ranks  bool // some job has several ranks: say whose line it is
	// Terminal makes control characters of the output visible, because a person looks at it.
	Terminal bool

	mu   sync.Mutex
	open string // where a line comes from that has not ended yet
}

// Line writes one line; label says which job it is from where there are several.
func (p *Printer) Line(label string, l api.LogLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.JSON {
		return p.object(l)
	}

	source := fmt.Sprintf("%s %s %d %s", label, l.Run, l.Rank, l.Stream)

	var head, end string
	if p.open != source {
		if p.open != "" {
			head = "\n"
		}

		head += p.prefix(label, l)
	}

	p.open = ""
	if l.Partial {
		p.open = source
	} else {
		end = "\n"
	}

	text := []byte(l.Text)
	if l.Raw != nil {
		text = l.Raw
	}

	if p.Terminal {
		text = []byte(table.Visible(string(text)))
	}

	_, err := p.Out.Write(append(append([]byte(head), text...), end...))

	return err
}

// object writes a line as JSON. That escapes control characters but those of C1, which are escaped here.
func (p *Printer) object(l api.LogLine) error {
	var text bytes.Buffer

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return err
	}

	if !p.Terminal {
		_, err := p.Out.Write(text.Bytes())
		return err
	}

	var escaped strings.Builder

	for _, c := range text.String() {
		if c >= 0x7f && c < 0xa0 {
			_, _ = fmt.Fprintf(&escaped, `\u%04x`, c)
		} else {
			escaped.WriteRune(c)
		}
	}

	_, err := io.WriteString(p.Out, escaped.String())

	return err
}

func (p *Printer) prefix(label string, l api.LogLine) string {
	var out strings.Builder
	if p.Stamps {
		out.WriteString(l.At.UTC().Format("2006-01-02T15:04:05.000Z") + " ")
	}

	if label != "" {
		out.WriteString("[" + label + "] ")
	}

	p.Ranks = p.Ranks || l.Rank > 0
	if p.Ranks {
		_, _ = fmt.Fprintf(&out, "[rank %d] ", l.Rank)
	}

	if l.Stream == "yard" {
		out.WriteString("[yard] ")
	}

	return out.String()
}

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
				last = *item.Job
				state(last)
				over = item.End
			}

			return nil
		})

		return over, err
	})

	return last, err
}

// UntilEnded asks for a job now and then until it has ended.
func (f Follower) UntilEnded(ctx context.Context, client *api.Client, j id.Job, every time.Duration) (api.Job, error) {
	var last api.Job
	err := f.Persist(ctx, func(alive func()) (bool, error) {
		for {
			detail, err := client.Job(ctx, j)
			if err != nil {
				return false, err
			}

			alive()

			last = detail.Job
			if last.State.Final() {
				return true, nil
			}
			if !clock.Sleep(ctx, every) {
				return false, ctx.Err()
			}
		}
	})

	return last, err
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
