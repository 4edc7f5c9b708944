package metrics

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"

	"trainyard/internal/agent/metrics/lines"
	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/agent/metrics/tfevents"
	"trainyard/internal/agent/metrics/wandbfile"
)

// eventsReader reads TensorBoard's files.
type eventsReader struct{ d tfevents.Decoder }

func (r *eventsReader) decode(data []byte) ([]reading.Reading, int, error) {
	before := r.d.Damaged
	out, used, err := r.d.Decode(data)
	return out, used, orDamaged(err, r.d.Damaged, before)
}

// orDamaged is the error, or that more is damaged than before.
func orDamaged(err error, now, before int) error {
	if err == nil && now > before {
		return damagedError{now}
	}

	return err
}

// wandbReader reads W&B's files.
type wandbReader struct{ d wandbfile.Decoder }

func (r *wandbReader) decode(data []byte) ([]reading.Reading, int, error) {
	before := r.d.Damaged
	out, used, err := r.d.Decode(data)
	return out, used, orDamaged(err, r.d.Damaged, before)
}

// linesReader reads files of lines.
type linesReader struct {
	parser *lines.Parser
	json   bool // nothing else is looked for
}

func newLinesReader(onlyJSON bool) *linesReader {
	return &linesReader{parser: new(lines.Parser), json: onlyJSON}
}

func (r *linesReader) decode(data []byte) (out []reading.Reading, used int, err error) {
	used = wholeLines(data)
	for line := range bytes.Lines(data[:used]) {
		r.parser.Line(bytes.TrimSpace(line), func(kind lines.Kind, got reading.Reading) {
			if kind == lines.JSON || !r.json {
				out = append(out, got)
			}
		})
	}

	return out, used, nil
}

// tableReader reads a CSV file whose first line names the columns. Lightning and Keras write such files; Lightning
// writes the whole file anew when there is a new column.
type tableReader struct {
	names []string
	ruled bool // the user has named the file
	none  bool // it is no table of metrics
	rows  float64
}

func (r *tableReader) decode(data []byte) (out []reading.Reading, used int, err error) {
	used = wholeLines(data)
	for line := range bytes.Lines(data[:used]) {
		switch {
		case r.none:
		case r.names == nil:
			r.none = !r.header(line)
		default:
			if got, ok := r.row(line); ok {
				out = append(out, got)
			} else {
				r.header(line) // of other columns from here on, if it is one
			}
		}
	}

	return out, used, nil
}

// header reads the names of the columns. It reports whether they are those of metrics.
func (r *tableReader) header(line []byte) bool {
	line, _, _ = bytes.Cut(line, []byte("\n"))
	names := fieldsOf(line)
	if len(names) < 2 || len(names) > 1000 {
		return false
	}

	known := false
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if _, number := reading.Parse(names[i]); number {
			return false
		}

		known = known || lines.IsCount(names[i])
	}

	if known || r.ruled {
		r.names = names
	}

	return r.names != nil
}

// row reads one row.
func (r *tableReader) row(line []byte) (reading.Reading, bool) {
	cells := fieldsOf(line)
	if len(cells) != len(r.names) {
		return reading.Reading{}, false
	}

	r.rows++

	var values []reading.Value
	for i, cell := range cells {
		if v, ok := reading.Parse(strings.TrimSpace(cell)); ok {
			values = append(values, reading.Value{Name: r.names[i], Value: v})
		}
	}

	o, _ := lines.FromValues(values)
	if !o.Step.Known {
		o.Step = o.Epoch
		if !o.Step.Known {
			o.Step = reading.Known(r.rows)
		}
	}

	return o.Reading, !o.Empty()
}

// fieldsOf cuts a line of a table.
func fieldsOf(line []byte) []string {
	c := csv.NewReader(bytes.NewReader(line))
	c.LazyQuotes, c.FieldsPerRecord = true, -1
	cells, err := c.Read()
	if err != nil {
		return nil
	}

	return cells
}

// mlrunsReader reads one of MLflow's files: a line for each value, with its time in milliseconds and its step.
type mlrunsReader struct{ name string }

func (r *mlrunsReader) decode(data []byte) (out []reading.Reading, used int, err error) {
	used = wholeLines(data)
	for line := range bytes.Lines(data[:used]) {
		cells := strings.Fields(string(line))
		if len(cells) != 3 {
			continue
		}

		at, ok1 := reading.Parse(cells[0])
		value, ok2 := reading.Parse(cells[1])

		step, ok3 := reading.Parse(cells[2])
		if !ok1 || !ok2 || !ok3 {
			continue
		}

		got := reading.Reading{At: at / 1000, Step: reading.Known(step)}
		got.Add(r.name, value)
		out = append(out, got)
	}

	return out, used, nil
}

// stateReader reads trainer_state.json, which Hugging Face's Trainer writes with each checkpoint.
type stateReader struct{}

func (stateReader) decode(data []byte) (out []reading.Reading, used int, err error) {
	var in struct {
		GlobalStep float64                      `json:"global_step"`
		MaxSteps   float64                      `json:"max_steps"`
		History    []map[string]json.RawMessage `json:"log_history"`
	}

	if err := reading.Unmarshal(data, &in); err != nil {
		return nil, len(data), nil //nolint:nilerr // half written: it is read again when it changes
	}

	for _, entry := range in.History {
		if o, ok := lines.FromMap(entry); ok {
			out = append(out, o.Reading)
		}
	}

	last := reading.Reading{Done: reading.Known(in.GlobalStep)}
	if in.MaxSteps > 0 {
		last.Total = reading.Known(in.MaxSteps)
	}

	return append(out, last), len(data), nil
}
