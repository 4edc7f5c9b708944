// Package logs defines the format in which the output of a run is stored and sent.
//
// A log is a byte stream of frames, each a text header, the raw bytes and a
// line end:
//
//	<unix milliseconds> <o|e|y> <length>\n<length bytes>\n
//
// The stream o is the program's standard output, e its standard error, and y
// holds the yard's own remarks, one line each. The payload may be any bytes. A
// log only ever grows, so a reader that knows an offset between two frames goes
// on from there.
//
// The agent's supervisor writes logs, the agent ships their bytes, the server
// stores, reads and searches them, and the CLI shows them. The package never
// interprets what a program wrote, never rewrites bytes that are already in a
// log, and knows neither files nor networks: it reads and writes streams.
package logs

import (
	"fmt"
	"strconv"
	"time"
)

// Stream says whose output a frame holds.
type Stream byte

// The streams.
const (
	Stdout Stream = 'o'
	Stderr Stream = 'e'
	Yard   Stream = 'y' // the yard's own remarks
)

// String is the stream's name for people.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Yard:
		return "yard"
	}

	return "stream " + strconv.QuoteRune(rune(s))
}

// valid reports whether s is one of the streams.
func (s Stream) valid() bool { return s == Stdout || s == Stderr || s == Yard }

// MaxFrame is the greatest payload of one frame.
const MaxFrame = 64 << 10

// maxHeader is more than any header needs: 19 digits of time, the stream, 5 digits of length.
const maxHeader = 32

// Frame is one piece of output.
type Frame struct {
	At     time.Time
	Stream Stream
	Data   []byte
}

// DamageError says where a log stops making sense.
type DamageError struct {
	Offset int64 // of the frame that is damaged
	Why    string
}

// Error says where and why.
func (e *DamageError) Error() string {
	return fmt.Sprintf("log is damaged at byte %d: %s", e.Offset, e.Why)
}

// appendFrame writes one frame to buf.
func appendFrame(buf []byte, stream Stream, at time.Time, data []byte) []byte {
	buf = strconv.AppendInt(buf, max(at.UnixMilli(), 0), 10)
	buf = append(buf, ' ', byte(stream), ' ')
	buf = strconv.AppendInt(buf, int64(len(data)), 10)
	buf = append(buf, '\n')
	buf = append(buf, data...)

	return append(buf, '\n')
}

// header is what the first line of a frame says.
type header struct {
	at     int64 // unix milliseconds
	stream Stream
	length int
}

// parseHeader reads a header without its line end.
func parseHeader(line []byte) (header, string) {
	i := 0
	for i < len(line) && line[i] >= '0' && line[i] <= '9' {
		i++
	}

	at, err := strconv.ParseInt(string(line[:i]), 10, 64)
	if err != nil {
		return header{}, "a frame must begin with its time in milliseconds"
	}

	rest := line[i:]
	if len(rest) < 4 || rest[0] != ' ' || rest[2] != ' ' {
		return header{}, "a frame's header must be its time, stream and length"
	}

	stream := Stream(rest[1])
	if !stream.valid() {
		return header{}, "unknown " + stream.String()
	}

	for _, c := range rest[3:] {
		if c < '0' || c > '9' {
			return header{}, "a frame's length must be a number"
		}
	}

	length, err := strconv.Atoi(string(rest[3:]))
	if err != nil || length > MaxFrame {
		return header{}, "a frame's length must be at most " + strconv.Itoa(MaxFrame)
	}

	return header{at: at, stream: stream, length: length}, ""
}

// Mend returns what must be appended to a log that ends in the middle of a
// frame, as after the death of its writer, so that it ends with a whole one.
// The argument is what follows the last whole frame. The bytes that are missing
// become question marks. Nothing that was there before changes, so what others
// have already read of the log stays true. It returns nil if torn is no torn frame.
func Mend(torn []byte) []byte {
	if len(torn) == 0 {
		return nil
	}

	for i, c := range torn {
		if c == '\n' {
			return mendPayload(torn[:i], torn[i+1:])
		}
		if i >= maxHeader {
			return nil
		}
	}

	// The shortest ends that make a whole frame out of a torn header.
	for _, end := range []string{"\n", "0\n", " 0\n", "y 0\n", " y 0\n"} {
		line := append(append([]byte(nil), torn...), end[:len(end)-1]...)
		if h, why := parseHeader(line); why == "" && len(line) < maxHeader {
			return append([]byte(end), padding(h.length)...)
		}
	}

	return nil
}

// mendPayload completes a frame whose header is whole.
func mendPayload(line, payload []byte) []byte {
	h, why := parseHeader(line)
	if why != "" || len(payload) > h.length {
		return nil
	}

	return padding(h.length - len(payload))
}

// padding is n question marks and the line end of a frame.
func padding(n int) []byte {
	pad := make([]byte, n+1)
	for i := range pad {
		pad[i] = '?'
	}

	pad[n] = '\n'

	return pad
}
