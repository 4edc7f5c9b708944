package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// mapping says what the columns of a CSV are. It is a small YAML file:
//
//	columns: {submit: submitted_at, start: began, end: finished, gpus: n_gpu, owner: account}
//	constants: {nodes: 1}
//	time: 2006-01-02T15:04:05   # or seconds, milliseconds, minutes, hours: since any beginning
//	unit: minutes               # of run and expect; seconds if it is not given
//	memory: MB                  # of memory; GB if it is not given
//	delimiter: ";"              # tab and space are written so; a comma if it is not given
//	names: [a, b, c]            # of the columns, for a file without a header
type mapping struct {
	Columns   map[string]string `yaml:"columns"`
	Constants map[string]string `yaml:"constants"`
	Time      string            `yaml:"time"`
	Unit      string            `yaml:"unit"`
	Memory    string            `yaml:"memory"`
	Delimiter string            `yaml:"delimiter"`
	Names     []string          `yaml:"names"`

	unit  time.Duration // of times, 0 if they are written as dates
	run   time.Duration // of lengths
	bytes job.Bytes
	comma byte
}

// mapped are the fields of a job that a column or a constant can give.
var mapped = []string{
	"name", "owner", "cluster", "submit", "start", "end", "run", "expect", "deadline", "late_cost", "priority",
	"gpus", "gpu", "nodes", "cpus", "memory",
}

var timeUnits = map[string]time.Duration{
	"milliseconds": time.Millisecond, "seconds": time.Second, "minutes": time.Minute, "hours": time.Hour,
}

func readMapping(f *rows.File) (*mapping, error) {
	decoder := yaml.NewDecoder(io.LimitReader(f.Rest(), 1<<20))
	decoder.KnownFields(true)

	m := &mapping{}
	if err := decoder.Decode(m); err != nil {
		return nil, fault.New(fault.Invalid, "bad_mapping", "%s is not a valid mapping: %v", f.Name, err).WithCause(err)
	}
	if err := m.check(); err != nil {
		return nil, fault.New(fault.Invalid, "bad_mapping", "%s: %v", f.Name, err)
	}

	return m, nil
}

// check reads the units and finds out whether the mapping says enough.
func (m *mapping) check() error {
	for _, part := range []map[string]string{m.Columns, m.Constants} {
		for name := range part {
			if !slices.Contains(mapped, name) {
				return fmt.Errorf("unknown job field %q; use one of %s", name, strings.Join(mapped, ", "))
			}
		}
	}

	if !m.has("submit") || !m.has("run") && (!m.has("start") || !m.has("end")) {
		return errors.New("submit and either run, or start and end, are required")
	}
	if !m.has("gpus") && !m.has("cpus") {
		return errors.New("gpus or cpus is required")
	}

	var ok bool
	m.run, ok = timeUnits[cmp.Or(m.Unit, "seconds")]
	if !ok {
		return fmt.Errorf("unknown unit of time %q", m.Unit)
	}

	m.unit = timeUnits[cmp.Or(m.Time, "seconds")] // or it is written as a date
	size, err := job.ParseBytes("1" + cmp.Or(m.Memory, "GB"))
	if err != nil {
		return err
	}

	m.bytes = size
	switch m.Delimiter {
	case "":
		m.comma = ','
	case "tab":
		m.comma = '\t'
	case "space":
		m.comma = ' '
	default:
		if len(m.Delimiter) != 1 || m.Delimiter == `"` {
			return fmt.Errorf("delimiter must be a single character, tab or space, got %q", m.Delimiter)
		}

		m.comma = m.Delimiter[0]
	}

	return nil
}

func (m *mapping) has(name string) bool {
	_, column := m.Columns[name]
	_, constant := m.Constants[name]
	return column || constant
}

// mappedCSV reads any CSV by a mapping.
type mappedCSV struct {
	*rows.Table
	m     *mapping
	opts  Options
	specs *specs
	jobs  int
}

func openMapped(f *rows.File, opts Options) (*mappedCSV, error) {
	if opts.Tables == "" {
		return nil, fault.New(fault.Invalid, "missing_tables", "a CSV file needs a mapping of its columns").
			WithRemedy("for example: `columns: {submit: submit_time, run: duration, gpus: num_gpus}`")
	}

	m, err := rows.All(opts.Tables, readMapping)
	if err != nil {
		return nil, err
	}

	t, err := m.table(f)
	if err != nil {
		return nil, err
	}

	return &mappedCSV{Table: t, m: m, opts: opts, specs: newSpecs()}, nil
}

// table reads the file as the mapping says. A constant becomes a column that no
// row has; see value.
func (m *mapping) table(f *rows.File) (*rows.Table, error) {
	var wanted []string
	for _, name := range mapped {
		if column, ok := m.Columns[name]; ok {
			wanted = append(wanted, column)
		}
	}

	if len(m.Names) == 0 {
		return rows.WithHeader(f, m.comma, wanted...)
	}

	for _, w := range wanted {
		if !slices.Contains(m.Names, w) {
			return nil, fault.New(fault.Invalid, "bad_mapping", "names has no column %q", w)
		}
	}

	return rows.NewTable(f, m.comma, m.Names...), nil
}

func (c *mappedCSV) job() (*sim.Job, error) {
	if err := c.Read(); err != nil {
		return nil, err
	}
	if c.opts.Cluster != "" && c.value("cluster") != c.opts.Cluster {
		return nil, errNothing
	}

	lasts := c.length("run")
	if !c.m.has("run") {
		if c.value("start") == "" || c.value("end") == "" {
			return nil, errNothing // it never ran, or has not ended
		}

		lasts = c.when("end") - c.when("start")
	}

	at := c.when("submit")
	a := c.ask()

	if c.Err == nil && lasts < 0 {
		c.Fail(c.m.Columns["end"], "the job ends before it starts")
	}

	if c.Err != nil {
		return nil, c.Err
	}
	if a.gpus == 0 && a.cpus == 0 {
		return nil, errNothing
	}

	spec := c.special(c.specs.of(a))
	c.jobs++
	j := &sim.Job{
		Name:     strings.Clone(c.value("name")),
		At:       at,
		Owner:    user(c.value("owner")),
		Duration: atLeastSecond(lasts),
		Spec:     spec,
	}

	if j.Name == "" {
		j.Name = fmt.Sprintf("job-%d", c.jobs)
	}

	if c.Err != nil {
		return nil, c.Err
	}

	return j, nil
}

// ask reads what the job asks of each node.
func (c *mappedCSV) ask() ask {
	gpus, nodes := c.whole("gpus"), max(c.whole("nodes"), 1)
	a := ask{nodes: nodes, gpus: gpus / nodes, kinds: c.value("gpu"), expect: job.Duration(c.length("expect"))}
	switch {
	case !c.m.has("nodes"):
		a.nodes, a.gpus = split(gpus, c.opts.PerNode)
	case gpus%nodes != 0:
		c.Fail(c.m.Columns["gpus"], "%d GPUs cannot be divided evenly among %d nodes", gpus, nodes)
	}

	if a.gpus > fleet.MaxGPUs {
		c.Fail(c.m.Columns["gpus"], "a node has at most %d GPUs", fleet.MaxGPUs)
	}

	a.cpus = job.CPUs(c.amount("cpus") * 1000 / float64(a.nodes))
	a.memory = job.Bytes(c.amount("memory") * float64(c.m.bytes) / float64(a.nodes))

	return a
}

// special returns the spec with what few jobs have in common: deadline, priority.
func (c *mappedCSV) special(shared *job.Spec) *job.Spec {
	if c.value("deadline") == "" && c.value("priority") == "" && c.value("late_cost") == "" {
		return shared
	}

	spec := *shared
	if c.value("deadline") != "" {
		due := time.Unix(0, 0).Add(c.when("deadline"))
		spec.Deadline = &due
	}

	spec.Priority = min(c.whole("priority"), 100)
	spec.LateCost = job.Money(c.amount("late_cost") * 1e6)

	return &spec
}

// value returns what the row or the constants say, "" for nothing.
func (c *mappedCSV) value(name string) string {
	if column, ok := c.m.Columns[name]; ok {
		return c.Text(column)
	}

	return c.m.Constants[name]
}

// amount reads a number that is not negative, 0 if there is none.
func (c *mappedCSV) amount(name string) float64 {
	text := c.value(name)
	if text == "" {
		return 0
	}

	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= 1e9) {
		c.Fail(c.m.Columns[name], "must be a non-negative number, got %q", rows.Short(text))
		return 0
	}

	return n
}

func (c *mappedCSV) whole(name string) int {
	n := c.amount(name)
	if n != float64(int(n)) || n > rows.MaxCount {
		c.Fail(c.m.Columns[name], "must be an integer between 0 and %d, got %q", rows.MaxCount, rows.Short(c.value(name)))
		return 0
	}

	return int(n)
}

// length reads a length of time.
func (c *mappedCSV) length(name string) time.Duration {
	n := c.amount(name)
	if n*c.m.run.Seconds() > rows.MaxSeconds {
		c.Fail(c.m.Columns[name], "must be at most 250 years, got %q", rows.Short(c.value(name)))
		return 0
	}

	return rows.Scaled(n, c.m.run)
}

// when reads a point in time.
func (c *mappedCSV) when(name string) time.Duration {
	column, ok := c.m.Columns[name]
	switch {
	case !ok:
		c.Fail(name, "must be a column, not a constant")
		return 0
	case c.m.unit > 0:
		return c.Units(column, c.m.unit)
	}

	return c.Wall(column, c.m.Time)
}
