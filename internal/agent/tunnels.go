package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"trainyard/internal/agent/runtime"
	"trainyard/internal/agent/runtime/visitor"
	"trainyard/internal/api"
	"trainyard/internal/fault"
)

// openTunnels are the tunnels to runs of this node. The server asks for one with the assignments, and the agent opens
// it: nobody dials a node.
type openTunnels struct {
	mu      sync.Mutex
	asked   map[string]bool // that are or were opened; the server forgets them soon
	serving sync.WaitGroup
}

// maxTunnels is how many tunnels are open at a time. The server allows fewer.
const maxTunnels = 512

// answerTunnels opens the tunnels that are asked for, each once.
func (a *Agent) answerTunnels(ctx context.Context, requests []api.TunnelRequest) {
	t := a.tunnels
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, r := range requests {
		if t.asked[r.ID] {
			continue
		}

		if len(t.asked) >= maxAsked {
			t.asked = map[string]bool{}
		}

		t.asked[r.ID] = true
		t.serving.Go(func() { a.serveTunnel(ctx, r) })
	}
}

// serveTunnel opens one tunnel and serves it to its end.
func (a *Agent) serveTunnel(ctx context.Context, r api.TunnelRequest) {
	end, err := a.client.Load().AnswerTunnel(ctx, r.ID)
	if err != nil {
		a.log.Warn("cannot open a tunnel", "run", r.Run, "error", err)
		return
	}

	defer func() { _ = end.Close() }()

	select {
	case a.tunnelSlots <- struct{}{}:
		defer func() { <-a.tunnelSlots }()
	default:
		err = fault.New(fault.OverLimit, "too_many_tunnels", "the node has %d tunnels open, which is the limit", maxTunnels)
	}

	name := key{r.Run, r.Start.Rank}.name()
	s := &tunnelServer{end: end, rt: a.rt, request: r, touch: func() { a.activities.touch(a.clk.Now(), name) }}
	if err == nil {
		err = s.serve(ctx)
	}

	if err != nil {
		// If this fails the server is gone, and says so to the person.
		_ = end.Control(ctx, api.TunnelControl{Problem: problemOf(err)})
	}

	_ = end.Finish()
}

// problemOf describes an error for the person at the other end.
func problemOf(err error) *api.Problem {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "internal", "%v", err)
	}

	return &api.Problem{
		Title: http.StatusText(http.StatusConflict), Status: http.StatusConflict, Detail: clipReason(f.Message), Code: f.Code,
		Kind: string(f.Kind), Field: f.Field, Remedy: f.Remedy,
	}
}

// tunnelServer serves one tunnel.
type tunnelServer struct {
	end     *api.Tunnel
	rt      Runtime
	request api.TunnelRequest
	touch   func() // something went through it
}

// serve carries out what the tunnel is for. It returns what went wrong before anything was started, or nil: how a
// command ended was said by then.
func (s *tunnelServer) serve(ctx context.Context) error {
	start := &s.request.Start
	if err := start.Check(); err != nil {
		return err
	}

	if start.Kind == api.TunnelPort {
		return s.servePort(ctx)
	}

	visit := runtime.Visit{ID: s.request.ID, Shared: s.request.Shared}

	switch start.Kind {
	case api.TunnelGet, api.TunnelPut:
		visit.Copy = &visitor.Copy{Put: start.Kind == api.TunnelPut, Path: start.Path}
	case api.TunnelExec, api.TunnelPort:
		visit.Command = start.Command
	}

	if start.Terminal != nil {
		size := windowSize(start.Terminal.WindowSize)
		visit.Size = &size
		visit.Env = []string{"TERM=" + terminalType(start.Terminal.Term)}
	}

	guest, err := s.rt.Visit(ctx, s.request.Run, start.Rank, visit)
	if err != nil {
		return err
	}

	return s.serveVisitor(ctx, guest)
}

func windowSize(w api.WindowSize) runtime.WindowSize {
	return runtime.WindowSize{Columns: uint16(w.Columns), Rows: uint16(w.Rows)}
}

// terminalType returns the type of a terminal. One that is not given is of the simplest.
func terminalType(term string) string {
	if term == "" {
		return "dumb"
	}

	return term
}

// serveVisitor connects a visitor with the tunnel, until the visitor or the tunnel has ended.
func (s *tunnelServer) serveVisitor(ctx context.Context, guest runtime.Visitor) error {
	defer func() { _ = guest.Close() }() // it has ended, or is killed

	if err := s.end.Control(ctx, api.TunnelControl{Started: true}); err != nil {
		return nil // the server is gone, and nobody is left to hear of it
	}

	gone := make(chan struct{}) // closed when the other side has left

	go func() {
		defer close(gone)
		s.obey(ctx, guest)
	}()

	var output sync.WaitGroup
	output.Go(func() { _ = s.end.Copy(ctx, api.StreamOut, noticed{guest.Output(), s.touch}) })

	if errs := guest.Errors(); errs != nil {
		output.Go(func() { _ = s.end.Copy(ctx, api.StreamErr, noticed{errs, s.touch}) })
	}

	select {
	case last := <-guest.Ended():
		output.Wait() // none of its processes is left that could write more

		// If this fails the server is gone.
		_ = s.end.Control(ctx, api.TunnelControl{End: &api.TunnelEnd{Exit: exitCode(last.Status), Reason: last.Reason}})
	case <-gone:
	case <-ctx.Done():
	}

	// What waits for the visitor or the tunnel ends with them.
	_ = guest.Close()
	_ = s.end.Finish()
	<-gone
	output.Wait()

	return nil
}

// exitCode is the exit code of a process as a shell shows it.
func exitCode(status uint32) int {
	w := syscall.WaitStatus(status)
	if w.Signaled() {
		return 128 + int(w.Signal())
	}

	return w.ExitStatus()
}

// obey passes input, sizes and signals on to a visitor until the other side has left.
func (s *tunnelServer) obey(ctx context.Context, guest runtime.Visitor) {
	in := s.feed(ctx, guest.Input(), true)
	defer in.close()

	for {
		m, err := s.end.Receive(ctx)
		if err != nil {
			return
		}

		switch {
		case m.Control != nil && m.Control.Size != nil:
			_ = guest.Resize(windowSize(*m.Control.Size)) // it may just have ended
		case m.Control != nil && m.Control.Signal != "":
			_ = guest.Signal(strings.TrimPrefix(m.Control.Signal, "SIG"))
		case m.Control != nil || m.Stream != api.StreamIn:
		case !s.take(in, m.Data):
			return // it sends more than it may
		}
	}
}

// servePort connects a port of the run with the tunnel, until both sides have ended what they send or one is gone.
func (s *tunnelServer) servePort(ctx context.Context) error {
	conn, err := s.rt.DialPort(ctx, s.request.Run, s.request.Start.Rank, s.request.Start.Port, s.request.Shared)
	if err != nil {
		return err
	}

	defer func() { _ = conn.Close() }()

	if err := s.end.Control(ctx, api.TunnelControl{Started: true}); err != nil {
		return nil // the server is gone
	}

	sent := make(chan error, 1)
	go func() { sent <- s.end.Copy(ctx, api.StreamOut, noticed{conn, s.touch}) }()

	received := make(chan error, 1)
	in := s.feed(ctx, portInput{conn}, false)
	defer in.close()

	gone := make(chan struct{}) // closed when the other side has left

	go func() {
		defer close(gone)
		s.receiveTo(ctx, in)
	}()

	go func() { received <- in.wait() }()

	over := s.rt.Watch()

	for open := 2; open > 0; {
		select {
		case <-sent:
			open-- // the program may still read
			sent = nil
		case err := <-received:
			open--
			received = nil

			if err != nil {
				return nil // the program takes nothing more
			}
		case <-gone:
			return nil
		case <-over:
			over = s.rt.Watch()
			if s.runEnded() {
				return fault.New(fault.Conflict, "not_running", "the run has ended")
			}
		case <-ctx.Done():
			return nil
		}
	}

	_ = s.end.Control(ctx, api.TunnelControl{End: &api.TunnelEnd{}}) // if this fails the server is gone

	return nil
}

// runEnded reports whether the program of the run does not run any more.
func (s *tunnelServer) runEnded() bool {
	for _, st := range s.rt.List() {
		if st.Run == s.request.Run && st.Rank == s.request.Start.Rank {
			return !st.Ended.IsZero()
		}
	}

	return true
}

// receiveTo takes the input of a tunnel until the other side has left.
func (s *tunnelServer) receiveTo(ctx context.Context, in *input) {
	for {
		m, err := s.end.Receive(ctx)
		if err != nil || m.Control == nil && m.Stream == api.StreamIn && !s.take(in, m.Data) {
			return
		}
	}
}

// take stores input of the tunnel. It is false if the client has sent more than it may.
func (s *tunnelServer) take(in *input, data []byte) bool {
	s.touch()
	return in.add(data)
}

// portInput is what is sent to a port. Its end leaves the other direction open.
type portInput struct{ net.Conn }

func (p portInput) Close() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}

	return nil
}
