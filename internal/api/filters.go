package api

import (
	"net/url"
	"strconv"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Page says which page of a list is wanted. The zero value is the first page
// with as many entries as the server sees fit.
type Page struct {
	Cursor string
	Limit  int
}

func (p Page) query() url.Values {
	q := url.Values{}
	set(q, "cursor", p.Cursor)

	if p.Limit > 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}

	return q
}

// JobFilter says which jobs are wanted. Empty fields do not filter.
type JobFilter struct {
	States  []job.State // also words of their status, in lower case
	Owner   id.User
	Project id.Project
	Name    string
	Node    id.Node
	Array   id.Array // elements of this array
	Single  bool     // jobs that are not elements of an array
	Since   time.Time
	Oldest  bool   // the oldest first
	Sort    string // by name, cost or ended instead of by submission; with - the greatest first
	Counts  bool   // also count them by their status
	Page
}

func (f JobFilter) query() url.Values {
	q := f.Page.query()
	for _, s := range f.States {
		q.Add("state", string(s))
	}

	set(q, "owner", string(f.Owner))
	set(q, "project", string(f.Project))
	set(q, "name", f.Name)
	set(q, "node", string(f.Node))
	set(q, "sort", f.Sort)
	set(q, "array", string(f.Array))

	if f.Single {
		q.Set("single", "true")
	}

	if f.Oldest {
		q.Set("order", "oldest")
	}

	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339))
	}

	if f.Counts {
		q.Set("counts", "true")
	}

	return q
}

// LogFilter says which lines of a job's output are wanted. Empty fields do not filter.
type LogFilter struct {
	Run    id.Run
	Rank   *int
	Stream string
	Grep   string // a regular expression
	Errors bool   // only lines that look like errors
	Tail   int    // only the last so many lines
	Since  time.Time
	Until  time.Time
	// Collapse keeps the last state alone of lines that were rewritten with carriage returns, as progress bars are.
	Collapse bool
	Page
}

func (f LogFilter) query() url.Values {
	q := f.Page.query()
	set(q, "run", string(f.Run))

	if f.Rank != nil {
		q.Set("rank", strconv.Itoa(*f.Rank))
	}

	set(q, "stream", f.Stream)
	set(q, "grep", f.Grep)

	if f.Errors {
		q.Set("errors", "true")
	}

	setTime(q, "since", f.Since)
	setTime(q, "until", f.Until)

	if f.Collapse {
		q.Set("collapse", "true")
	}

	if f.Tail > 0 {
		q.Set("tail", strconv.Itoa(f.Tail))
	}

	return q
}

// EventFilter says which entries of the feed are wanted. Empty fields do not filter.
type EventFilter struct {
	Kind string
	Job  id.Job
	Node id.Node
	// Actor is who caused them: a user, node/NAME or token/ID.
	Actor string
	// Audit leaves only those that a person, a token or a node that renewed its identity caused.
	Audit bool
	Tail  int // without a cursor: only the last so many
	// Specs adds what jobs asked for to their submissions.
	Specs bool
	Page
}

func (f EventFilter) query() url.Values {
	q := f.Page.query()
	set(q, "kind", f.Kind)
	set(q, "job", string(f.Job))
	set(q, "node", string(f.Node))
	set(q, "actor", f.Actor)

	if f.Audit {
		q.Set("audit", "true")
	}

	if f.Tail > 0 {
		q.Set("tail", strconv.Itoa(f.Tail))
	}

	if f.Specs {
		q.Set("specs", "true")
	}

	return q
}

func set(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

func setTime(q url.Values, key string, at time.Time) {
	if !at.IsZero() {
		q.Set(key, at.UTC().Format(time.RFC3339Nano))
	}
}
