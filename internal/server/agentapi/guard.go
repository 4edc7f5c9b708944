package agentapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
)

type callerKey struct{}

// caller is who sends a request.
type caller struct {
	node  id.Node
	agent *fleet.Agent // nil if it does not say who it is, as agents of earlier versions
}

// process is the process of the agent, "" if it does not say.
func (c *caller) process() string {
	if c.agent == nil {
		return ""
	}

	return c.agent.Process
}

// byNode is the security of operations for agents.
var byNode = []map[string][]string{{"node": {}}}

// guarded lets only agents that speak for a node of the yard carry out an operation.
func (s *Server) guarded(op huma.Operation) huma.Operation { return s.checked(op, s.admitted) }

// open lets any agent with the certificate of a node carry out an operation: the report, which admits it.
func (s *Server) open(op huma.Operation) huma.Operation { return s.checked(op, s.caller) }

func (s *Server) checked(op huma.Operation, check func(*http.Request) (caller, error)) huma.Operation {
	op.Security = byNode
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)

		c, err := check(r)
		if err != nil {
			httpapi.WriteProblem(w, err)
			return
		}

		next(huma.WithValue(ctx, callerKey{}, c))
	}}

	return op
}

// identify adds which agent asks to the context of a request.
func (s *Server) identify(r *http.Request) (context.Context, error) {
	c, err := s.admitted(r)

	return context.WithValue(r.Context(), callerKey{}, c), err
}

// caller returns which node's certificate the connection shows, and which process says so.
func (s *Server) caller(r *http.Request) (caller, error) {
	if r.TLS == nil {
		return caller{}, s.Unknown(r, fault.New(fault.Unknown, "certificate_missing",
			"agents must connect with TLS and a node certificate"))
	}

	n, err := s.CA.NodeOf(r.TLS, s.Clock.Now())
	if s.CA.IsPeer(r.TLS, s.Clock.Now()) { // another server has checked the certificate
		n, err = id.Node(r.Header.Get(httpapi.HeaderNode)), nil
	}

	if err == nil {
		_, err = s.roster.admit(n, "")
	}

	if err != nil {
		return caller{}, s.Unknown(r, err)
	}
	if !s.Allow(n) {
		return caller{}, httpapi.TooOften()
	}

	agent, err := api.ParseAgent(r.Header.Get(api.AgentHeader))

	return caller{node: n, agent: agent}, err
}

// admitted returns who asks, if it speaks for its node.
func (s *Server) admitted(r *http.Request) (caller, error) {
	c, err := s.caller(r)
	if err == nil {
		_, err = s.roster.admit(c.node, c.process())
	}

	return c, err
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

func nodeOf(ctx context.Context) id.Node { return callerOf(ctx).node }
