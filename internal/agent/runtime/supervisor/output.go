package supervisor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/logs"
)

// tailSize is how many bytes of the end of the output are kept, to find the cause of a failure in
// them.
const tailSize = 16 << 10

// output receives the output of a run's processes.
type output struct {
	clk    clock.Clock
	file   *logFile
	log    *logs.Writer
	failed func(error)
	// secrets are masked before anything is written; nil if there are none. It is set before the first program starts.
	secrets *patterns

	mu   sync.Mutex
	tail []byte
}

// openOutput opens the log of a run. Errors while writing are passed to failed, and the run
// continues.
func openOutput(path string, limit int64, clk clock.Clock, failed func(error)) (*output, error) {
	f, err := openLogFile(path)
	if err != nil {
		return nil, err
	}

	return &output{clk: clk, file: f, log: logs.NewWriter(f, limit), failed: failed}, nil
}

// pump copies a pipe to the log until all its writers have closed it. Each read is written to the
// file at once, so that readers of the log see it without delay.
func (o *output) pump(r *os.File, stream logs.Stream) {
	buf := make([]byte, logs.MaxFrame)
	m := mask{patterns: o.secrets}

	for {
		n, err := r.Read(buf)
		if n > 0 && o.secrets == nil {
			o.write(stream, buf[:n])
		} else if n > 0 {
			o.write(stream, m.write(buf[:n]))
		}

		if err != nil {
			if o.secrets != nil {
				o.write(stream, m.flush())
			}

			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				o.failed(err)
			}

			return
		}
	}
}

// write writes output that may be shown.
func (o *output) write(stream logs.Stream, data []byte) {
	for len(data) > 0 { // what was masked may be longer than what was read
		part := data[:min(len(data), logs.MaxFrame)]
		data = data[len(part):]
		o.keepTail(part)

		if err := o.log.Write(stream, o.clk.Now(), part); err != nil {
			o.failed(err)
		}
	}
}

// keepTail keeps the end of the output.
func (o *output) keepTail(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.tail = append(o.tail, data...)
	if len(o.tail) > 2*tailSize {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-tailSize:]...)
	}
}

// remark writes a line of the yard's own into the log.
func (o *output) remark(format string, args ...any) {
	if err := o.log.Remark(o.clk.Now(), format, args...); err != nil {
		o.failed(err)
	}
}

// resetTail drops the kept output, so that the next program is not blamed for it.
func (o *output) resetTail() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.tail = nil
}

// end returns the end of the output.
func (o *output) end() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return string(o.tail)
}

// lastLine returns the last non-empty line of the output, clipped for a reason.
func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return rundir.LastLine(o.tail)
}

// find returns the last line that contains one of the marks, clipped for a reason, and the text from there on.
func (o *output) find(marks []string) (line, text string, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, mark := range marks {
		i := bytes.LastIndex(o.tail, []byte(mark))
		if i < 0 {
			continue
		}

		start := bytes.LastIndexByte(o.tail[:i], '\n') + 1

		end := bytes.IndexByte(o.tail[i:], '\n')
		if end < 0 {
			end = len(o.tail) - i
		}

		return rundir.Clip(string(o.tail[start : i+end])), string(o.tail[start:min(i+memoryText, len(o.tail))]), true
	}

	return "", "", false
}

// close completes the log and makes it durable. If it cannot be written it retries for some time.
func (o *output) close() {
	o.file.ending = true

	for try := 0; ; try++ {
		err := o.log.Close(o.clk.Now())
		if err == nil {
			break
		}

		o.failed(err)

		if try == 5 {
			break
		}

		clock.Sleep(context.Background(), time.Second)
	}

	if err := o.file.end(); err != nil {
		o.failed(err)
	}
}
