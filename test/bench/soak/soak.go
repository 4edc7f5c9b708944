package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/bench/daemon"
	"trainyard/test/bench/scale"
	"trainyard/test/bench/yard"
)

// extent says how long jobs flow: for a time, or until so many were submitted.
type extent struct {
	span time.Duration
	jobs int
}

// options is what a soak is given.
type options struct {
	binary    string
	env       []string // of server and agents
	warm      extent   // that is not judged: caches fill
	judged    extent
	rate      float64       // jobs that are submitted in a second
	every     time.Duration // between two lines
	keepFinal time.Duration // how long the server keeps ended jobs in memory
	patience  time.Duration // until what grew must have fallen again
	clock     clock.Clock
	out       io.Writer
}

// agents is how many nodes there are.
const agents = 2

// soak lets jobs flow through a yard and returns the figures if nothing grew more than it may.
func soak(ctx context.Context, o *options) (figures map[string]float64, err error) {
	y, err := yard.Start(ctx, yard.Options{
		Binary: o.binary, Args: []string{"--keep-final", o.keepFinal.String()}, Env: o.env,
	})
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	s := &state{options: o, yard: y}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}

	defer s.client.Close()

	if err := s.flow(ctx, o.warm); err != nil {
		return nil, err
	}

	before, warmed := s.last, s.submitted.Load()

	if err := s.flow(ctx, o.judged); err != nil {
		return nil, err
	}

	jobs := int(s.submitted.Load() - warmed)

	all, err := s.judge(ctx, before, jobs)
	if err != nil {
		return nil, err
	}

	return s.figures(all, jobs), s.count(ctx)
}

// state is a soak at work.
type state struct {
	*options

	yard      *yard.Yard
	client    *api.Client
	processes []*process
	printer   *printer
	last      []sample // taken last, when nothing ran

	submitted atomic.Int64
	newest    atomic.Value // id of the job that was submitted last
	followed  atomic.Int64 // feeds that followers have opened
	cancels   atomic.Int64 // jobs that were cancelled
}

// prepare starts the agents.
func (s *state) prepare(ctx context.Context) (err error) {
	if s.client, err = s.yard.Client(); err != nil {
		return err
	}

	s.processes = []*process{{
		name: "server", data: s.yard.Data(), metrics: s.yard.Metric, pid: func() int { return s.yard.PID("server") },
	}}

	ports, err := daemon.FreePorts(ctx, agents)
	if err != nil {
		return err
	}

	for i, port := range ports {
		name := fmt.Sprintf("agent%d", i+1)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))

		err := s.yard.AddAgent(ctx, name, "--isolation", "none", "--mix-users", "yes", "--metrics", address)
		if err != nil {
			return err
		}

		s.processes = append(s.processes, &process{
			name: name, data: s.yard.AgentData(name), pid: func() int { return s.yard.PID(name) },
			metrics: func(ctx context.Context, metric string) (float64, error) { return yard.MetricAt(ctx, address, metric) },
		})
	}

	s.printer = newPrinter(s.out, s.clock.Now())

	return nil
}

// sample looks at all processes and writes a line.
func (s *state) sample(ctx context.Context) error {
	samples := make([]sample, len(s.processes))

	for i, p := range s.processes {
		var err error
		if samples[i], err = p.take(ctx); err != nil {
			return fmt.Errorf("look at %s: %w", p.name, err)
		}
	}

	s.last = samples

	return s.printer.line(s.clock.Now(), int(s.submitted.Load()), s.processes, samples)
}

// flow lets jobs flow to the given extent, with followers that come and go, and returns when all have ended and the
// followers are gone.
func (s *state) flow(ctx context.Context, e extent) error {
	flowing, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() { s.follow(flowing, n) })
	}

	if s.every > 0 {
		group.Go(func() {
			for clock.Sleep(flowing, s.every) {
				if err := s.sample(flowing); err != nil {
					stop(err)
				}
			}
		})
	}

	began, first := s.clock.Now(), s.submitted.Load()

	err := scale.Pace(flowing, s.clock, s.rate, func(ctx context.Context) error {
		if e.span > 0 && s.clock.Now().Sub(began) >= e.span || e.jobs > 0 && s.submitted.Load()-first >= int64(e.jobs) {
			return errDone
		}

		return s.submit(ctx)
	})
	if errors.Is(err, errDone) {
		err = nil
	}

	if err == nil {
		err = context.Cause(flowing)
	}

	stop(nil)
	group.Wait()

	if err != nil && !errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}

	if err := s.yard.AwaitIdle(ctx); err != nil {
		return err
	}

	return s.sample(ctx)
}

// errDone ends the submissions of a flow.
var errDone = errors.New("done")

// Of so many jobs one prints, and one is cancelled while it runs.
const (
	printsEvery = 5
	cancelEvery = 20
)

// printing is a job that prints lines with training metrics.
const printing = `name: soak
run: |
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo "step=$i loss=0.$i accuracy=0.5"; done
resources: {cpus: 1}
`

// submit submits the next job.
func (s *state) submit(ctx context.Context) error {
	n := s.submitted.Load()
	file := "name: soak\nrun: \"true\"\nresources: {cpus: 1}\n"

	switch {
	case n%cancelEvery == 1:
		file = "name: soak\nrun: sleep 600\nresources: {cpus: 1}\n"
	case n%printsEvery == 0:
		file = printing
	}

	reply, err := s.client.Submit(ctx, api.SubmitRequest{File: file}, fmt.Sprintf("soak-%d", n))
	if err != nil {
		return err
	}

	j := reply.Jobs[0].ID
	s.submitted.Add(1)
	s.newest.Store(j)

	if n%cancelEvery == 1 {
		s.cancels.Add(1)
		_, err = s.client.CancelJob(ctx, j)
	}

	return err
}

// follow follows the output of jobs or the events, for a moment each, again and again.
func (s *state) follow(ctx context.Context, n int) {
	for ctx.Err() == nil {
		j, ok := s.newest.Load().(id.Job)
		if !ok {
			clock.Sleep(ctx, 100*time.Millisecond)
			continue
		}

		client, err := s.yard.Client()
		if err != nil {
			return // it cannot fail: the yard has made others
		}

		moment, cancel := context.WithTimeout(ctx, time.Duration(n+1)*time.Second)

		// That the feed ends, or breaks off in the middle, is what it is for.
		if n%2 == 0 {
			_ = client.FollowLogs(moment, j, api.LogFilter{}, func(item api.LogItem) error {
				if item.End {
					return errDone
				}

				return nil
			})
		} else {
			_ = client.FollowEvents(moment, api.EventFilter{Tail: 1}, func(api.Event, string) error { return nil })
		}

		cancel()
		client.Close()
		s.followed.Add(1)
		clock.Sleep(ctx, 100*time.Millisecond)
	}
}

// judge compares what the processes have with what they had, until all is within its bounds or patience is at an end:
// what goes away by itself did not leak.
func (s *state) judge(ctx context.Context, before []sample, jobs int) ([]growth, error) {
	limit, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()

	for {
		all := judge(s.processes, before, s.last, jobs)

		wrong := exceeded(all)
		if wrong == nil || !clock.Sleep(limit, min(s.patience/30, 5*time.Second)) {
			return all, errors.Join(s.print(all, jobs), wrong)
		}
		if err := s.sample(ctx); err != nil {
			return nil, err
		}
	}
}

// print writes the verdict.
func (s *state) print(all []growth, jobs int) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w,
		"\nGrowth while %d jobs ended (%d feeds were followed):\nwhat\tbefore\tafter\tmay grow by\t\n", jobs,
		s.followed.Load()) // Flush returns its errors

	for i := range all {
		g := &all[i]

		verdict := "ok"
		if g.exceeded() {
			verdict = "TOO MUCH"
		}

		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%s\n", g.words, g.before, g.after, g.allowed, verdict)
	}

	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}

	return nil
}

// count makes sure that every job ended as it should.
func (s *state) count(ctx context.Context) error {
	succeeded, err := s.yard.Jobs(ctx, job.Succeeded)
	if err != nil {
		return err
	}

	cancelled, err := s.yard.Jobs(ctx, job.Cancelled)
	if err != nil {
		return err
	}

	all, stopped := int(s.submitted.Load()), int(s.cancels.Load())
	if len(cancelled) != stopped || len(succeeded) != all-stopped {
		return fmt.Errorf("%d jobs were submitted and %d of them cancelled; %d succeeded and %d are cancelled", all, stopped,
			len(succeeded), len(cancelled))
	}

	return nil
}

// figures are for the file.
func (s *state) figures(all []growth, jobs int) map[string]float64 {
	out := map[string]float64{"soak_jobs": float64(jobs)}
	for i := range all {
		out["soak_"+all[i].name] = all[i].after
		out["soak_"+all[i].name+"_growth"] = all[i].after - all[i].before
	}

	return out
}
