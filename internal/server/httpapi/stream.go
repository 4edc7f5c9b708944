package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/clock"
)

// Stream writes a live feed as server-sent events. Each item's id is the cursor to
// go on after it. Items are collected until Flush, so that many that come together cost one write.
type Stream struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	pending []byte // to be written before anything else
}

// pieceSize is how much of a feed is written at a time: one whose reader is slow, but not slower than Pace allows,
// takes a piece in time.
const pieceSize = 16 << 10

// NewStream begins the answer.
func NewStream(w http.ResponseWriter) *Stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)

	s := &Stream{w: w, c: http.NewResponseController(w)}
	s.Flush()

	return s
}

// AppendItem adds one item of a live feed as it is sent.
func AppendItem(out []byte, cursor, kind string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return out, fmt.Errorf("encode an item of a live feed: %w", err)
	}

	if cursor != "" {
		out = append(append(append(out, "id: "...), cursor...), '\n')
	}

	if kind != "" {
		out = append(append(append(out, "event: "...), kind...), '\n')
	}

	return append(append(append(out, "data: "...), data...), "\n\n"...), nil
}

// Send writes one item at once, and reports whether the caller is still there.
func (s *Stream) Send(cursor, kind string, v any) bool { return s.Add(cursor, kind, v) && s.Flush() }

// Add writes one item, at the latest with the next Flush, and reports whether the caller is still there.
func (s *Stream) Add(cursor, kind string, v any) bool {
	pending, err := AppendItem(s.pending, cursor, kind, v)
	if err != nil {
		return false
	}

	s.pending = pending

	return len(s.pending) < pieceSize || s.writePending()
}

// AddItems writes items that AppendItem has made. They may be those of other streams as well.
func (s *Stream) AddItems(data []byte) bool { return s.writePending() && s.write(data) }

// Flush sends what was added, and reports whether the caller is still there.
func (s *Stream) Flush() bool {
	ok := s.writePending() && s.c.Flush() == nil
	s.pending = nil // a quiet stream keeps no memory

	return ok
}

func (s *Stream) writePending() bool {
	ok := s.write(s.pending)
	s.pending = s.pending[:0]

	return ok
}

func (s *Stream) write(data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), pieceSize)
		if _, err := s.w.Write(data[:n]); err != nil {
			return false
		}

		data = data[n:]
	}

	return true
}

// comment writes a line that means nothing, so that proxies keep the connection open.
func (s *Stream) comment() bool { return s.AddItems([]byte(": still here\n\n")) && s.Flush() }

// Streaming marks an operation as a live feed in the description.
func Streaming(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Server-sent events. The id of an item is the cursor to resume after it.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}},
	}}

	return op
}

// keepAlive is how often something is sent on a quiet stream, so that proxies leave it open.
const keepAlive = 10 * time.Second

// WaitAny waits until one of the channels is closed. It returns false when the caller is gone. Without a stream nobody
// has to be kept connected meanwhile.
func WaitAny(ctx context.Context, out *Stream, channels []<-chan struct{}) bool {
	for {
		switch clock.Wait(ctx, keepAlive, channels...) {
		case clock.Woken:
			return true
		case clock.Ended:
			return false
		case clock.Passed:
			if out != nil && !out.comment() {
				return false
			}
		}
	}
}
