package agentapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
)

// tunnels are those that people want to runs and that no agent has opened yet. Like a request for files, one goes down
// with the assignments, and the agent answers by connecting. They are in memory: whoever waits opens another.
type tunnels struct {
	mu       sync.Mutex
	wanted   map[id.Node][]*tunnel
	changed  map[id.Node]chan struct{} // closed when a node gets one
	outdated map[id.Node]bool          // nodes whose agents do not know tunnels
}

// tunnel is one that a person waits for.
type tunnel struct {
	api.TunnelRequest

	opened chan *api.Tunnel // the agent's end; holds one
	over   chan struct{}    // closed when nobody needs it any more
}

const (
	// tunnelWait is how long an agent may take to connect: it is connected already, or the node is in trouble.
	tunnelWait = 15 * time.Second
	// tunnelsCapability is that of the first agents that open tunnels.
	tunnelsCapability = 16
)

func newTunnels() *tunnels {
	return &tunnels{
		wanted: map[id.Node][]*tunnel{}, changed: map[id.Node]chan struct{}{}, outdated: map[id.Node]bool{},
	}
}

// note takes down which version a node speaks.
func (t *tunnels) note(n id.Node, capability int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.outdated[n] = capability < tunnelsCapability
}

// of returns the tunnels that are wanted to a node, and a channel that is closed when there are more.
func (t *tunnels) of(n id.Node) ([]api.TunnelRequest, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.changed[n] == nil {
		t.changed[n] = make(chan struct{})
	}

	var list []api.TunnelRequest
	for _, w := range t.wanted[n] {
		list = append(list, w.TunnelRequest)
	}

	return list, t.changed[n]
}

// want asks a node for a tunnel.
func (t *tunnels) want(n id.Node, r api.TunnelRequest) (*tunnel, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.outdated[n] {
		return nil, fault.New(fault.Conflict, "agent_outdated",
			"the agent of node %s is of an earlier version and cannot let anybody into jobs", n).WithRemedy("update it")
	}

	r.ID = strings.ToLower(rand.Text())
	w := &tunnel{TunnelRequest: r, opened: make(chan *api.Tunnel, 1), over: make(chan struct{})}
	t.wanted[n] = append(t.wanted[n], w)

	if t.changed[n] != nil {
		close(t.changed[n])
		delete(t.changed, n)
	}

	return w, nil
}

// take returns a tunnel that is wanted to a node, once.
func (t *tunnels) take(n id.Node, name string) (*tunnel, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	at := slices.IndexFunc(t.wanted[n], func(w *tunnel) bool { return w.ID == name })
	if at < 0 {
		return nil, fault.New(fault.NotFound, "tunnel_not_found", "tunnel %s not found, or not wanted any more", name)
	}

	w := t.wanted[n][at]
	t.wanted[n] = slices.Delete(t.wanted[n], at, at+1)

	return w, nil
}

// OpenTunnel asks a node for a tunnel to one of its runs and waits until the agent has opened its end. close must be
// called when it is not needed any more.
func (s *Server) OpenTunnel(ctx context.Context, n id.Node, r api.TunnelRequest) (
	end *api.Tunnel, closeTunnel func(), err error,
) {
	if s.Gone(n) {
		return nil, nil, fault.New(fault.Conflict, "node_lost", "node %s is lost or was removed", n)
	}

	w, err := s.tunnels.want(n, r)
	if err != nil {
		return nil, nil, err
	}

	wait, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()

	select {
	case end = <-w.opened:
		return end, sync.OnceFunc(func() {
			_ = end.Close() // the agent may have closed it already
			close(w.over)
		}), nil
	case <-wait.Done():
	}

	// If the agent connects after all, nobody is there.
	_, _ = s.tunnels.take(n, w.ID)
	close(w.over)

	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}

	return nil, nil, fault.New(fault.Unavailable, "node_silent", "the agent of node %s has not answered within %v", n,
		tunnelWait).WithRemedy("see whether the node is connected: trainyard nodes show %s", n)
}

func (s *Server) tunnelRoutes(rt httpapi.Router) {
	rt.Plain(
		huma.Operation{
			OperationID: "answer-tunnel",
			Method:      http.MethodGet,
			Path:        "/agent/v1/tunnels/{tunnel}",
			Summary:     "Open the agent's end of a tunnel, by WebSocket",
			Security:    byNode,
			Tags:        []string{"agent"},
		},
		s.identify,
		s.answerTunnel,
	)
}

// answerTunnel takes the agent's end of a tunnel. It returns when the tunnel has ended.
func (s *Server) answerTunnel(w http.ResponseWriter, r *http.Request) error {
	who := callerOf(r.Context())

	wanted, err := s.tunnels.take(who.node, r.PathValue("tunnel"))
	if err != nil {
		return err
	}

	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil //nolint:nilerr // it has been answered; the person who waits gets an answer in time
	}

	end := api.NewTunnel(conn)
	wanted.opened <- end

	for {
		other, err := s.roster.admit(who.node, who.process())
		if err != nil {
			return closeQuietly(end) // another process speaks for the node now
		}

		select {
		case <-wanted.over:
			return closeQuietly(end) // it may have come too late for whoever waited
		case <-other:
		case <-r.Context().Done():
			return closeQuietly(end)
		}
	}
}

// closeQuietly closes a tunnel. The other side may have done so before.
func closeQuietly(end *api.Tunnel) error {
	_ = end.Close()
	return nil
}
