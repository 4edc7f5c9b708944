// Package rows reads text files of rows for the readers of traces: it unpacks
// them, counts lines, splits fields and says where a mistake is.
//
// A file is read once from front to back and never held as a whole. A row that
// cannot be read is a *fault.Error with the code BadRow, which a reader may skip;
// after any other error nothing more can be read. The package knows no format of
// traces: those are in trace and its other parts.
package rows

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"trainyard/internal/fault"
)

// maxLine bounds one line of a trace.
const maxLine = 1 << 20

// BadRow is the code of the error for a row that cannot be read.
const BadRow = "bad_trace_row"

// BadFile is the code of the error for text behind which nothing can be read.
const BadFile = "bad_trace"

// File is a text as it is read, from front to back.
type File struct {
	Name   string // for messages
	Line   int    // of the last row, from 1
	text   *bufio.Reader
	lines  *bufio.Scanner // made by the first line
	first  string         // read to guess the format and not used yet
	peeked bool           // first is to be given
	parts  []io.Closer
}

// Open opens a file; one whose name ends in .gz is unpacked as it is read.
func Open(name string) (*File, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "trace_not_found", "file not found: %s", name).WithCause(err)
	}
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}

	t := &File{Name: filepath.Base(name), parts: []io.Closer{f}}
	var in io.Reader = f

	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
		if err != nil {
			return nil, errors.Join(
				fault.New(fault.Invalid, BadFile, "%s is not a gzip file: %v", name, err).WithCause(err),
				f.Close(),
			)
		}

		t.parts = append(t.parts, z)
		in = z
	}

	t.text = bufio.NewReaderSize(in, 1<<16)

	return t, nil
}

// New reads a text under a name.
func New(name string, r io.Reader) *File {
	return &File{Name: name, text: bufio.NewReaderSize(r, 1<<16)}
}

// Close closes the file; a second time it does nothing.
func (f *File) Close() error {
	var errs []error
	for i := len(f.parts) - 1; i >= 0; i-- {
		errs = append(errs, f.parts[i].Close())
	}

	f.parts = nil

	return errors.Join(errs...)
}

// Next returns the next line without its end, and io.EOF after the last.
func (f *File) Next() (string, error) {
	if f.peeked {
		f.peeked = false
		f.Line++
		return f.first, nil
	}

	if f.lines == nil {
		f.lines = bufio.NewScanner(f.text)
		f.lines.Buffer(make([]byte, 0, 1<<14), maxLine)
	}

	if !f.lines.Scan() {
		err := f.lines.Err()
		switch {
		case err == nil:
			return "", io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			f.Line++
			return "", f.Bad(0, "", "the line is longer than %d bytes", maxLine)
		}

		return "", fmt.Errorf("read %s after line %d: %w", f.Name, f.Line, err)
	}

	text := f.lines.Text()

	f.Line++
	if f.Line == 1 {
		text = strings.TrimPrefix(text, "\ufeff") // some programs begin a file so
	}

	return text, nil
}

// Rest is what has not been read yet, for a small file that is read as a whole.
func (f *File) Rest() io.Reader { return f.text }

// Peek returns the beginning of the file without taking it.
func (f *File) Peek() []byte {
	begin, err := f.text.Peek(1 << 12)
	if err != nil && len(begin) == 0 {
		return nil // empty, or broken: reading will tell
	}

	return begin
}

// Unread puts a line back, to be read again.
func (f *File) Unread(line string) {
	f.first, f.peeked = line, true
	f.Line--
}

// Bad makes the error for a row that cannot be read: which line, which column by
// number and name, and what is wrong.
func (f *File) Bad(column int, name, format string, args ...any) *fault.Error {
	e := fault.New(fault.Invalid, BadRow, format, args...)
	e.Message += ", in " + f.Name
	e.Field, e.Line, e.Column = name, f.Line, max(column, 1)

	return e
}
