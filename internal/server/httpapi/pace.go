package httpapi

import (
	"io"
	"net/http"
	"time"

	"trainyard/internal/clock"
)

// Pace bounds how slowly the other side of a connection may send and take bytes, so that none holds a request, a file
// or memory for ever. Bytes that flow give it more time: there is no bound on the whole.
type Pace struct {
	Clock    clock.Clock
	Patience time.Duration // for the first bytes, and for a pause
	Rate     int64         // bytes per second that it must come to on average
}

// DefaultPace is patient with bad networks and not with those who wait on purpose.
func DefaultPace(clk clock.Clock) Pace {
	return Pace{Clock: clk, Patience: 30 * time.Second, Rate: 1 << 10}
}

// Paced ends requests whose bodies come, or whose answers are taken, too slowly.
func Paced(p Pace, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)

		// What cannot have a deadline, as in tests without a connection, has none.
		out := &pacedWriter{ResponseWriter: w, c: c, watch: newWatch(p, func() { _ = c.SetWriteDeadline(longAgo()) })}
		in := &pacedBody{ReadCloser: r.Body, watch: newWatch(p, func() { _ = c.SetReadDeadline(longAgo()) })}

		defer out.watch.alarm.Stop()
		defer in.watch.alarm.Stop()

		paced := *r
		paced.Body = in
		next.ServeHTTP(out, &paced)
	})
}

// longAgo is a deadline that has passed: whoever waits does not any longer.
func longAgo() time.Time { return time.Unix(1, 0) }

// watch measures how long one side has waited for the other.
type watch struct {
	pace   Pace
	alarm  *clock.Alarm
	bytes  int64
	waited time.Duration
}

func newWatch(p Pace, expire func()) *watch { return &watch{pace: p, alarm: clock.NewAlarm(expire)} }

// left is how long may be waited now: the patience, less whatever is behind the rate.
func (w *watch) left() time.Duration {
	earned := time.Duration(w.bytes/w.pace.Rate) * time.Second

	return max(0, w.pace.Patience+min(0, earned-w.waited))
}

// wait carries out something that waits for the other side and moves bytes.
func (w *watch) wait(move func() (int, error)) (int, error) {
	begun := w.pace.Clock.Now()
	w.alarm.Set(w.left())

	n, err := move()

	w.alarm.Stop()
	w.waited += w.pace.Clock.Now().Sub(begun)
	w.bytes += int64(n)

	return n, err
}

type pacedBody struct {
	io.ReadCloser

	watch *watch
}

func (b *pacedBody) Read(p []byte) (int, error) {
	return b.watch.wait(func() (int, error) { return b.ReadCloser.Read(p) })
}

type pacedWriter struct {
	http.ResponseWriter

	c     *http.ResponseController
	watch *watch
}

// Unwrap lets http.ResponseController find what it needs.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) Write(p []byte) (int, error) {
	return w.watch.wait(func() (int, error) { return w.ResponseWriter.Write(p) })
}

// FlushError is what http.ResponseController calls to flush.
func (w *pacedWriter) FlushError() error {
	_, err := w.watch.wait(func() (int, error) { return 0, w.c.Flush() })

	return err
}
