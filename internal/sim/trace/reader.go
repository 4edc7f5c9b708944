package trace

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// Options say how to read a trace. The zero value reads every format that needs
// no second file.
type Options struct {
	// SkipBad skips rows that cannot be read, and counts them.
	SkipBad bool
	// Sort reads all jobs into memory and sorts them, for a file that is not in
	// order of submission. Without it such a file is an error.
	Sort bool
	// Cluster takes only the jobs of this virtual cluster, queue or partition.
	Cluster string
	// PerNode is how many GPUs a node has: a job with more is divided among
	// several nodes. 0 keeps every job on one.
	PerNode int
	// GPUs makes the processors of an SWF log GPUs; else they are CPUs.
	GPUs bool
	// CPUs also asks for the CPUs and memory that the trace knows. Without it
	// jobs ask for GPUs alone, and those that want none are left out.
	CPUs bool
	// Exact lets owners expect what comes true where the trace does not know what
	// they expected. Without it the run time of such a job is unknown.
	Exact bool
	// Default is how many GPUs a job has whose log does not say it; 0 makes that an error.
	Default int
	// Tables is the second file or folder that a format needs: the throughputs of
	// a Gavel trace, the profiles of a Pollux or Sia workload (folders joined by
	// the list separator), the throughputs of Summit jobs, the mapping of a CSV.
	Tables string
	// Mode says how much of a Pollux or Sia job may change.
	Mode Mode
	// Start is what a start costs a job; 0 means what was published with the
	// trace, less than 0 nothing.
	Start time.Duration
	Save  time.Duration // what stopping costs a job
}

// start returns what a start costs, given what was published.
func (o Options) start(published time.Duration) time.Duration {
	switch {
	case o.Start < 0:
		return 0
	case o.Start > 0:
		return o.Start
	}

	return published
}

// Reader yields the jobs of a trace.
type Reader struct {
	source   io.Closer // nil if there is nothing to close
	next     func() (*sim.Job, error)
	where    *rows.File // for errors
	skipBad  bool
	exact    bool
	absolute bool // times are since 1970, and the first job makes the beginning
	skipped  int
	leftOut  int
	began    bool
	zero     time.Duration // of the first job
	last     time.Duration
	err      error // stays once it has come
}

var _ sim.Jobs = (*Reader)(nil)

// errNothing is returned for a sound row that holds nothing to simulate.
var errNothing = errors.New("nothing to simulate")

// Next returns the next job, and io.EOF after the last. After an error it
// returns the same error again.
func (r *Reader) Next() (*sim.Job, error) {
	for r.err == nil {
		j, err := r.next()
		var bad *fault.Error
		switch {
		case err == nil:
			if err := r.place(j); err != nil {
				return nil, r.end(err)
			}

			return j, nil
		case errors.Is(err, errNothing):
			r.leftOut++
		case r.skipBad && errors.As(err, &bad) && bad.Code == rows.BadRow:
			r.skipped++
		default:
			return nil, r.end(err)
		}
	}

	return nil, r.err
}

// place puts the job on the simulation's time, and checks the order.
func (r *Reader) place(j *sim.Job) error {
	if !r.began && r.absolute {
		r.zero = j.At
	}

	if r.began && j.At < r.last {
		e := fault.New(fault.Invalid, "trace_order", "jobs must be in order of submission: %s is earlier than the job "+
			"before it", j.Name).
			WithRemedy("sort the file, or use the option sort, which keeps all jobs in memory")
		e.Message += ", in " + r.where.Name
		e.Line, e.Column = r.where.Line, 1

		return e
	}

	r.began, r.last = true, j.At
	if j.Spec.Deadline != nil && r.absolute {
		due := sim.Epoch().Add(j.Spec.Deadline.Sub(time.Unix(0, 0)) - r.zero)
		own(j).Deadline = &due
	}

	if j.Spec.Expect == 0 && r.exact {
		own(j).Expect = job.Duration(j.Duration)
	}

	j.At -= r.zero

	return nil
}

// own gives a job a spec of its own, which may be changed.
func own(j *sim.Job) *job.Spec {
	spec := *j.Spec
	j.Spec = &spec
	return j.Spec
}

// end ends the reading for good and closes what is open.
func (r *Reader) end(err error) error {
	r.err = err
	if closing := r.Close(); closing != nil && errors.Is(err, io.EOF) {
		r.err = closing
	}

	return r.err
}

// Skipped returns how many rows could not be read and were skipped.
func (r *Reader) Skipped() int { return r.skipped }

// LeftOut returns how many sound rows held nothing to simulate: jobs that never
// ran, or that want no GPU where only GPUs are simulated.
func (r *Reader) LeftOut() int { return r.leftOut }

// Close closes the trace. It is closed by itself at its end.
func (r *Reader) Close() error {
	if r.source == nil {
		return nil
	}

	source := r.source
	r.source = nil

	return source.Close()
}

// sort reads all jobs when the first is asked for, and yields them by order of submission.
func (r *Reader) sort() {
	inner := r.next
	var jobs []*sim.Job
	read := false
	r.next = func() (*sim.Job, error) {
		for !read {
			j, err := inner()
			switch {
			case err == nil:
				jobs = append(jobs, j)
			case errors.Is(err, io.EOF):
				read = true
				slices.SortStableFunc(jobs, func(a, b *sim.Job) int { return cmp.Compare(a.At, b.At) })
			default:
				return nil, err
			}
		}

		if len(jobs) == 0 {
			return nil, io.EOF
		}

		j := jobs[0]
		jobs = jobs[1:]

		return j, nil
	}
}

// user makes a name that may own a job from what a trace calls its owner.
func user(name string) id.User {
	name = strings.ToLower(strings.TrimSpace(name))
	if id.Name(name) {
		return id.User(strings.Clone(name))
	}

	clean := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			return c
		}

		return '-'
	}, name)

	clean = strings.Trim(clean[:min(len(clean), id.MaxName)], "-_.")
	if clean == "" {
		return "unknown"
	}

	return id.User(clean)
}
