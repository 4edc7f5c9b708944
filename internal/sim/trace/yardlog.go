package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// yardLog reads what a yard recorded, so that its own history can be replayed: the
// feed as `trainyard events -o json` prints it, one object a line or one page, and
// among it, for what jobs asked for, jobs as `trainyard job -o json` prints them.
//
// A job is known when it has ended, and jobs are yielded by submission, so those
// that were submitted after one that still runs are held. A job lasts as long as
// its runs held their nodes. Jobs that never ran, or have not ended, are left out.
type yardLog struct {
	*rows.JSON
	opts     Options
	began    bool
	page     bool // the file is one page of the feed, not an object a line
	atEnd    bool
	lives    map[id.Job]*record
	complete map[id.Job]bool // jobs whose whole record was read
	queue    []*record       // by submission
	specs    *specs
}

// record is what the log has said about a job so far.
type record struct {
	id    id.Job
	owner id.User
	at    time.Time
	spec  *job.Spec
	ran   time.Duration
	since time.Time // its processes run since then; zero if they do not
	ended bool
}

// logEntry is an entry of the feed, or a job.
type logEntry struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Owner id.User   `json:"owner"`
	Job   id.Job    `json:"job"`
	To    job.State `json:"to"`
	Spec  *job.Spec `json:"spec"`

	ID        id.Job     `json:"id"`
	Submitted time.Time  `json:"submitted"`
	Ended     *time.Time `json:"ended"`
	Runs      []struct {
		Started *time.Time `json:"started"`
		Ended   *time.Time `json:"ended"`
	} `json:"runs"`
}

// pageStart is how a page of the feed begins.
var pageStart = regexp.MustCompile(`^\s*\{\s*"events"\s*:\s*\[`)

func openYardLog(f *rows.File, opts Options) *yardLog {
	page := pageStart.Match(f.Peek())
	return &yardLog{
		JSON:     rows.NewJSON(f),
		page:     page,
		opts:     opts,
		lives:    map[id.Job]*record{},
		complete: map[id.Job]bool{},
		specs:    newSpecs(),
	}
}

func (y *yardLog) job() (*sim.Job, error) {
	for {
		if len(y.queue) > 0 && (y.queue[0].ended || y.atEnd) {
			return y.take()
		}
		if y.atEnd {
			return nil, io.EOF
		}

		e, err := y.entry()
		if errors.Is(err, io.EOF) {
			y.atEnd = true
			continue
		}

		if err != nil {
			return nil, err
		}
		if err := y.note(e); err != nil {
			return nil, err
		}
	}
}

// entry reads the next entry.
func (y *yardLog) entry() (*logEntry, error) {
	if y.page && !y.began {
		if err := y.Expect(json.Delim('{'), "events", json.Delim('[')); err != nil {
			return nil, err
		}
	}

	y.began = true
	if y.page && !y.More() {
		if err := y.Expect(json.Delim(']')); err != nil {
			return nil, err
		}

		return nil, io.EOF // what follows is a cursor
	}

	take := y.Value
	if y.page {
		take = y.Element
	}

	raw, err := take()
	if err != nil {
		return nil, err
	}

	var e logEntry
	if err := json.Unmarshal(raw, &e); err != nil || !bytes.HasPrefix(raw, []byte("{")) {
		return nil, y.Bad(0, rows.FieldOf(err), "expected an event or a job")
	}

	return &e, nil
}

// note takes in an entry.
func (y *yardLog) note(e *logEntry) error {
	switch {
	case e.ID != "" && e.Spec != nil:
		return y.noteJob(e)
	case e.Job == "" || y.complete[e.Job]:
		return nil // about a node, a person, the yard; or known already
	}

	if e.At.IsZero() {
		return y.Bad(0, "at", "the event has no time")
	}

	l := y.lives[e.Job]

	if e.Kind == "job.submitted" {
		if l == nil {
			l = y.begin(e.Job, e.Owner, e.At)
		}

		if l.spec == nil {
			l.spec = e.Spec
		}

		return nil
	}

	if l == nil || l.ended {
		return nil // submitted before the log begins, or over
	}

	switch e.To {
	case job.Running:
		l.since = e.At
	case job.Pausing, job.Cancelling:
		// It holds its nodes until it has stopped.
	case job.Pending, job.Starting, job.Recovering, job.Paused, job.Succeeded, job.Failed, job.Cancelled:
		if !l.since.IsZero() {
			l.ran += max(e.At.Sub(l.since), 0)
			l.since = time.Time{}
		}

		l.ended = e.To.Final()
	}

	return nil
}

// noteJob takes in a job with all that is known of it.
func (y *yardLog) noteJob(e *logEntry) error {
	l := y.lives[e.ID]
	if l == nil {
		if e.Submitted.IsZero() {
			return y.Bad(0, "submitted", "the job has no submission time")
		}

		l = y.begin(e.ID, e.Owner, e.Submitted)
	}

	l.spec = e.Spec

	if e.Ended == nil {
		return nil
	}

	l.ended, l.ran, y.complete[e.ID] = true, 0, true
	for _, r := range e.Runs {
		if r.Started != nil && r.Ended != nil {
			l.ran += max(r.Ended.Sub(*r.Started), 0)
		}
	}

	return nil
}

func (y *yardLog) begin(name id.Job, owner id.User, at time.Time) *record {
	l := &record{id: name, owner: owner, at: at}
	y.lives[name] = l
	y.queue = append(y.queue, l)

	return l
}

// take returns the earliest job that has not been returned.
func (y *yardLog) take() (*sim.Job, error) {
	l := y.queue[0]
	y.queue[0] = nil
	y.queue = y.queue[1:]
	delete(y.lives, l.id)
	switch {
	case !l.ended || l.ran <= 0:
		return nil, errNothing
	case l.at.Year() < 1970 || l.at.Year() >= 2200:
		return nil, y.Bad(0, "at", "submission time of %s is out of range: %s", l.id, l.at)
	case l.spec == nil && y.opts.Default == 0:
		return nil, y.Bad(0, "spec", "the log has no spec of job %s", l.id).
			WithRemedy("put the output of `trainyard job %s -o json` in front, or set the default number of GPUs", l.id)
	}

	j := &sim.Job{Name: string(l.id), At: l.at.Sub(time.Unix(0, 0)), Owner: user(string(l.owner)), Duration: l.ran}

	if l.spec == nil {
		nodes, each := split(y.opts.Default, y.opts.PerNode)
		j.Spec = y.specs.of(ask{nodes: nodes, gpus: each})
		return j, nil
	}

	spec, err := replayed(l.spec)
	if err != nil {
		return nil, y.Bad(0, "spec", "invalid spec of job %s: %v", l.id, err)
	}

	j.Spec = spec

	return j, nil
}

// replayed returns the spec of a job that is simulated: what it asks for, without
// what only a real run needs. Jobs that it needed had ended when it started.
func replayed(s *job.Spec) (*job.Spec, error) {
	c := *s
	c.Run = command
	c.Setup = ""
	c.Workdir = ""
	c.Image = ""
	c.Python = nil
	c.Needs, c.After = nil, ""
	c.Pools, c.Nodes, c.Avoid, c.Labels = nil, nil, nil, nil // the nodes of a scenario have other names
	c.Env = nil
	c.Secrets, c.RegistryAuth = nil, ""
	c.Data = nil
	if c.Place == "" {
		c.Place = job.PlaceAny
	}

	r := &c.Resources
	if r.GPUs.Min > fleet.MaxGPUs || r.Nodes.Min > rows.MaxCount || r.GPUs.Min < 0 || r.Nodes.Min < 0 {
		return nil, fault.New(fault.Invalid, rows.BadRow, "%d nodes with %d GPUs", r.Nodes.Min, r.GPUs.Min)
	}

	return &c, nil
}
