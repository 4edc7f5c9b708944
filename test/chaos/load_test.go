package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/chaos/evidence"
)

// longJobs is how many jobs of a row run until its end.
const longJobs = 5

// submitted is a job that the yard has acknowledged, and what must become of it.
type submitted struct {
	name string
	id   id.Job
	want job.State

	undone []string // runs of the time after a backup that was put back: the yard does not know them
}

// known leaves out processes of runs that were undone.
func (s *submitted) known(own []*evidence.Process) []*evidence.Process {
	return slices.DeleteFunc(own, func(p *evidence.Process) bool { return slices.Contains(s.undone, p.Run) })
}

// load submits jobs to a yard and keeps what was acknowledged.
type load struct {
	w     *world
	end   chan struct{} // closed when nothing new is submitted
	once  sync.Once
	tasks sync.WaitGroup
	cpus  string // what each job asks for

	patience time.Duration // how long a client waits for an answer before it asks elsewhere, or again

	mu      sync.Mutex
	jobs    []*submitted
	names   []string      // of all jobs that were submitted, acknowledged or not
	clients []*api.Client // the one that answered last comes first
}

func newLoad(w *world) *load {
	return &load{w: w, end: make(chan struct{}), cpus: "1", patience: answerTime}
}

// begin submits the long jobs, waits until all of them run, and starts the flow of short ones.
func (l *load) begin() {
	w := l.w
	l.connect(w.yard.Address)

	if w.row.standby {
		l.connect(w.second.Address)
	}

	if w.row.calm {
		return
	}

	every := 100 * time.Millisecond
	if w.row.chatty {
		every = time.Millisecond
	}

	for n := range longJobs {
		_, err := l.submit(fmt.Sprintf("long%d", n+1), fmt.Sprintf("-every %s -until %s", every, l.released()))
		w.must(err)
	}

	w.until(stuck, "the start of the long jobs", func() string {
		running := 0
		for _, name := range nodeNames {
			running += len(w.on(name))
		}

		if running < longJobs {
			return fmt.Sprintf("%d of %d run", running, longJobs)
		}

		return ""
	})

	l.tasks.Go(l.flow)
}

// connect adds an address to those where the yard is asked.
func (l *load) connect(address string) {
	c, err := l.w.yard.ClientAt(address, l.w.yard.Admin())
	l.w.must(err)
	l.w.t.Cleanup(c.Close)

	l.mu.Lock()
	defer l.mu.Unlock()

	l.clients = append(l.clients, c)
}

// released is the file for which the long jobs wait.
func (l *load) released() string { return filepath.Join(l.w.shared, "release") }

// flow submits short jobs until the end.
func (l *load) flow() {
	for n := 1; ; n++ {
		if _, err := l.submit(fmt.Sprintf("short%d", n), "-lines 8 -every 100ms"); err != nil {
			if !errors.Is(err, errHalted) {
				l.w.report(lost, "submit: %v", err)
			}

			return
		}

		select {
		case <-l.end:
			return
		case <-time.After(time.Second):
		}
	}
}

// halt ends the flow.
func (l *load) halt() {
	l.once.Do(func() { close(l.end) })
	l.tasks.Wait()
}

// finish lets all jobs come to their end.
func (l *load) finish() {
	l.halt()
	l.w.must(os.WriteFile(l.released(), nil, 0o600))

	for _, s := range l.acknowledged() {
		l.awaitEnd(s)
	}
}

// awaitEnd waits for the end of a job.
func (l *load) awaitEnd(s *submitted) {
	l.w.until(stuck, "the end of "+s.name, func() string {
		d, err := l.detail(s)
		if err != nil {
			return err.Error()
		}

		if !d.State.Final() {
			return fmt.Sprintf("%s is %s (%s)", s.id, d.Status, d.Reason)
		}

		return ""
	})
}

func (l *load) detail(s *submitted) (api.JobDetail, error) {
	return call(l, func(ctx context.Context, c *api.Client) (api.JobDetail, error) { return c.Job(ctx, s.id) })
}

// acknowledged returns all that was acknowledged so far.
func (l *load) acknowledged() []*submitted {
	l.mu.Lock()
	defer l.mu.Unlock()

	return append([]*submitted(nil), l.jobs...)
}

// adopt adds a job to what must be there.
func (l *load) adopt(s *submitted) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.jobs = append(l.jobs, s)
}

// forget removes jobs from what must be there: they are newer than the backup that was put back.
func (l *load) forget(jobs ...*submitted) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.jobs = slices.DeleteFunc(l.jobs, func(s *submitted) bool { return slices.Contains(jobs, s) })
}

// tried reports whether a job of this name was submitted, acknowledged or not.
func (l *load) tried(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Contains(l.names, name)
}

// errHalted says that the end came before the acknowledgement.
var errHalted = errors.New("the flow was halted")

// submit submits a job until that is acknowledged.
func (l *load) submit(name, flags string) (*submitted, error) {
	file := fmt.Sprintf("name: %s\nrun: exec %s -dir %s -name %s %s\nresources: {cpus: %s}\ngrace: 1s\nretry: 50\n",
		name, program(), l.w.shared, name, flags, l.cpus)

	l.mu.Lock()
	l.names = append(l.names, name)
	l.mu.Unlock()

	for {
		reply, err := call(l, func(ctx context.Context, c *api.Client) (api.SubmitReply, error) {
			return c.Submit(ctx, api.SubmitRequest{File: file}, "key-"+name)
		})
		if err == nil {
			s := &submitted{name: name, id: reply.Jobs[0].ID, want: job.Succeeded}
			l.adopt(s)

			return s, nil
		}

		if !passing(err) {
			return nil, err
		}

		select {
		case <-l.end:
			return nil, errHalted
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// answerTime is how long a client waits for an answer, usually.
const answerTime = 3 * time.Second

// call asks the servers of the yard, one after the other, until one answers.
func call[T any](l *load, ask func(context.Context, *api.Client) (T, error)) (reply T, err error) {
	l.mu.Lock()
	clients := append([]*api.Client(nil), l.clients...)
	l.mu.Unlock()

	for n, c := range clients {
		ctx, cancel := context.WithTimeout(l.w.ctx, l.patience)
		reply, err = ask(ctx, c)

		cancel()

		if err == nil && n > 0 {
			l.mu.Lock()
			l.clients = append([]*api.Client{c}, append(clients[:n:n], clients[n+1:]...)...)
			l.mu.Unlock()
		}

		if err == nil || !passing(err) {
			return reply, err
		}
	}

	return reply, err
}

// passing reports whether an error is that of a server that is away or went away, and not an answer.
func passing(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) {
		return true // broke off in the middle of an answer
	}

	return f.Kind == fault.Unavailable
}

// output is the lines of each run of a job.
type output struct {
	lines    map[id.Run][]string
	remarked map[id.Run]bool // the yard itself says that some is lost
}

// output reads all output of a job page by page. What the agents have not delivered yet is waited for, until the end.
func (l *load) output(s *submitted, end time.Time) (output, error) {
	got := output{lines: map[id.Run][]string{}, remarked: map[id.Run]bool{}}
	cursor := ""

	for {
		page, err := call(l, func(ctx context.Context, c *api.Client) (api.LogPage, error) {
			return c.Logs(ctx, s.id, api.LogFilter{Page: api.Page{Cursor: cursor, Limit: 500}})
		})
		if err != nil {
			return got, err
		}

		for _, line := range page.Lines {
			switch line.Stream {
			case "stdout":
				got.lines[line.Run] = append(got.lines[line.Run], line.Text)
			case "yard":
				got.remarked[line.Run] = got.remarked[line.Run] || strings.Contains(line.Text, " bytes ")
			}
		}

		if page.Next == "" {
			return got, nil
		}

		if page.Next == cursor {
			if time.Now().After(end) {
				return got, fmt.Errorf("the page after %q has no lines and is not the last", cursor)
			}

			l.w.sleep(50 * time.Millisecond)
		}

		cursor = page.Next
	}
}

// processesOf returns those of one job.
func processesOf(all []*evidence.Process, name string) []*evidence.Process {
	var own []*evidence.Process
	for _, p := range all {
		if p.Job == name {
			own = append(own, p)
		}
	}

	return own
}
