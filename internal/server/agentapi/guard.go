package agentapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
)

type nodeKey struct{}

// byNode is the security of operations for agents.
var byNode = []map[string][]string{{"node": {}}}

// guarded lets only nodes of the yard carry out an operation.
func (s *Server) guarded(op huma.Operation) huma.Operation {
	op.Security = byNode
	op.Middlewares = huma.Middlewares{s.authenticate}

	return op
}

// authenticate finds out which node asks.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)

	n, err := s.node(r)
	if err != nil {
		httpapi.WriteProblem(w, err)
		return
	}

	next(huma.WithValue(ctx, nodeKey{}, n))
}

// identify adds which node asks to the context of a request.
func (s *Server) identify(r *http.Request) (context.Context, error) {
	n, err := s.node(r)

	return context.WithValue(r.Context(), nodeKey{}, n), err
}

// node returns which node's certificate the connection shows.
func (s *Server) node(r *http.Request) (id.Node, error) {
	if r.TLS == nil {
		return "", fault.New(fault.Unknown, "certificate_missing", "agents must connect with TLS and a node certificate")
	}

	n, err := s.CA.NodeOf(r.TLS, s.Clock.Now())
	if s.CA.IsPeer(r.TLS, s.Clock.Now()) { // another server has checked the certificate
		n, err = id.Node(r.Header.Get(httpapi.HeaderNode)), nil
	}

	if err == nil {
		_, err = s.roster.admit(n)
	}

	return n, err
}

func nodeOf(ctx context.Context) id.Node {
	n, _ := ctx.Value(nodeKey{}).(id.Node)
	return n
}
