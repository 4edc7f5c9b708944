package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
)

// Limits on a table of old jobs, which may be compressed and come from anywhere.
const (
	maxRows  = 1_000_000
	maxRow   = 1 << 20   // bytes of one row
	maxTable = 256 << 20 // bytes of all rows, unpacked
)

// table is a file of rows with named columns.
type table struct {
	csv     *csv.Reader
	input   *bounded
	columns map[string]int
	row     []string
	line    int
}

// openTable reads the heading of a table and checks that it has the columns.
func openTable(r io.Reader, need ...string) (*table, error) {
	in := bufio.NewReader(r)
	if magic, err := in.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fault.New(fault.Invalid, "bad_table", "the table is damaged: %v", err).WithCause(err)
		}

		in = bufio.NewReader(unpacked)
	}

	input := &bounded{in: in, row: maxRow, all: maxTable}
	t := &table{csv: csv.NewReader(input), input: input, columns: map[string]int{}}
	t.csv.ReuseRecord = true

	heading, err := t.csv.Read()
	if input.exceeded != nil {
		return nil, input.exceeded
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_table", "the table has no header line").WithCause(err)
	}

	for i, name := range heading {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if _, twice := t.columns[name]; twice {
			return nil, fault.New(fault.Invalid, "bad_table", "the table has two columns named %q", name)
		}

		t.columns[name] = i
	}

	for _, name := range need {
		if _, ok := t.columns[name]; !ok {
			return nil, fault.New(fault.Invalid, "bad_table", "the table has no column %q", name).
				WithRemedy("it needs %s", strings.Join(need, ", "))
		}
	}

	return t, nil
}

// next goes on to the next row; it returns io.EOF after the last.
func (t *table) next() error {
	t.input.row = maxRow

	row, err := t.csv.Read()
	if t.input.exceeded != nil {
		return t.input.exceeded
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return fault.New(fault.Invalid, "bad_table", "the table cannot be read: %v", err).WithCause(err)
	}

	t.row = row
	t.line++
	if t.line > maxRows {
		return fault.New(fault.Invalid, "bad_table", "the table has more than %d rows", maxRows)
	}

	return nil
}

// bounded passes on a table, and fails when a row or all of it gets too long.
type bounded struct {
	in       io.Reader
	row, all int // bytes that may still be read
	exceeded error
}

func (b *bounded) Read(p []byte) (int, error) {
	switch {
	case b.row <= 0:
		b.exceeded = fault.New(fault.Invalid, "bad_table", "the table has a row of more than %s",
			humanize.Size(int64(maxRow)))
	case b.all <= 0:
		b.exceeded = fault.New(fault.Invalid, "bad_table", "the table has more than %s, unpacked",
			humanize.Size(int64(maxTable)))
	}

	if b.exceeded != nil {
		return 0, b.exceeded
	}

	n, err := b.in.Read(p[:min(len(p), b.row, b.all)])
	b.row -= n
	b.all -= n

	return n, err
}

// text returns a cell, "" if the table lacks the column.
func (t *table) text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}

	return strings.TrimSpace(t.row[i])
}

// number returns a cell as a number, and false if it is none.
func (t *table) number(column string) (float64, bool) {
	v, err := strconv.ParseFloat(t.text(column), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}

	return v, true
}

// bad says what is wrong with a cell of the present row.
func (t *table) bad(column, what string) error {
	return fault.New(fault.Invalid, "bad_table", "row %d: %s %q %s", t.line, column, t.text(column), what)
}
