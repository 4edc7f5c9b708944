package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/clock"
)

// handClock shows the time that it is set to.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() time.Time { return time.Unix(0, c.now.Load()) }

func TestBytesThatFlowGiveMoreTime(t *testing.T) {
	t.Parallel()
	clk := &handClock{}
	w := newWatch(Pace{Clock: clk, Patience: 30 * time.Second, Rate: 1000}, func() {})
	defer w.alarm.Stop()

	for i, step := range []struct {
		bytes int
		takes time.Duration
		left  time.Duration // after it
	}{
		{0, 0, 30 * time.Second},
		{1, 20 * time.Second, 10 * time.Second},      // one byte is nothing
		{999, 0, 11 * time.Second},                   // a kilobyte is a second
		{1 << 20, 0, 30 * time.Second},               // however much came, nobody waits longer than this
		{1, 29 * time.Second, 30 * time.Second},      // a pause, for one that was fast
		{0, 20 * time.Minute, 0},                     // not any more
		{100 << 20, time.Second, 30 * time.Second},   // there is no bound on the whole
		{1 << 30, 100 * time.Hour, 30 * time.Second}, // however long that takes
		{0, 300 * time.Hour, 0},
	} {
		_, err := w.wait(func() (int, error) {
			clk.now.Add(int64(step.takes))
			return step.bytes, nil
		})
		if got := w.left(); err != nil || got != step.left {
			t.Errorf("step %d: %s left, want %s (%v)", i, got, step.left, err)
		}
	}
}

// impatient ends whatever does not move at once.
func impatient() Pace {
	return Pace{Clock: clock.Wall{}, Patience: 50 * time.Millisecond, Rate: 1 << 30}
}

func TestAnUploadThatStandsStillIsEnded(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	server := httptest.NewServer(Paced(impatient(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := PutVerified(r.Context(), func(_ context.Context, _ string, in io.Reader) error {
			_, err := io.Copy(io.Discard, in)
			return err
		}, "name", strings.Repeat("0", 64), r.Body, 1000)
		got <- err

		WriteProblem(w, err)
	})))
	defer server.Close()

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = conn.Close() }()

	if _, err := io.WriteString(conn, "PUT / HTTP/1.1\r\nHost: yard\r\nContent-Length: 100\r\n\r\nhello"); err != nil {
		t.Fatal(err)
	}

	if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "too slow") {
		t.Errorf("the upload ended with %v", err)
	}

	answer, err := io.ReadAll(conn)
	if !strings.Contains(string(answer), "slow_upload") {
		t.Errorf("the answer is %q (%v)", answer, err)
	}
}

func TestAnAnswerThatNobodyTakesIsEnded(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	server := httptest.NewServer(Paced(impatient(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := NewStream(w)
		for out.Send("", "", strings.Repeat("x", 1<<20)) {
			continue
		}

		_, err := w.Write([]byte("more"))
		got <- err
	})))
	defer server.Close()

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = conn.Close() }()

	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: yard\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	if err := <-got; err == nil {
		t.Error("the stream ended without an error")
	}
}
