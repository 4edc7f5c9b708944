package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/workdir"
)

const (
	clients   = 3
	drainTime = time.Minute // far more than it takes
)

// asked is one job of a submission and what must become of it.
type asked struct {
	name    string
	flags   string // of the program
	lines   int
	keys    string // further lines of the job file
	want    job.State
	runs    int // runs that it must have, 0 for any number
	ranks   int
	printed output // what a follower of its output got; nil if nobody followed
	id      id.Job
}

// plan is one submission and what is done to it.
type plan struct {
	kind    string
	jobs    []*asked
	control string // what is done to the first job: cancel, kill or pause
	follow  bool
	files   bool // ships a working directory
	twice   bool // submits again under the same key at the end
	wait    time.Duration
}

// load submits plans until it is told to end.
type load struct {
	y     *yard
	watch *watch
	acked chan struct{} // something was acknowledged; holds at most one
	again atomic.Int64  // calls that had to be made again

	clients []*api.Client
	tasks   sync.WaitGroup
	stop    context.CancelFunc // ends the watch
	ending  chan struct{}      // no new plans

	mu    sync.Mutex
	rng   *rand.Rand
	plans []*plan
}

func newLoad(y *yard, rng *rand.Rand) *load {
	return &load{y: y, watch: newWatch(), acked: make(chan struct{}, 1), rng: rng, ending: make(chan struct{})}
}

// start begins to submit.
func (l *load) start(t *testing.T) {
	t.Helper()

	for range clients {
		c, err := l.y.Client(l.y.Admin())
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(c.Close)
		l.clients = append(l.clients, c)
	}

	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	t.Cleanup(stop)
	go l.watch.follow(ctx, l.clients[0])

	for n := range l.y.inFlight {
		l.tasks.Go(func() {
			for {
				select {
				case <-l.ending:
					return
				case <-ctx.Done():
					return
				default:
				}

				p := l.next()
				if err := l.perform(ctx, l.clients[n%clients], p); err != nil && (ctx.Err() == nil || !t.Failed()) {
					t.Errorf("%s %s (%s): %v", p.kind, p.jobs[0].name, p.jobs[0].id, err)
					return
				}
			}
		})
	}
}

// finish lets all that was submitted come to its end.
func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.ending)
	done := make(chan struct{})
	go func() {
		l.tasks.Wait()
		close(done)
	}()

	for end := time.Now().Add(drainTime); ; {
		select {
		case <-done:
			if t.Failed() {
				t.FailNow()
			}

			return
		case <-time.After(100 * time.Millisecond):
		}

		if late := time.Now().After(end); late || t.Failed() || l.y.died(t) {
			l.stop()
			<-done
			t.Fatalf("not everything came to its end (after %s: %t)", drainTime, late)
		}
	}
}

// perform submits a plan, does to it what it says, and waits for the end of
// its jobs.
func (l *load) perform(ctx context.Context, client *api.Client, p *plan) error {
	if err := l.submit(ctx, client, p); err != nil {
		return err
	}

	followed := make(chan error, 1)
	if p.follow {
		first := p.jobs[0]
		go func() {
			got, err := followOutput(ctx, client, first.id)
			first.printed = got
			followed <- err
		}()
	} else {
		followed <- nil
	}

	sleep(ctx, p.wait)

	if err := l.control(ctx, client, p); err != nil {
		return err
	}

	for _, a := range p.jobs {
		if err := l.watch.await(ctx, a.id, job.State.Final); err != nil {
			return err
		}
	}

	if p.twice { // by now the server was perhaps started again
		if err := l.submit(ctx, client, p); err != nil {
			return err
		}
	}

	return <-followed
}

func (l *load) submit(ctx context.Context, client *api.Client, p *plan) error {
	key := "key-" + p.jobs[0].name
	req := api.SubmitRequest{File: l.file(p)}

	if p.files {
		digest, err := l.ship(ctx, client, p.jobs[0].name)
		if err != nil {
			return fmt.Errorf("ship: %w", err)
		}

		req.Workdir = digest
	}

	reply, err := try(ctx, l, func() (api.SubmitReply, error) { return client.Submit(ctx, req, key) })
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}

	poke(l.acked)

	if len(reply.Jobs) != len(p.jobs) {
		return fmt.Errorf("%d jobs were acknowledged, %d submitted", len(reply.Jobs), len(p.jobs))
	}

	for i, a := range p.jobs {
		if a.id != "" && a.id != reply.Jobs[i].ID {
			return fmt.Errorf("acknowledged as %s and then as %s", a.id, reply.Jobs[i].ID)
		}

		a.id = reply.Jobs[i].ID
	}

	return nil
}

// ship uploads a working directory with one file.
func (l *load) ship(ctx context.Context, client *api.Client, text string) (string, error) {
	digest, err := workdir.DigestOf(strings.NewReader(text))
	if err != nil {
		return "", err
	}

	m := api.Manifest{Files: []api.ManifestFile{{Path: "name.txt", Mode: 0o644, Size: int64(len(text)), Digest: digest}}}
	encoded, err := workdir.Encode(m)
	if err != nil {
		return "", err
	}

	whole, err := workdir.Digest(m)
	if err != nil {
		return "", err
	}

	for _, part := range []struct{ digest, text string }{{digest, text}, {whole, string(encoded)}} {
		_, err := try(ctx, l, func() (struct{}, error) {
			return struct{}{}, client.PutFile(ctx, part.digest, "", bytes.NewReader([]byte(part.text)))
		})
		if err != nil {
			return "", err
		}
	}

	return whole, nil
}

// file writes the job file of a plan.
func (l *load) file(p *plan) string {
	docs := make([]string, 0, len(p.jobs))
	for _, a := range p.jobs {
		program, keys := filepath.Join(binaries, "program"), a.keys
		if l.y.image != "" {
			program, keys = "program", "image: "+l.y.image+"\n"+keys
		}

		docs = append(
			docs,
			fmt.Sprintf("name: %s\nrun: exec %s -dir %s -name %s -lines %d %s\nresources: {cpus: 0.1, nodes: %d}\n%s",
				a.name, program, l.y.book, a.name, a.lines, a.flags, a.ranks, keys),
		)
	}

	return strings.Join(docs, "---\n")
}

// control does to a plan what it says.
func (l *load) control(ctx context.Context, client *api.Client, p *plan) error {
	first := p.jobs[0].id

	switch p.control {
	case "cancel":
		return l.change(ctx, first, client.CancelJob, job.Cancelling, job.Cancelled)
	case "kill":
		return l.change(ctx, first, client.KillJob, job.Cancelling, job.Cancelled)
	case "pause":
		if err := l.change(ctx, first, client.PauseJob, job.Pausing, job.Paused); err != nil {
			return err
		}
		if err := l.watch.await(ctx, first, func(s job.State) bool { return s == job.Paused || s.Final() }); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.y.shared, "go", p.jobs[0].name), nil, 0o600); err != nil {
			return err
		}

		return l.change(ctx, first, client.ResumeJob, job.Pending, job.Starting, job.Running, job.Succeeded)
	}

	return nil
}

// change asks for a change of a job until that is acknowledged, or refused
// because an earlier call, whose answer was lost, has done it.
func (l *load) change(
	ctx context.Context,
	j id.Job,
	ask func(context.Context, id.Job) (api.Job, error),
	good ...job.State,
) error {
	reply, err := try(ctx, l, func() (api.Job, error) { return ask(ctx, j) })
	if fault.KindOf(err) == fault.Conflict {
		detail, derr := try(ctx, l, func() (api.JobDetail, error) { return l.clients[0].Job(ctx, j) })
		if derr != nil {
			return derr
		}

		reply = detail.Job
	} else if err != nil {
		return err
	}

	poke(l.acked)

	if !slices.Contains(good, reply.State) {
		return fmt.Errorf("after the change job %s is %s (%s)", j, reply.State, reply.Reason)
	}

	return nil
}

// try makes a call until it is answered.
func try[T any](ctx context.Context, l *load, call func() (T, error)) (T, error) {
	for {
		reply, err := call()
		if err == nil || !passing(err) || ctx.Err() != nil {
			return reply, err
		}

		l.again.Add(1)
		sleep(ctx, 20*time.Millisecond)
	}
}

// passing reports whether an error is that of a server that is away or went
// away, and not an answer.
func passing(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) {
		return true // broke off in the middle of an answer
	}

	return f.Kind == fault.Unavailable
}

// tally says how much flowed.
func (l *load) tally() string {
	kinds := map[string]int{}
	jobs := 0
	for _, p := range l.plans {
		kinds[p.kind] += len(p.jobs)
		jobs += len(p.jobs)
	}

	parts := make([]string, 0, len(kinds))
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
	}

	return fmt.Sprintf("%d jobs (%s)", jobs, strings.Join(parts, ", "))
}
