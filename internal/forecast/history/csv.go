package history

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"trainyard/internal/id"
)

// ReadCSV reads a team's own old jobs from a table, plain or compressed by gzip, so that a new yard
// need not begin without a history. Its first line names the columns, in any order:
//
//	seconds     how long the job ran; needed. Rows where it is not above 0 are passed over
//	job         a name that tells it from the others
//	finished    when it ended: 2026-03-01 or 2026-03-01T12:00:00Z
//	group       jobs with the same are not independent of each other
//	wait        seconds from submission to start
//	name, owner, command, task, model, params, framework, metric, target, batch, rate,
//	amount, gpu, tflops, gpus, nodes
//	            as in a job file; empty means unknown
//	hyper.…     further hyper-parameters that are numbers, one column each: hyper.dropout
//
// Other columns are passed over. A cell that should be a number and is none is a mistake.
func ReadCSV(r io.Reader) ([]Past, error) {
	t, err := openTable(r, "seconds")
	if err != nil {
		return nil, err
	}
	var past []Past
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
func (t *table) past() (Past, error) {
	p := Past{Job: id.Job(t.text("job")), Group: t.text("group")}
	if p.Job == "" {
		p.Job = id.Job(fmt.Sprintf("row-%d", t.line))
	}
	f := &p.Features
	f.Name, f.Owner, f.Command = t.text("name"), t.text("owner"), t.text("command")
	f.Task, f.Model, f.Framework = t.text("task"), t.text("model"), t.text("framework")
	f.Metric, f.GPU = t.text("metric"), t.text("gpu")
	cells := []struct {
		column string
		into   *float64
	}{
		{"seconds", &p.Seconds}, {"wait", &p.Wait}, {"params", &f.Params}, {"target", &f.Target}, {"batch", &f.Batch},
		{"rate", &f.Rate}, {"amount", &f.Amount}, {"tflops", &f.TFLOPS}, {"gpus", &f.GPUs}, {"nodes", &f.Nodes},
	}
	for _, c := range cells {
		if err := t.into(c.column, c.into); err != nil {
			return Past{}, err
		}
	}
	for column := range t.columns {
		name, ok := strings.CutPrefix(column, "hyper.")
		if !ok || name == "" || t.text(column) == "" {
			continue
		}
		var v float64
		if err := t.into(column, &v); err != nil {
			return Past{}, err
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
			return Past{}, t.bad("finished", "is not a time such as 2026-03-01 or 2026-03-01T12:00:00Z")
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
