package nodes

import (
	"errors"
	"io"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/sim/trace/rows"
)

// Format is a kind of trace of nodes that can be read.
type Format struct {
	Name  string
	About string // one sentence for people

	open  func(*rows.File, Options) (*stream, error)
	guess func(line string) bool
}

// Formats lists the kinds of traces of nodes, in the order in which a file is
// tried when its format is not given.
func Formats() []Format {
	return []Format{
		{
			"summit-nodes",
			"changes of the idle nodes of Summit",
			openSummitNodes,
			func(line string) bool { return line == "t_s,node,state" },
		},
		{
			"spot-counts", "available spot instances in a zone, by tick (JSON)",
			func(f *rows.File, o Options) (*stream, error) { return openSpotCounts(f, o), nil },
			func(line string) bool { return strings.HasPrefix(line, "{") },
		},
		{
			"bamboo", "spot instances joining and leaving a fleet",
			func(f *rows.File, o Options) (*stream, error) { return openBamboo(f, o), nil },
			func(line string) bool { return strings.Contains(line, ",add,") || strings.Contains(line, ",remove,") },
		},
		{
			"gcloud", "number of live spot instances, sampled",
			func(f *rows.File, o Options) (*stream, error) { return openGcloud(f, o), nil },
			func(line string) bool { return strings.Count(line, ", ") == 2 },
		},
	}
}

// Open opens a trace of nodes. Without a format it is guessed from the file's
// beginning. A file whose name ends in .gz is unpacked as it is read.
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

// Read reads a trace of nodes from a text; the name stands for it in messages.
func Read(text io.Reader, name, format string, opts Options) (*Reader, error) {
	return read(rows.New(name, text), format, opts)
}

func read(f *rows.File, format string, opts Options) (*Reader, error) {
	line, _, _ := strings.Cut(strings.TrimLeft(string(f.Peek()), "\ufeff \t\r\n"), "\n")
	var names []string
	for _, c := range Formats() {
		if format == c.Name || format == "" && c.guess(strings.TrimSpace(line)) {
			s, err := c.open(f, opts)
			if err != nil {
				return nil, err
			}

			return &Reader{Window(s, opts.From, opts.Length), s}, nil
		}

		names = append(names, c.Name)
	}

	return nil, fault.New(fault.Invalid, "unknown_format", "cannot guess the format of the node trace %s", f.Name).
		WithRemedy("choose one of %s", strings.Join(names, ", "))
}
