package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

const (
	// maxForwarded is how many connections are forwarded at a time; more of them wait. The server allows as many.
	maxForwarded = 64
	// jobLook is how often a forward looks whether its job has ended.
	jobLook = 3 * time.Second
)

// forward lets ports of this machine be ports of a running job.
func (a *app) forward() *cobra.Command {
	var rank int

	cmd := &cobra.Command{
		Use: "forward JOB [LOCAL:]PORT...", Short: "Forward ports of this machine to a running job",
		Long: `Forward ports of this machine to ports that a running job listens on, such as that of TensorBoard or Jupyter,
until Ctrl-C or the end of the job. Connections to 127.0.0.1:LOCAL are passed on to PORT of the job. Without LOCAL it
is the same number; 0 stands for any free one.

The program must listen on 127.0.0.1 or on all addresses of its node. Ports of other jobs, of the agent and of the node
itself cannot be reached.`,
		Example: `  trainyard forward j7 6006
  trainyard forward j7 8888:8888 6007:6006
  trainyard forward @last --rank 1 0:29500`,
		Args:              exit.Args(2, -1, "job and port"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var pairs []portPair

			for _, text := range args[1:] {
				p, ok := parsePorts(text)
				if !ok {
					return exit.Usagef(cmd, "ports must be written as LOCAL:PORT, each between 1 and 65535, got %q", text)
				}

				pairs = append(pairs, p)
			}

			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				return a.forwarder(c, j, rank).run(cmd.Context(), pairs)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "forward to the ports of this `rank`")

	return cmd
}

// portPair is a port of this machine and one of the job.
type portPair struct {
	local, remote int
	orAny         bool // if the local one is taken, any other is as good
}

// listenLocal listens on a port of this machine.
func listenLocal(ctx context.Context, p portPair) (net.Listener, error) {
	at := func(port int) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}

	l, err := at(p.local)
	if err != nil && p.orAny {
		return at(0)
	}

	return l, err
}

func parsePorts(text string) (portPair, bool) {
	left, right, ok := strings.Cut(text, ":")
	if !ok {
		right = left
	}

	local, err1 := strconv.ParseUint(left, 10, 16)
	remote, err2 := strconv.ParseUint(right, 10, 16)

	return portPair{local: int(local), remote: int(remote)}, err1 == nil && err2 == nil && remote > 0 && (ok || local > 0)
}

// forwarder forwards ports to one rank of a job.
type forwarder struct {
	*app
	client *api.Client
	job    id.Job
	rank   int
	slots  chan struct{}
	notes  sync.Mutex

	// listening says which port of this machine is forwarded to which one of the job.
	listening func(local net.Addr, port int) error
}

// forwarder returns one that says what it forwards.
func (a *app) forwarder(c *api.Client, j id.Job, rank int) *forwarder {
	f := &forwarder{app: a, client: c, job: j, rank: rank, slots: make(chan struct{}, maxForwarded)}
	f.listening = func(local net.Addr, port int) error {
		_, err := fmt.Fprintf(a.Stdout, "forwarding %s to port %d of job %s\n", local, port, j)
		return err
	}

	return f
}

// run forwards until Ctrl-C, or until the job has ended.
func (f *forwarder) run(ctx context.Context, pairs []portPair) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	if err := f.live(ctx); err != nil {
		return err
	}

	var all sync.WaitGroup
	for _, p := range pairs {
		l, err := listenLocal(ctx, p)
		if err != nil {
			end(nil)
			all.Wait()

			return fault.New(fault.Conflict, "port_taken", "cannot listen on port %d of this machine: %v", p.local, err).
				WithRemedy("choose another one: trainyard forward %s 0:%d", f.job, p.remote)
		}

		context.AfterFunc(ctx, func() { _ = l.Close() })

		if err := f.listening(l.Addr(), p.remote); err != nil {
			return err
		}

		all.Go(func() { f.accept(ctx, l, p.remote, &all) })
	}

	all.Go(func() {
		f.noteRemarks(ctx, f.client, f.job, func(text string) { f.Note("job %s: %s", f.job, table.Plain(text)) })
	})

	f.awaitEnd(ctx, end)
	all.Wait()

	var reason *fault.Error
	if errors.As(context.Cause(ctx), &reason) {
		return reason
	}

	return nil // Ctrl-C is how it is ended
}

// live returns why the job cannot be entered, as far as its state tells.
func (f *forwarder) live(ctx context.Context) error {
	j, err := f.client.Job(ctx, f.job)
	if err == nil && j.State.Final() {
		err = fault.New(fault.Conflict, "job_state", "job %s has ended: it is %s: %s", f.job, j.State, table.Plain(j.Reason))
	}

	return err
}

// awaitEnd waits for Ctrl-C or the end of the job.
func (f *forwarder) awaitEnd(ctx context.Context, end context.CancelCauseFunc) {
	for clock.Sleep(ctx, jobLook) {
		err := f.live(ctx)

		var reason *fault.Error
		if errors.As(err, &reason) && reason.Kind != fault.Unavailable { // a server that is away comes back
			end(reason)
			return
		}
	}
}

// accept forwards the connections of one port.
func (f *forwarder) accept(ctx context.Context, l net.Listener, port int, all *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}

		all.Go(func() {
			defer func() { _ = conn.Close() }()

			select {
			case f.slots <- struct{}{}:
			case <-ctx.Done():
				return
			}

			defer func() { <-f.slots }()

			if err := f.connect(ctx, conn, port); err != nil && ctx.Err() == nil {
				f.notes.Lock()
				defer f.notes.Unlock()
				f.Note("port %d: %v", port, err)
			}
		})
	}
}

// connect forwards one connection.
func (f *forwarder) connect(ctx context.Context, conn net.Conn, port int) error {
	t, err := f.client.OpenTunnel(ctx, f.job, api.TunnelStart{Kind: api.TunnelPort, Rank: f.rank, Port: port})
	if err != nil {
		return err
	}

	defer func() { _ = t.Close() }()

	stop := context.AfterFunc(ctx, func() { _ = t.Close() })
	defer stop()

	_, err = converse(ctx, t, conn, conn, io.Discard)

	var lost *fault.Error
	if errors.As(err, &lost) && lost.Code == "tunnel_lost" {
		return nil // whoever is connected sees the end
	}

	return err
}
