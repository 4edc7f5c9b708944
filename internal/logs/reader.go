package logs

import (
	"bufio"
	"errors"
	"io"
	"time"
)

// Decoder reads the frames of a log.
type Decoder struct {
	r      *bufio.Reader
	offset int64
	err    error
}

// NewDecoder returns a Decoder that reads r, which must begin with a frame.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, MaxFrame)}
}

// Offset is how many bytes the frames returned so far took: where to go on.
func (d *Decoder) Offset() int64 { return d.offset }

// Next returns the next frame, whose Data is the caller's. It returns io.EOF at
// the end, io.ErrUnexpectedEOF if the stream ends in the middle of a frame, as
// that of a running program may, and a *DamageError if what is there is no log.
// After an error every call returns the same error.
func (d *Decoder) Next() (Frame, error) {
	if d.err != nil {
		return Frame{}, d.err
	}

	f, err := d.next()
	d.err = err

	return f, err
}

func (d *Decoder) next() (Frame, error) {
	line, err := d.headerLine()
	if err != nil {
		return Frame{}, err
	}

	h, why := parseHeader(line)
	if why != "" {
		return Frame{}, &DamageError{Offset: d.offset, Why: why}
	}

	taken := int64(len(line) + 1 + h.length + 1)

	data := make([]byte, h.length+1)
	if _, err := io.ReadFull(d.r, data); err != nil {
		return Frame{}, torn(err)
	}
	if data[h.length] != '\n' {
		return Frame{}, &DamageError{Offset: d.offset, Why: "a frame must end with a line end"}
	}

	d.offset += taken

	return Frame{At: time.UnixMilli(h.at).UTC(), Stream: h.stream, Data: data[:h.length:h.length]}, nil
}

// headerLine reads the header without its line end, however short the stream
// and however long the line.
func (d *Decoder) headerLine() ([]byte, error) {
	var line []byte
	for len(line) < maxHeader {
		c, err := d.r.ReadByte()
		switch {
		case err != nil && len(line) == 0:
			return nil, err
		case err != nil:
			return nil, torn(err)
		case c == '\n':
			return line, nil
		}

		line = append(line, c)
	}

	return nil, &DamageError{Offset: d.offset, Why: "a frame's header is too long"}
}

// torn is the error for a stream that ends, or fails, inside a frame.
func torn(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}

	return err
}
