package lines

import "bytes"

// Splitter splits a stream of output into lines. A carriage return ends a line too, because
// progress bars redraw themselves after one. The zero value is ready to use.
type Splitter struct {
	open []byte
	lost bool // the beginning of the open line is missing
}

// Add calls fn with each line that ends in data. The text after the last line end is kept for the
// next call.
func (s *Splitter) Add(data []byte, fn func(line []byte)) {
	for {
		at := bytes.IndexAny(data, "\r\n")
		if at < 0 {
			break
		}

		line := data[:at]
		if len(s.open) > 0 {
			s.open = append(s.open, line...)
			line = s.open
		}

		if len(line) > 0 && !s.lost {
			fn(line)
		}

		s.open, s.lost = s.open[:0], false
		data = data[at+1:]
	}

	if len(s.open)+len(data) > maxSegment {
		s.open, s.lost = s.open[:0], true // too long to be parsed
		return
	}

	if !s.lost {
		s.open = append(s.open, data...)
	}
}

// Skip says that a part of the stream is missing: the open line has no end, and the next text has
// no beginning.
func (s *Splitter) Skip() { s.open, s.lost = s.open[:0], true }

// Flush calls fn with the line that has not ended yet.
func (s *Splitter) Flush(fn func(line []byte)) {
	if len(s.open) > 0 {
		fn(s.open)
	}

	s.open = s.open[:0]
}
