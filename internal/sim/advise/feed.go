package advise

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// jobHistory is what the events say about a job.
type jobHistory struct {
	Job
	afterPeriod bool // submitted after the period
	runs        []attempt
}

// attempt is one run of a job.
type attempt struct {
	id                      id.Run
	ordered, started, ended time.Time
	cause                   job.Cause
}

// detail reads the API's answer about a job that was submitted before the period: what
// it ran from the beginning of the period on.
func (l *jobHistory) detail(d *api.JobDetail, from, now time.Time) error {
	l.Owner, l.Submitted, l.Spec = d.Owner, from, &job.Spec{}
	if d.Ended != nil {
		l.Ended = *d.Ended
	}

	if err := json.Unmarshal(d.Spec, l.Spec); err != nil {
		return fmt.Errorf("read the spec of job %s: %w", d.ID, err)
	}

	for i := range d.Runs {
		run := &d.Runs[i]
		a := attempt{id: run.ID, ordered: latest(run.Ordered, from), ended: now, cause: run.Cause}
		if run.Ended != nil {
			a.ended = *run.Ended
		}

		if run.Started == nil || !a.ended.After(from) {
			continue
		}

		a.started = latest(*run.Started, from)
		l.runs = append(l.runs, a)
	}

	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// readFeed reads what happened from the beginning of the period on, until all jobs
// that were submitted in it have ended or the feed ends.
func (r *reader) readFeed(ctx context.Context) error {
	cursor, err := r.seek(ctx)
	if err != nil {
		return err
	}

	f := api.EventFilter{Specs: true}
	f.Limit = pageSize
	read, open := 0, 0

	for {
		f.Cursor = strconv.FormatUint(cursor, 10)
		page, err := r.Events(ctx, f)
		if err != nil {
			return err
		}

		for i := range page.Events {
			e := &page.Events[i]
			cursor = e.Seq

			more, err := r.note(e)
			if err != nil {
				return err
			}

			open += more
		}

		read += len(page.Events)
		r.progress("events", read)

		if n := len(page.Events); n < pageSize || open <= 0 && page.Events[n-1].At.After(r.h.To) {
			return nil
		}
	}
}

// seek finds the last event before the period by halves: the feed is in order of time
// and is asked for by number alone.
func (r *reader) seek(ctx context.Context) (uint64, error) {
	last, err := r.Events(ctx, api.EventFilter{Tail: 1, Page: api.Page{Limit: 1}})
	if err != nil || len(last.Events) == 0 {
		return 0, err
	}

	low, high := uint64(0), last.Events[len(last.Events)-1].Seq
	for low < high {
		middle := low + (high-low)/2
		f := api.EventFilter{}
		f.Cursor, f.Limit = strconv.FormatUint(middle, 10), 1
		page, err := r.Events(ctx, f)
		if err != nil {
			return 0, err
		}

		if len(page.Events) == 0 || !page.Events[0].At.Before(r.h.From) {
			high = middle
		} else {
			low = page.Events[0].Seq
		}
	}

	return low, nil
}

// note takes an event, and returns by how many the jobs grow that have not ended.
func (r *reader) note(e *api.Event) (more int, err error) {
	if e.Node != "" && e.Job == "" {
		r.noteNode(e)
		return 0, nil
	}

	l := r.lives[e.Job]
	if e.Kind == "job.submitted" {
		return r.submitted(e, l)
	}
	if l == nil || l.Carried {
		return 0, nil
	}

	switch {
	case e.Kind == "run.ended":
		for i := range l.runs {
			if a := &l.runs[i]; a.id == e.Run {
				a.ended, a.cause = e.At, job.Cause(e.To)
			}
		}
	case !strings.HasPrefix(e.Kind, "job."): // leases of a job have states of their own
	case e.To == string(job.Starting) && e.Run != "":
		l.runs = append(l.runs, attempt{id: e.Run, ordered: e.At})
	case e.To == string(job.Running):
		for i := range l.runs {
			if a := &l.runs[i]; a.id == e.Run && a.started.IsZero() {
				a.started = e.At
			}
		}
	case job.State(e.To).Final() && l.Ended.IsZero():
		l.Ended = e.At
		return -1, nil
	}

	return 0, nil
}

// submitted takes note of a job's submission.
func (r *reader) submitted(e *api.Event, l *jobHistory) (more int, err error) {
	if l == nil {
		l = &jobHistory{Job: Job{ID: e.Job}}
		r.lives[e.Job] = l
	}

	if !e.At.Before(r.h.To) {
		l.afterPeriod = true
		return 0, nil
	}

	l.Carried = false
	l.Owner = e.Owner
	l.Submitted = e.At
	l.Spec = &job.Spec{}
	if len(e.Spec) == 0 {
		l.Spec = nil
		return 0, nil
	}

	if err := json.Unmarshal(e.Spec, l.Spec); err != nil {
		return 0, fmt.Errorf("read the spec of job %s: %w", e.Job, err)
	}

	return 1, nil
}

// noteNode takes an event of a node.
func (r *reader) noteNode(e *api.Event) {
	n := r.nodes[e.Node]
	if n == nil || e.At.After(r.h.To) {
		return
	}

	switch {
	case e.Kind == "node.joined" && n.Came.IsZero() && len(n.Away) == 0:
		n.Came = e.At
	case e.Kind == "node.cordoned" || e.To == string(fleet.Lost):
		n.Away = append(n.Away, Absence{From: e.At, To: r.h.To, Drained: e.Kind == "node.cordoned"})
	case e.Kind == "node.uncordoned" || e.To == string(fleet.Ready) && e.From == string(fleet.Lost):
		if len(n.Away) == 0 && n.Came.IsZero() {
			n.Away = append(n.Away, Absence{From: r.h.From, Drained: e.Kind == "node.uncordoned"})
		}

		if k := len(n.Away); k > 0 {
			n.Away[k-1].To = e.At
		}
	}
}

// names lists the jobs by number.
func (r *reader) names() []id.Job {
	list := slices.Collect(maps.Keys(r.lives))
	slices.SortFunc(list, func(a, b id.Job) int {
		x, _ := a.Number()
		y, _ := b.Number()
		return cmp.Compare(x, y)
	})

	return list
}

// finish puts together what was read.
func (r *reader) finish() {
	never := 0
	waiting := 0
	running := 0
	unknown := 0
	needs := 0

	for _, name := range r.names() {
		l := r.lives[name]
		if l.afterPeriod {
			continue
		}

		if l.Spec == nil {
			unknown++
			continue
		}

		for i := range l.runs {
			r.addRun(l, &l.runs[i])
		}

		switch {
		case len(l.Stretches) == 0 && l.Ended.IsZero():
			waiting++
			continue
		case len(l.Stretches) == 0:
			never++
			continue
		case l.Ended.IsZero():
			running++
		}

		if len(l.Spec.Needs) > 0 {
			needs++
		}

		r.h.Jobs = append(r.h.Jobs, l.Job)
	}

	slices.SortStableFunc(r.h.Jobs, func(a, b Job) int { return a.Submitted.Compare(b.Submitted) })
	for _, n := range slices.Sorted(maps.Keys(r.nodes)) {
		r.h.Nodes = append(r.h.Nodes, *r.nodes[n])
	}

	for _, c := range []struct {
		n    int
		text string
	}{{never, "ended before they started"}, {waiting, "still queued"}, {unknown, "spec unknown"}} {
		if c.n > 0 {
			r.leftOut("%s: %s", c.text, humanize.Count(c.n, "job"))
		}
	}

	if running > 0 {
		r.gap("assumed to end now because they are still running: %s", humanize.Count(running, "job"))
	}

	if needs > 0 {
		r.gap("started in the replay without waiting for the jobs they need: %s", humanize.Count(needs, "job"))
	}

	r.gap("nodes, prices and the policy are today's; nodes removed since then are not included")
}

// addRun adds what a run did to a job.
func (r *reader) addRun(l *jobHistory, a *attempt) {
	end := a.ended
	if end.IsZero() {
		end = r.now
		if !l.Ended.IsZero() {
			end = l.Ended
		}
	}

	if a.started.IsZero() || !end.After(a.started) {
		return
	}

	s := Stretch{Lasted: end.Sub(a.started)}

	switch a.cause {
	case job.CausePreempted, job.CauseNodeLost, job.CauseSupervisorLost:
		s.Wasted = l.Spec.Checkpoint == nil
	case job.CauseLaunchFailed, job.CauseImageFailed, job.CauseDataFailed, job.CauseSetupFailed, job.CauseRestoreFailed:
		s.Wasted = true
	case job.CauseNone,
		job.CauseUserCode,
		job.CauseDiskLimit,
		job.CauseHostOOM,
		job.CauseGPUOOM,
		job.CauseCancelled,
		job.CauseTimedOut,
		job.CauseNeedFailed:
	}

	r.where(a.id, l.Spec, end.Sub(a.ordered), &s)
	l.Stretches = append(l.Stretches, s)
}

// gpu returns the GPUs of a node on which a run was.
func (r *reader) gpu(u *use) fleet.GPU {
	if n := r.nodes[u.node]; n != nil && len(n.Inventory.GPUs) > 0 {
		return gpuspec.Describe(n.Inventory.GPUs[0])
	}
	if o := r.offer[u.offer]; o != nil && o.GPUs > 0 {
		return gpuspec.Describe(fleet.GPU{Model: o.GPU, Memory: o.GPUMemory, Peak: o.TFLOPS})
	}

	return gpuspec.Describe(fleet.GPU{Model: u.gpu})
}
