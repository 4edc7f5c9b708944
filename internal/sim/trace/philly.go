package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// calendar is how the Philly and Helios traces write times.
const calendar = "2006-01-02 15:04:05"

// philly reads the table of Philly jobs: when, how long, how many GPUs, and the
// virtual cluster, which owns the job because the table knows no users.
type philly struct {
	*rows.Table
	opts  Options
	specs *specs
	count int
}

func openPhilly(f *rows.File, opts Options) (*philly, error) {
	t, err := rows.WithHeader(f, ',', "timestamp", "duration", "num_gpus", "cluster")
	if err != nil {
		return nil, err
	}

	return &philly{Table: t, opts: opts, specs: newSpecs()}, nil
}

func (p *philly) job() (*sim.Job, error) {
	if err := p.Read(); err != nil {
		return nil, err
	}

	at := p.Wall("timestamp", calendar)
	lasts := p.Seconds("duration")
	gpus := p.Table.Count("num_gpus")

	cluster := p.Text("cluster")
	switch {
	case p.Err != nil:
		return nil, p.Err
	case p.opts.Cluster != "" && p.opts.Cluster != cluster, gpus == 0:
		return nil, errNothing
	}

	p.count++
	nodes, each := split(gpus, p.opts.PerNode)

	return &sim.Job{
		Name: fmt.Sprintf("philly-%d", p.count), At: at, Owner: user(cluster), Duration: atLeastSecond(lasts),
		Spec: p.specs.of(ask{nodes: nodes, gpus: each}),
	}, nil
}

// phillyLog reads the job log that was published with the Philly trace: one JSON
// list of jobs with their attempts. A job lasts as long as its attempts together
// and has the GPUs of the attempt that had most; whether it passed is not used.
// The list is in no order: it is read with the option to sort.
type phillyLog struct {
	*rows.JSON
	opts  Options
	specs *specs
	began bool
}

type phillyJob struct {
	Name      string          `json:"jobid"`
	Cluster   string          `json:"vc"`
	User      string          `json:"user"`
	Submitted string          `json:"submitted_time"`
	Attempts  []phillyAttempt `json:"attempts"`
}

type phillyAttempt struct {
	Start  string `json:"start_time"`
	End    string `json:"end_time"`
	Detail []struct {
		GPUs []string `json:"gpus"`
	} `json:"detail"`
}

func openPhillyLog(f *rows.File, opts Options) *phillyLog {
	return &phillyLog{JSON: rows.NewJSON(f), opts: opts, specs: newSpecs()}
}

func (p *phillyLog) job() (*sim.Job, error) {
	if !p.began {
		p.began = true
		if err := p.Expect(json.Delim('[')); err != nil {
			return nil, err
		}
	}

	if !p.More() {
		if err := p.Expect(json.Delim(']')); err != nil {
			return nil, err
		}

		return nil, io.EOF
	}

	raw, err := p.Element()
	if err != nil {
		return nil, err
	}

	var j phillyJob
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, p.Bad(0, rows.FieldOf(err), "invalid job of a Philly log")
	}

	return p.convert(&j)
}

func (p *phillyLog) convert(j *phillyJob) (*sim.Job, error) {
	if p.opts.Cluster != "" && p.opts.Cluster != j.Cluster {
		return nil, errNothing
	}

	at, err := time.Parse(calendar, j.Submitted)
	if err != nil || at.Year() < 1970 || at.Year() >= 2200 {
		return nil, p.Bad(0, "submitted_time", "invalid time %q: expected the format %s", rows.Short(j.Submitted), calendar)
	}

	var lasts time.Duration
	var most phillyAttempt

	for _, a := range j.Attempts {
		if len(a.Detail) == 0 || unknown(a.Start) || unknown(a.End) {
			continue // it never got its GPUs, or the log does not know when it ended
		}

		start, err1 := time.Parse(calendar, a.Start)

		end, err2 := time.Parse(calendar, a.End)
		if err1 != nil || err2 != nil || end.Before(start) {
			return nil, p.Bad(0, "attempts", "invalid attempt from %q to %q", rows.Short(a.Start), rows.Short(a.End))
		}

		lasts += end.Sub(start)

		if a.gpus() > most.gpus() {
			most = a
		}
	}

	if most.gpus() == 0 {
		return nil, errNothing
	}

	nodes, each := most.shape(p.opts.PerNode)

	owner := j.User
	if owner == "" {
		owner = j.Cluster
	}

	return &sim.Job{
		Name: j.Name, At: at.Sub(time.Unix(0, 0)), Owner: user(owner), Duration: atLeastSecond(lasts),
		Spec: p.specs.of(ask{nodes: nodes, gpus: each}),
	}, nil
}

// unknown reports whether the log does not know a time.
func unknown(text string) bool { return text == "" || strings.EqualFold(text, "none") }

func (a *phillyAttempt) gpus() int {
	n := 0
	for _, d := range a.Detail {
		n += len(d.GPUs)
	}

	return n
}

// shape returns the nodes that the attempt had and the GPUs on each; where these
// differ, the GPUs are divided anew.
func (a *phillyAttempt) shape(perNode int) (nodes, each int) {
	for _, d := range a.Detail {
		if len(d.GPUs) != len(a.Detail[0].GPUs) || perNode > 0 && len(d.GPUs) > perNode {
			return split(a.gpus(), perNode)
		}
	}

	return len(a.Detail), len(a.Detail[0].GPUs)
}
