package lines

import "bytes"

// Splitter cuts a stream of output into lines. A carriage return ends a line too: progress
// bars draw themselves anew behind one. Its zero value is ready.
type Splitter struct {
	open []byte
	lost bool // the beginning of the open line is not there
}

// Add calls fn with each line that ends in data. What follows the last end waits for more.
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
		s.open, s.lost = s.open[:0], true // too long to be looked at
		return
	}

	if !s.lost {
		s.open = append(s.open, data...)
	}
}

// Skip says that some of the stream is left out: what is open now has no end, and
// what comes next has no beginning.
func (s *Splitter) Skip() { s.open, s.lost = s.open[:0], true }

// Flush calls fn with the line that has not ended.
func (s *Splitter) Flush(fn func(line []byte)) {
	if len(s.open) > 0 {
		fn(s.open)
	}

	s.open = s.open[:0]
}
