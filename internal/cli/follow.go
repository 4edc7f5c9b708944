package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// maxAttempts bounds how often in a row a broken feed is taken up again: about
// a quarter of an hour. Attempts count, not time, so that a laptop that slept goes on.
const maxAttempts = 64

// printer writes lines of output. Several jobs may share it.
type printer struct {
	mu     sync.Mutex
	out    io.Writer
	stamps bool
	json   bool
	ranks  bool // some job has several ranks: say whose line it is
	open   string
}

// line writes one line; label says which job it is from where there are several.
func (p *printer) line(label string, l api.LogLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		encoder := json.NewEncoder(p.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(l)
	}
	source := fmt.Sprintf("%s %s %d %s", label, l.Run, l.Rank, l.Stream)
	var head, end string
	if p.open != source {
		if p.open != "" {
			head = "\n"
		}
		head += p.prefix(label, l)
	}
	p.open = ""
	if l.Partial {
		p.open = source
	} else {
		end = "\n"
	}
	text := []byte(l.Text)
	if l.Raw != nil {
		text = l.Raw
	}
	_, err := p.out.Write(append(append([]byte(head), text...), end...))
	return err
}

func (p *printer) prefix(label string, l api.LogLine) string {
	var out strings.Builder
	if p.stamps {
		out.WriteString(l.At.UTC().Format("2006-01-02T15:04:05.000Z") + " ")
	}
	if label != "" {
		out.WriteString("[" + label + "] ")
	}
	p.ranks = p.ranks || l.Rank > 0
	if p.ranks {
		_, _ = fmt.Fprintf(&out, "[rank %d] ", l.Rank)
	}
	if l.Stream == "yard" {
		out.WriteString("[yard] ")
	}
	return out.String()
}

// retries reports whether a feed that broke off with this error may be taken up again.
func retries(err error) bool {
	switch fault.KindOf(err) {
	case "", fault.Unavailable, fault.Internal, fault.OverLimit:
		return true
	}
	return false
}

// persist keeps a feed going: it calls open until open reports that the feed
// is over, and again after a pause when it broke off. open calls alive with
// each item it gets.
func (a *app) persist(ctx context.Context, open func(alive func()) (over bool, err error)) error {
	failures, told := 0, false
	alive := func() {
		if told {
			a.note("The yard is back.")
		}
		failures, told = 0, false
	}
	for {
		over, err := open(alive)
		if over || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		failures++
		if !retries(err) || failures > maxAttempts {
			return err
		}
		if err != nil && !told && failures > 1 {
			a.note("Lost the connection to the yard; trying again. Jobs go on without it.")
			told = true
		}
		if !backoff(ctx, failures) {
			return ctx.Err()
		}
	}
}

// followJob follows a job's output and state until it has ended, over lost
// connections and restarts of the server, and returns the job as it ended.
func (a *app) followJob(ctx context.Context, client *api.Client, j id.Job, f api.LogFilter, line func(api.LogLine) error, state func(api.Job)) (api.Job, error) {
	var last api.Job
	err := a.persist(ctx, func(alive func()) (bool, error) {
		over := false
		err := client.FollowLogs(ctx, j, f, func(item api.LogItem) error {
			alive()
			if item.Cursor != "" {
				f.Cursor, f.Tail = item.Cursor, 0
			}
			if item.Line != nil {
				if err := line(*item.Line); err != nil {
					over = true
					return fmt.Errorf("write output: %w", err)
				}
				return nil
			}
			last = *item.Job
			state(last)
			over = over || item.End
			return nil
		})
		return over, err
	})
	return last, err
}

// stateNotes returns a function that tells the person of a job's changes, each once.
func (a *app) stateNotes(first api.Job) func(api.Job) {
	shown := first.Status
	reason := first.Reason
	return func(j api.Job) {
		if j.Status == shown && j.Reason == reason {
			return
		}
		shown, reason = j.Status, j.Reason
		a.note("%s", a.stateLine(j))
	}
}

// stateLine says in a line where a job stands.
func (a *app) stateLine(j api.Job) string {
	word := string(j.Status)
	if a.color(a.env.Stderr) {
		word = statusColor(j.Status).Paint(word)
	}
	text := string(j.ID)
	if j.Name != "" {
		text += " " + table.Plain(j.Name)
	}
	text += " " + word
	if j.State.Final() && j.Started != nil && j.Ended != nil {
		text += " after " + table.Duration(j.Ended.Sub(*j.Started))
	}
	if j.Reason != "" {
		text += ": " + table.Plain(j.Reason)
	}
	if j.FakeGPUs {
		text += " (fake GPUs)"
	}
	return text
}

// maxAttached bounds how many jobs of one file are followed at once.
const maxAttached = 20

// attach follows freshly submitted jobs to their end and returns the error
// that carries their exit code.
func (a *app) attach(ctx context.Context, client *api.Client, jobs []api.Job) error {
	if len(jobs) > maxAttached {
		a.note("The file has %d jobs; they are not followed. Watch them with: trainyard jobs -w", len(jobs))
		return nil
	}
	p := &printer{out: a.env.Stdout}
	ends, errs := make([]api.Job, len(jobs)), make([]error, len(jobs))
	var group sync.WaitGroup
	for i, j := range jobs {
		label := ""
		if len(jobs) > 1 {
			label = string(j.ID)
			if j.Name != "" {
				label = table.Plain(j.Name)
			}
		}
		group.Go(func() {
			ends[i], errs[i] = a.followJob(ctx, client, j.ID, api.LogFilter{},
				func(l api.LogLine) error { return p.line(label, l) }, a.stateNotes(j))
		})
	}
	group.Wait()
	return a.followed(ctx, ids(jobs), ends, errs)
}

// followed turns how jobs ended, or how following them ended, into an exit code.
func (a *app) followed(ctx context.Context, jobs []string, ends []api.Job, errs []error) error {
	if ctx.Err() != nil {
		return a.detached(jobs)
	}
	for i := range jobs {
		if errs[i] != nil {
			return errs[i]
		}
		if code := jobExit(ends[i]); code != ExitOK {
			return exitWith(code)
		}
	}
	return nil
}

// detached says that the jobs go on and how to come back.
func (a *app) detached(jobs []string) error {
	list := strings.Join(jobs, " ")
	goes := "goes on"
	if len(jobs) > 1 {
		goes = "go on"
	}
	a.note("\nDetached; %s %s.\n  come back:  trainyard logs -f %s\n  end:        trainyard cancel %s", list, goes, jobs[0], list)
	return exitWith(ExitInterrupted)
}

func ids(jobs []api.Job) []string {
	list := make([]string, len(jobs))
	for i, j := range jobs {
		list[i] = string(j.ID)
	}
	return list
}

// untilEnded asks for a job now and then until it has ended.
func (a *app) untilEnded(ctx context.Context, client *api.Client, j id.Job, every time.Duration) (api.Job, error) {
	var last api.Job
	err := a.persist(ctx, func(alive func()) (bool, error) {
		for {
			detail, err := client.Job(ctx, j)
			if err != nil {
				return false, err
			}
			alive()
			last = detail.Job
			if last.State.Final() {
				return true, nil
			}
			if !sleep(ctx, every) {
				return false, ctx.Err()
			}
		}
	})
	return last, err
}
