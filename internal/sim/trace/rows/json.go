package rows

import (
	"encoding/json"
	"errors"
	"io"

	"trainyard/internal/fault"
)

// JSON reads JSON values one after the other and knows their lines.
type JSON struct {
	*File
	decoder *json.Decoder
	from    io.Reader
	offset  int64
	ends    []int64 // of lines that have not been asked past
	before  int     // lines that have
}

// NewJSON reads the JSON of a file.
func NewJSON(f *File) *JSON {
	j := &JSON{File: f, from: f.text}
	j.decoder = json.NewDecoder((*counter)(j))
	return j
}

// counter passes the text on to the decoder and notes the line ends.
type counter JSON

// Read passes on what was read.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			c.ends = append(c.ends, c.offset+int64(i))
		}
	}

	c.offset += int64(n)

	return n, err
}

// mark sets the line to that of an offset. Offsets only grow.
func (j *JSON) mark(offset int64) {
	n := 0
	for n < len(j.ends) && j.ends[n] < offset {
		n++
	}

	j.before += n
	j.ends = j.ends[n:]
	j.Line = j.before + 1
}

// More reports whether the list or object that is open has more in it.
func (j *JSON) More() bool { return j.decoder.More() }

// Expect takes the tokens that must come next.
func (j *JSON) Expect(wanted ...json.Token) error {
	for _, w := range wanted {
		t, err := j.decoder.Token()
		if err != nil || t != w {
			return j.Broken(err, "unexpected JSON: expected %v", w)
		}
	}

	return nil
}

// Key takes the next key of an object.
func (j *JSON) Key() (string, error) {
	t, err := j.decoder.Token()
	key, ok := t.(string)
	if err != nil || !ok {
		return "", j.Broken(err, "invalid JSON: expected an object")
	}

	return key, nil
}

// Value takes the next value, and io.EOF where the text ends.
func (j *JSON) Value() (json.RawMessage, error) {
	var raw json.RawMessage
	err := j.decoder.Decode(&raw)
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, j.Broken(err, "invalid JSON")
	}

	j.mark(j.decoder.InputOffset() - int64(len(raw)))

	return raw, nil
}

// Element takes the next value of the list or object that is open, which must not
// end with the text.
func (j *JSON) Element() (json.RawMessage, error) {
	raw, err := j.Value()
	if errors.Is(err, io.EOF) {
		return nil, j.Broken(err, "unexpected end of file")
	}

	return raw, err
}

// Broken is the error for text behind which nothing can be read.
func (j *JSON) Broken(cause error, format string, args ...any) *fault.Error {
	j.mark(j.decoder.InputOffset())

	if errors.Is(cause, io.EOF) {
		cause = io.ErrUnexpectedEOF // or the error would pass for the end of the trace
	}

	e := j.Bad(0, "", format, args...)
	e.Code, e.Cause = BadFile, cause

	return e
}

// FieldOf returns the field that JSON could not be read into, "" if there is none.
func FieldOf(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrong.Field
	}

	return ""
}
