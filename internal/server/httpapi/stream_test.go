package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// counted is a response that counts what it costs.
type counted struct {
	*httptest.ResponseRecorder

	writes, flushes, largest int
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes++
	c.largest = max(c.largest, len(p))

	return c.ResponseRecorder.Write(p)
}

func (c *counted) FlushError() error {
	c.flushes++
	return nil
}

func (c *counted) reset() { c.writes, c.flushes, c.largest = 0, 0, 0 }

func TestItemsThatComeTogetherAreFlushedOnce(t *testing.T) {
	t.Parallel()
	w := &counted{ResponseRecorder: httptest.NewRecorder()}
	out := NewStream(w)
	w.reset()

	for range 100 {
		if !out.Add("7", "state", "text") {
			t.Fatal("nobody listens")
		}
	}

	if w.writes+w.flushes != 0 {
		t.Errorf("%d writes and %d flushes before all was added", w.writes, w.flushes)
	}

	if !out.AddItems([]byte("data: 1\n\n")) || !out.Flush() || w.writes != 2 || w.flushes != 1 {
		t.Errorf("%d writes and %d flushes", w.writes, w.flushes)
	}

	if want := strings.Repeat("id: 7\nevent: state\ndata: \"text\"\n\n", 100) + "data: 1\n\n"; w.Body.String() != want {
		t.Errorf("got %q", w.Body.String())
	}
}

// One who is slow, but takes what Pace asks for, must be able to take each piece in time. And what waits is little.
func TestMuchIsWrittenInPieces(t *testing.T) {
	t.Parallel()
	w := &counted{ResponseRecorder: httptest.NewRecorder()}
	out := NewStream(w)
	w.reset()

	for range 1000 {
		out.Add("", "", strings.Repeat("x", 1000))

		if len(out.pending) > pieceSize+2000 {
			t.Fatalf("%d bytes wait", len(out.pending))
		}
	}

	out.AddItems(make([]byte, 1<<20))
	out.Flush()

	if w.largest > pieceSize || w.writes < (2<<20)/pieceSize || w.Body.Len() < 2_000_000 {
		t.Errorf("%d bytes in %d writes of up to %d", w.Body.Len(), w.writes, w.largest)
	}
}

func TestWaitingForOneChannelOrMany(t *testing.T) {
	t.Parallel()
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)

	gone, cancel := context.WithCancel(t.Context())
	cancel()

	for _, channels := range [][]<-chan struct{}{{closed}, {open, closed}, {closed, open, nil}} {
		if !WaitAny(t.Context(), nil, channels) {
			t.Errorf("%d channels: not woken", len(channels))
		}
	}

	for _, channels := range [][]<-chan struct{}{{open}, {open, open}, nil} {
		if WaitAny(gone, nil, channels) {
			t.Errorf("%d channels: woken though the caller is gone", len(channels))
		}
	}
}

var _ http.ResponseWriter = (*counted)(nil)
