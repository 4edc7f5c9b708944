// Package importer reads tables of jobs that finished elsewhere, so that a new yard does not start without a
// forecast history: a team's own CSV file, or the public results of MLPerf Training. It turns rows into
// records of package history and knows nothing of what they are used for.
package importer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
)

// ReadCSV reads a team's own past jobs from a table, plain or compressed with gzip. Its first line names the
// columns, in any order:
//
//	seconds     how long the job ran; required. Rows where it is not positive are skipped
//	job         a unique name
//	finished    when it ended: 2026-03-01 or 2026-03-01T12:00:00Z
//	group       jobs of one group are not independent of each other
//	wait        seconds from submission to start
//	name, owner, command, task, model, params, framework, metric, target, batch, rate,
//	amount, gpu, tflops, gpus, nodes
//	            as in a job file; empty means unknown
//	hyper.…     further numeric hyperparameters, one column each: hyper.dropout
//
// Other columns are ignored. A cell that should be a number and is not is an error.
func ReadCSV(r io.Reader) ([]history.Past, error) {
	t, err := openTable(r, "seconds")
	if err != nil {
		return nil, err
	}

	var past []history.Past
	for {
		switch err := t.next(); {
		case errors.Is(err, io.EOF):
			return past, nil
		case err != nil:
			return nil, err
		}

		p, err := t.past()
		if err != nil {
			return nil, err
		}

		if p.Seconds > 0 {
			past = append(past, p)
		}
	}
}

// past returns the present row as a job that has ended.
func (t *table) past() (history.Past, error) {
	p := history.Past{Job: id.Job(t.text("job")), Group: t.text("group")}
	if p.Job == "" {
		p.Job = id.Job(fmt.Sprintf("row-%d", t.line))
	}

	f := &p.Features
	f.Name = t.text("name")
	f.Owner = t.text("owner")
	f.Command = t.text("command")
	f.Task = t.text("task")
	f.Model = t.text("model")
	f.Framework = t.text("framework")
	f.Metric = t.text("metric")
	f.GPU = t.text("gpu")

	cells := []struct {
		column string
		into   *float64
	}{
		{"seconds", &p.Seconds},
		{"wait", &p.Wait},
		{"params", &f.Params},
		{"target", &f.Target},
		{"batch", &f.Batch},
		{"rate", &f.Rate},
		{"amount", &f.Amount},
		{"tflops", &f.TFLOPS},
		{"gpus", &f.GPUs},
		{"nodes", &f.Nodes},
	}

	for _, c := range cells {
		if err := t.into(c.column, c.into); err != nil {
			return history.Past{}, err
		}
	}

	for column := range t.columns {
		name, ok := strings.CutPrefix(column, "hyper.")
		if !ok || name == "" || t.text(column) == "" {
			continue
		}

		var v float64
		if err := t.into(column, &v); err != nil {
			return history.Past{}, err
		}

		if f.Hyper == nil {
			f.Hyper = map[string]float64{}
		}

		f.Hyper[name] = v
	}

	if text := t.text("finished"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			at, err = time.Parse(time.DateOnly, text)
		}

		if err != nil {
			return history.Past{}, t.bad("finished", "is not a time such as 2026-03-01 or 2026-03-01T12:00:00Z")
		}

		p.Finished = at
	}

	return p, nil
}

// into reads a cell that is empty or a number.
func (t *table) into(column string, v *float64) error {
	if t.text(column) == "" {
		return nil
	}

	x, ok := t.number(column)
	if !ok {
		return t.bad(column, "is not a number")
	}

	*v = x

	return nil
}
