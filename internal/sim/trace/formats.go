package trace

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// Format is a kind of trace that can be read.
type Format struct {
	Name  string
	About string // one sentence for people
	// Tables says what second file the format needs or may have; "" for none.
	Tables string

	absolute bool // its times are those of a calendar or a clock
	open     func(*rows.File, Options) (func() (*sim.Job, error), error)
	guess    func(name, line string) bool
}

// Formats lists the kinds of traces of jobs, in the order in which a file is
// tried when its format is not given.
func Formats() []Format {
	return []Format{
		{
			Name:     "csv",
			About:    "any table, with a mapping that names its columns",
			Tables:   "the mapping, a YAML file",
			absolute: true,
			open:     from(openMapped),
			guess:    func(string, string) bool { return false }, // only by its mapping
		},
		{
			Name: "gavel", About: "trace of the Gavel scheduler", Tables: "measured throughputs, a JSON file",
			open: from(openGavel),
			guess: func(name, line string) bool {
				return strings.HasSuffix(name, ".trace") || strings.Count(line, "\t") >= len(gavelShort)-1
			},
		},
		{
			Name: "swf", About: "standard workload format of the Parallel Workloads Archive",
			absolute: true, open: from(openSWF),
			guess: func(name, line string) bool {
				return strings.HasSuffix(name, ".swf") || strings.HasPrefix(line, ";") || swfLine.MatchString(line)
			},
		},
		{
			Name: "philly", About: "table of the jobs of Microsoft's Philly cluster",
			absolute: true, open: from(openPhilly), guess: columns("timestamp", "num_gpus", "cluster"),
		},
		{
			Name: "philly-log", About: "job log of Microsoft's Philly cluster as published (JSON)",
			absolute: true, open: from(func(f *rows.File, o Options) (*phillyLog, error) { return openPhillyLog(f, o), nil }),
			guess: func(_, line string) bool { return strings.HasPrefix(line, "[") },
		},
		{
			Name: "helios", About: "job table of SenseTime's Helios clusters",
			absolute: true, open: from(openHelios), guess: columns("job_id", "gpu_num", "submit_time"),
		},
		{
			Name: "pai", About: "task table of Alibaba's PAI cluster, 2020",
			absolute: true, open: from(openPAI),
			guess: func(name, line string) bool {
				return strings.HasPrefix(name, "pai_task_table") || strings.HasPrefix(line, "job_name,task_name,")
			},
		},
		{
			Name: "openb", About: "pods of Alibaba's GPU-sharing cluster, 2023",
			absolute: true, open: from(openOpenb), guess: columns("gpu_milli", "creation_time"),
		},
		{
			Name: "pollux", About: "workload of the Pollux and Sia simulators", Tables: "folders of profiles",
			open: from(openPollux), guess: columns("application", "num_replicas", "batch_size"),
		},
		{
			Name:     "summit",
			About:    "jobs of the FreeTrain replay on Summit",
			Tables:   "measured throughputs, a CSV file (the published ones without it)",
			absolute: true,
			open:     from(openSummitJobs),
			guess:    columns("t_submit_s", "scale_up_s"),
		},
		{
			Name: "yard", About: "event log of a yard, as printed by `trainyard events -o json`",
			absolute: true, open: from(func(f *rows.File, o Options) (*yardLog, error) { return openYardLog(f, o), nil }),
			guess: func(_, line string) bool { return strings.HasPrefix(line, "{") },
		},
	}
}

// swfLine is a line of an SWF log: eighteen numbers, and what some archives add.
var swfLine = regexp.MustCompile(`^\s*(-?[0-9.]+\s+){17}-?[0-9.]+(\s|$)`)

// source yields the jobs of a trace.
type source interface{ job() (*sim.Job, error) }

// from makes an opener of jobs of one that returns a source of its own type.
func from[S source](
	open func(*rows.File, Options) (S, error),
) func(*rows.File, Options) (func() (*sim.Job, error), error) {
	return func(f *rows.File, o Options) (func() (*sim.Job, error), error) {
		s, err := open(f, o)
		if err != nil {
			return nil, err
		}

		return s.job, nil
	}
}

// columns guesses a format by the names of columns in the first line.
func columns(wanted ...string) func(name, line string) bool {
	return func(_, line string) bool {
		have := strings.Split(line, ",")
		for _, w := range wanted {
			if !slices.Contains(have, w) {
				return false
			}
		}

		return true
	}
}

// Open opens a trace of jobs. Without a format it is guessed from the file's name
// and beginning. A file whose name ends in .gz is unpacked as it is read. The
// reader closes the file at its end; one that is left before that is to be closed.
func Open(name, format string, opts Options) (*Reader, error) {
	f, err := rows.Open(name)
	if err != nil {
		return nil, err
	}

	r, err := read(f, format, opts)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return r, nil
}

// Read reads a trace of jobs from a text. The name stands for it in messages and
// in the guess of its format.
func Read(text io.Reader, name, format string, opts Options) (*Reader, error) {
	return read(rows.New(name, text), format, opts)
}

func read(f *rows.File, format string, opts Options) (*Reader, error) {
	found, err := find(f, format, opts)
	if err != nil {
		return nil, err
	}

	next, err := found.open(f, opts)
	if err != nil {
		return nil, err
	}

	r := &Reader{source: f, next: next, where: f, skipBad: opts.SkipBad, exact: opts.Exact, absolute: found.absolute}
	if opts.Sort {
		r.sort()
	}

	return r, nil
}

// find returns the format with a name, or the one that the file looks like. A CSV
// is known by its mapping.
func find(f *rows.File, format string, opts Options) (*Format, error) {
	formats := Formats()
	wanted := func(o Format) bool { return o.Name == format }
	says := fmt.Sprintf("unknown trace format %q", format)

	if ext := filepath.Ext(opts.Tables); format == "" && (ext == ".yaml" || ext == ".yml") {
		format = "csv"
	} else if format == "" {
		name := strings.TrimSuffix(f.Name, ".gz")
		line, _, _ := strings.Cut(strings.TrimLeft(string(f.Peek()), "\ufeff \t\r\n"), "\n")
		line = strings.TrimSpace(line)
		wanted = func(o Format) bool { return o.guess(name, line) }
		says = "cannot guess the trace format of " + f.Name
	}

	if at := slices.IndexFunc(formats, wanted); at >= 0 {
		return &formats[at], nil
	}

	names := make([]string, len(formats))
	for i, o := range formats {
		names[i] = o.Name
	}

	return nil, fault.New(fault.Invalid, "unknown_format", "%s", says).
		WithRemedy("choose one of %s", strings.Join(names, ", "))
}
