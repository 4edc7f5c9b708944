package trace

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// swfColumns are the 18 fields of a line of the standard workload format. What
// follows them, as some archives add, is not read.
var swfColumns = []string{
	"job", "submit", "wait", "run", "procs", "cpu_time", "memory", "requested_procs", "requested_time",
	"requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding", "think_time",
}

// SWFHeader is what the comments at the beginning of an SWF log say of the machine.
type SWFHeader struct {
	Fields   map[string]string // as written: "Computer", "Installation", …
	MaxProcs int
	MaxNodes int
	Start    time.Time // zero if it is not said
}

// swf reads a log of the Parallel Workloads Archive.
//
// A job asks for the processors that were requested, or else allocated. The
// requested time is what its owner expects; the run time is how long it lasts,
// at least a second. -1 stands for unknown: jobs that have no run time or no
// processors never ran and are left out.
type swf struct {
	*rows.Table
	header SWFHeader
	opts   Options
	specs  *specs
}

func openSWF(f *rows.File, opts Options) (*swf, error) {
	s := &swf{
		Table:  rows.NewTable(f, ' ', swfColumns...),
		opts:   opts,
		specs:  newSpecs(),
		header: SWFHeader{Fields: map[string]string{}},
	}

	for {
		line, err := f.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return s, nil
			}

			return nil, err
		}

		text := strings.TrimSpace(line)
		switch {
		case text == "":
		case strings.HasPrefix(text, ";"):
			s.header.note(text)
		default:
			f.Unread(line)
			return s, nil
		}
	}
}

// note takes in one line of the header.
func (h *SWFHeader) note(line string) {
	name, value, ok := strings.Cut(strings.TrimLeft(line, "; \t"), ":")
	if !ok || strings.ContainsAny(name, " \t") || len(h.Fields) >= 100 {
		return // a remark
	}

	value = strings.TrimSpace(value)
	h.Fields[name] = value

	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return
	}

	switch name {
	case "MaxProcs":
		h.MaxProcs = int(number)
	case "MaxNodes":
		h.MaxNodes = int(number)
	case "UnixStartTime":
		h.Start = time.Unix(number, 0).UTC()
	}
}

func (s *swf) job() (*sim.Job, error) {
	for {
		if err := s.Read(); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(s.Fields[0], ";") { // remarks may stand anywhere
			break
		}
	}

	run, procs := s.Number("run"), s.Number("requested_procs")
	if procs <= 0 {
		procs = s.Number("procs")
	}

	at, expect := s.Seconds("submit"), s.Number("requested_time")
	name := s.Text("job")
	owner := s.Text("user")
	queue := s.Text("queue")
	s.Text("think_time")

	if s.Err != nil { // the last of the fields must be there
		return nil, s.Err
	}

	switch {
	case run > rows.MaxSeconds || expect > rows.MaxSeconds:
		s.Fail("run", "must be at most 250 years")
	case procs > rows.MaxCount:
		s.Fail("procs", "must be at most %d processors", rows.MaxCount)
	case run < 0 || procs <= 0:
		return nil, errNothing
	case s.opts.Cluster != "" && s.opts.Cluster != queue && s.opts.Cluster != s.Text("partition"):
		return nil, errNothing
	}

	if s.Err != nil {
		return nil, s.Err
	}

	a := ask{expect: job.Duration(rows.Scaled(max(expect, 0), time.Second))}
	a.nodes, a.gpus = split(int(procs), s.opts.PerNode)
	if !s.opts.GPUs {
		a.gpus, a.cpus = 0, job.CPUs(a.gpus)*1000
	}

	j := &sim.Job{
		Name:     "swf-" + strings.Clone(name),
		At:       at,
		Owner:    "unknown",
		Duration: atLeastSecond(rows.Scaled(run, time.Second)),
		Spec:     s.specs.of(a),
	}

	if owner != "-1" {
		j.Owner = id.User("user" + string(user(owner)))
	}

	return j, nil
}

// ReadSWFHeader returns what the header of an SWF log says.
func ReadSWFHeader(name string) (SWFHeader, error) {
	return rows.All(name, func(f *rows.File) (SWFHeader, error) {
		s, err := openSWF(f, Options{})
		if err != nil {
			return SWFHeader{}, err
		}

		return s.header, nil
	})
}
