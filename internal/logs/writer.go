package logs

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Writer writes a log. It keeps the stream whole whatever happens: every frame
// goes out in one Write; if that fails half way, as on a full disk, the rest of
// the frame goes first at the next call, and output that came meanwhile is
// counted and reported in a remark, never kept in memory. It may be used from
// several goroutines.
type Writer struct {
	mu      sync.Mutex
	w       io.Writer
	limit   int64
	kept    int64  // payload bytes written
	dropped int64  // payload bytes past the limit
	lost    int64  // payload bytes that could not be written
	cut     bool   // the limit was reached and the remark about it written
	rest    []byte // of a frame that went out only in part
	buf     []byte
}

// NewWriter returns a Writer that keeps at most limit bytes of the program's
// output, or all of it if limit is not positive. The yard's remarks do not count.
func NewWriter(w io.Writer, limit int64) *Writer {
	return &Writer{w: w, limit: limit}
}

// Write adds output. What is past the limit is dropped and counted, which is no
// error. An error means that some of the data is not in the log; a later call
// that succeeds leaves a remark about how much.
func (w *Writer) Write(stream Stream, at time.Time, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !stream.valid() {
		return fmt.Errorf("write to a log: unknown %v", stream)
	}

	if stream != Yard {
		data = w.withinLimit(data)
	}

	if err := w.catchUp(at); err != nil {
		w.miss(stream, len(data))
		return err
	}

	for len(data) > 0 {
		n := min(len(data), MaxFrame)
		if err := w.frame(stream, at, data[:n]); err != nil {
			// The frame that failed is counted by frame; the ones behind it are lost.
			w.miss(stream, len(data)-n)
			return err
		}

		data = data[n:]
	}

	return w.markCut(at)
}

// Remark adds one line of the yard's own.
func (w *Writer) Remark(at time.Time, format string, args ...any) error {
	return w.Write(Yard, at, fmt.Appendf(nil, format, args...))
}

// Close says in the log how many bytes were dropped. It does not close the
// underlying writer.
func (w *Writer) Close(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.catchUp(at); err != nil {
		return err
	}
	if err := w.markCut(at); err != nil {
		return err
	}
	if w.dropped == 0 {
		return nil
	}

	return w.frame(Yard, at, fmt.Appendf(nil, "%d bytes of output were dropped after the limit of %d", w.dropped, w.limit))
}

// withinLimit takes what the limit still allows of data and counts the rest.
func (w *Writer) withinLimit(data []byte) []byte {
	if w.limit <= 0 {
		return data
	}

	room := max(w.limit-w.kept-w.lost, 0)
	if int64(len(data)) > room {
		w.dropped += int64(len(data)) - room
		data = data[:room]
	}

	return data
}

// markCut writes, once, the remark at the place where the output was cut.
func (w *Writer) markCut(at time.Time) error {
	if w.cut || w.dropped == 0 {
		return nil
	}

	err := w.frame(Yard, at, fmt.Appendf(nil, "output is cut here: the limit of %d bytes is reached", w.limit))
	w.cut = err == nil || len(w.rest) > 0 // a begun frame will be finished

	return err
}

// catchUp brings out what an earlier failure left behind.
func (w *Writer) catchUp(at time.Time) error {
	if len(w.rest) > 0 {
		n, err := w.w.Write(w.rest)
		w.rest = w.rest[n:]
		if err == nil && len(w.rest) > 0 {
			err = io.ErrShortWrite
		}

		if err != nil {
			return fmt.Errorf("write log: %w", err)
		}
	}

	if w.lost == 0 {
		return nil
	}

	lost := w.lost
	err := w.frame(Yard, at, fmt.Appendf(nil, "%d bytes of output are missing here: they could not be written", lost))
	if err == nil || len(w.rest) > 0 {
		w.lost = 0
		w.kept += lost // they count against the limit: the program wrote them
	}

	return err
}

// frame writes one frame. If only a part goes out the rest is kept for later,
// so the frame counts as written; if nothing goes out its payload is lost.
func (w *Writer) frame(stream Stream, at time.Time, data []byte) error {
	w.buf = appendFrame(w.buf[:0], stream, at, data)
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}

	switch {
	case err != nil && n <= 0:
		w.miss(stream, len(data))
		return fmt.Errorf("write log: %w", err)
	case err != nil && n < len(w.buf):
		w.rest = append([]byte(nil), w.buf[n:]...)
		err = fmt.Errorf("write log: %w", err)
	default:
		err = nil
	}

	if stream != Yard {
		w.kept += int64(len(data))
	}

	return err
}

// miss counts output that could not be written.
func (w *Writer) miss(stream Stream, n int) {
	if stream != Yard {
		w.lost += int64(n)
	}
}
