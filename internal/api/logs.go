package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"trainyard/internal/id"
	"trainyard/internal/logs"
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
	// Skipped marks a note of the yard instead of lines.
	Skipped int64 `json:"skipped,omitempty" doc:"number of lines left out here, because the output was read more slowly than the job printed it; the text says so"`
	// Number and Length come with lines that were asked for by their numbers.
	Number int64 `json:"number,omitempty" doc:"number of the line in the output of its rank, from 1; a line longer than 64 KiB counts as several"`
	Length int64 `json:"length,omitempty" doc:"bytes of the line, if the text was cut"`
	// Matches come with lines that were looked for by an expression.
	Matches []int `json:"matches,omitempty" doc:"where the regular expression matches the text: first byte and byte after the last one of each match, of at most 50; also beyond where the text was cut"`
}

// NewLogLine returns a line that a rank printed.
func NewLogLine(run id.Run, rank int, l *logs.Line) LogLine {
	out := LogLine{At: l.At.UTC(), Run: run, Rank: rank, Stream: l.Stream.String(), Partial: l.Partial}
	out.SetBytes(l.Text)

	return out
}

// Bytes returns the text as it was printed.
func (l *LogLine) Bytes() []byte {
	if l.Raw != nil {
		return l.Raw
	}

	return []byte(l.Text)
}

// SetBytes replaces the text.
func (l *LogLine) SetBytes(text []byte) {
	l.Text, l.Raw = string(text), nil
	if !utf8.Valid(text) {
		l.Text, l.Raw = strings.ToValidUTF8(l.Text, "\uFFFD"), text
	}
}

// CodeTooManySearches is the code of a search of output that would be one too many at the same time.
const CodeTooManySearches = "too_many_searches"

// LogPage is one page of a run's output.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  string    `json:"next,omitempty" doc:"cursor to continue from, also after a page without lines; absent after the last line of a job that has ended"`
	Ended bool      `json:"ended" doc:"whether the job has ended and this is its last page"`
}

// LogLines are lines of the output of a rank, with their numbers.
type LogLines struct {
	Lines   []LogLine `json:"lines"`
	Next    int64     `json:"next,omitempty" doc:"value of from for the next page in this direction, also after a page without lines; absent at the end"`
	Total   int64     `json:"total" doc:"number of lines counted"`
	Size    int64     `json:"size" doc:"bytes of output that are there"`
	Counted int64     `json:"counted" doc:"bytes of output whose lines are counted; if less than size, ask again to count on"`
	Ended   bool      `json:"ended" doc:"whether no more output will come"`
}

// LogRange says which lines of a rank's output are wanted, by their numbers.
type LogRange struct {
	From     int64 // 0 for the first, -1 for the last
	Backward bool  // the last ones before From instead
	Limit    int
	Grep     string
	Errors   bool
}

func (r LogRange) query() url.Values {
	q := url.Values{}

	if r.From != 0 {
		q.Set("from", strconv.FormatInt(r.From, 10))
	}

	if r.Backward {
		q.Set("backward", "true")
	}

	if r.Limit > 0 {
		q.Set("limit", strconv.Itoa(r.Limit))
	}

	set(q, "grep", r.Grep)

	if r.Errors {
		q.Set("errors", "true")
	}

	return q
}

// LogLines returns lines of the output of a rank by their numbers.
func (c *Client) LogLines(ctx context.Context, run id.Run, rank int, r LogRange) (LogLines, error) {
	j, _, _ := run.Split()
	return get[LogLines](ctx, c, at("jobs", string(j), "logs", string(run), strconv.Itoa(rank), "lines"), r.query())
}

// Logs returns one page of a job's output.
func (c *Client) Logs(ctx context.Context, j id.Job, f LogFilter) (LogPage, error) {
	return get[LogPage](ctx, c, at("jobs", string(j), "logs"), f.query())
}

// OpenLog opens the output of a rank from an offset on, as far as it is there now: frames, as package logs defines
// them. It returns how many bytes follow. The caller closes it.
func (c *Client) OpenLog(ctx context.Context, run id.Run, rank int, offset int64) (io.ReadCloser, int64, error) {
	j, _, _ := run.Split()
	path := at("jobs", string(j), "logs", string(run), strconv.Itoa(rank))

	resp, err := c.send(ctx, c.bulk, http.MethodGet, path, url.Values{"offset": {strconv.FormatInt(offset, 10)}}, nil)
	if err != nil {
		return nil, 0, err
	}

	return resp.Body, resp.ContentLength, nil
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
