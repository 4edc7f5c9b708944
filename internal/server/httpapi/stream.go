package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/clock"
)

// Stream writes a live feed as server-sent events. Each item's id is the cursor to
// go on after it.
type Stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// NewStream begins the answer.
func NewStream(w http.ResponseWriter) *Stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)

	s := &Stream{w, http.NewResponseController(w)}
	s.flush()

	return s
}

// Send writes one item, and reports whether the caller is still there.
func (s *Stream) Send(cursor, kind string, v any) bool {
	data, err := json.Marshal(v)
	if err != nil {
		return false
	}

	var head string
	if cursor != "" {
		head += "id: " + cursor + "\n"
	}

	if kind != "" {
		head += "event: " + kind + "\n"
	}

	if _, err := s.w.Write([]byte(head + "data: " + string(data) + "\n\n")); err != nil {
		return false
	}

	return s.flush()
}

// comment writes a line that means nothing, so that proxies keep the connection open.
func (s *Stream) comment() bool {
	if _, err := s.w.Write([]byte(": still here\n\n")); err != nil {
		return false
	}

	return s.flush()
}

func (s *Stream) flush() bool { return s.c.Flush() == nil }

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

// WaitAny waits until one of the channels is closed. It returns false when the caller is gone.
func WaitAny(ctx context.Context, out *Stream, channels []<-chan struct{}) bool {
	woken := make(chan struct{}, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()

	for _, c := range channels {
		go func() {
			select {
			case <-c:
				select {
				case woken <- struct{}{}:
				default:
				}
			case <-waiting.Done():
			}
		}()
	}

	for {
		switch clock.Wait(ctx, keepAlive, woken) {
		case clock.Woken:
			return true
		case clock.Ended:
			return false
		case clock.Passed:
			if !out.comment() {
				return false
			}
		}
	}
}
