// Package stream writes live feeds as server-sent events.
//
// server's handlers send items through it; each item's id is the cursor to go
// on after it. It knows nothing of what the items are.
package stream

import (
	"encoding/json"
	"net/http"
)

// Stream writes server-sent events.
type Stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// New begins the answer.
func New(w http.ResponseWriter) *Stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := &Stream{w, http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	s.flush()
	return s
}

// Send writes one item, and reports whether the caller is still there.
func (e *Stream) Send(cursor, kind string, v any) bool {
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
	if _, err := e.w.Write([]byte(head + "data: " + string(data) + "\n\n")); err != nil {
		return false
	}
	return e.flush()
}

// Comment writes a line that means nothing.
func (e *Stream) Comment() bool {
	if _, err := e.w.Write([]byte(": still here\n\n")); err != nil {
		return false
	}
	return e.flush()
}

func (e *Stream) flush() bool { return e.c.Flush() == nil }
