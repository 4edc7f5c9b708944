package api

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"trainyard/internal/id"
)

// LogLine is one line that a run printed.
type LogLine struct {
	At     time.Time `json:"at"`
	Run    id.Run    `json:"run"`
	Rank   int       `json:"rank"`
	Stream string    `json:"stream" enum:"stdout,stderr,yard" doc:"stream of the line; yard marks messages of Trainyard itself"`
	Text   string    `json:"text" doc:"line without its terminator; lines that are not UTF-8 are in raw"`
	Raw    []byte    `json:"raw,omitempty" doc:"the line in base64, if it is not UTF-8"`
	// Partial marks a piece of a very long line; the next line of the same run,
	// rank and stream continues it.
	Partial bool `json:"partial,omitempty"`
}

// CodeTooManySearches is the code of a search of output that would be one too many at the same time.
const CodeTooManySearches = "too_many_searches"

// LogPage is one page of a run's output.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  string    `json:"next,omitempty" doc:"cursor to continue from, also after a page without lines; absent after the last line of a job that has ended"`
	Ended bool      `json:"ended" doc:"whether the job has ended and this is its last page"`
}

// Logs returns one page of a job's output.
func (c *Client) Logs(ctx context.Context, j id.Job, f LogFilter) (LogPage, error) {
	return get[LogPage](ctx, c, at("jobs", string(j), "logs"), f.query())
}

// feedFault returns the failure that such an item tells of.
func feedFault(item FeedItem) error {
	var p Problem
	if err := json.Unmarshal(item.Data, &p); err != nil {
		return fmt.Errorf("read why the feed ended: %w", err)
	}

	return p.fault()
}

// LogItem is one item of a job's live output: a line, or the job as it is now.
type LogItem struct {
	Cursor string   // to go on after this item; "" where the item moves no cursor
	Line   *LogLine // nil for a change of state
	Job    *Job     // nil for a line
	End    bool     // the job has ended and all lines were sent
}

// FollowLogs calls fn for each line and each change of state of a job from the
// filter's cursor on, until fn fails, the feed breaks off or ctx ends. A feed
// that ends without an item that says End broke off: call again with the last cursor.
func (c *Client) FollowLogs(ctx context.Context, j id.Job, f LogFilter, fn func(LogItem) error) error {
	path := at("jobs", string(j), "logs", "follow")
	return c.follow(ctx, path, f.query(), func(item FeedItem) error {
		out := LogItem{Cursor: item.ID}
		var into any

		switch item.Kind {
		case "":
			out.Line = new(LogLine)
			into = out.Line
		case "state", "end":
			out.Job, out.End = new(Job), item.Kind == "end"
			into = out.Job
		case feedError:
			return feedFault(item)
		default:
			return nil // of a newer server
		}

		if err := json.Unmarshal(item.Data, into); err != nil {
			return fmt.Errorf("read output of %s: %w", j, err)
		}

		return fn(out)
	})
}

// feedError is the kind of the item by which a server says why it ends a feed.
const feedError = "error"
