package agentapi

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

type callerKey struct{}

// caller is who sends a request.
type caller struct {
	node  id.Node
	agent *fleet.Agent       // nil if it does not say who it is, as agents of earlier versions
	leaf  *x509.Certificate  // that it shows; nil if a standby of an earlier version has forwarded the request
	shown *fleet.Certificate // what identifies it
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

	var c caller

	n, err := s.CA.NodeOf(r.TLS, s.Clock.Now())
	if err == nil {
		c.leaf = r.TLS.PeerCertificates[0]
	}

	if s.CA.IsPeer(r.TLS, s.Clock.Now()) { // another server has checked the certificate
		n = id.Node(r.Header.Get(httpapi.HeaderNode))
		c.leaf, err = forwardedCertificate(r.Header.Get(httpapi.HeaderNodeCertificate))
	}

	if err != nil {
		return caller{}, s.Unknown(r, err)
	}
	if !s.Allow(n) {
		return caller{}, httpapi.TooOften()
	}

	httpapi.RecordOf(r.Context()).Actor = "node/" + string(n)
	c.node = n

	if err := s.roster.known(n); err != nil {
		return caller{}, err
	}

	c.agent, err = api.ParseAgent(r.Header.Get(api.AgentHeader))
	if err == nil {
		err = s.checkCertificate(r.Context(), &c)
	}

	return c, err
}

// forwardedCertificate reads the certificate of a node that a standby has forwarded.
func forwardedCertificate(text string) (*x509.Certificate, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // a standby of an earlier version
	}

	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("read a forwarded certificate: %w", err)
	}

	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read a forwarded certificate: %w", err)
	}

	return leaf, nil
}

// checkCertificate refuses a certificate that is older than one that the node has shown. Whoever shows it, and is not
// the process that speaks for the node, has got it somewhere else.
func (s *Server) checkCertificate(ctx context.Context, c *caller) error {
	if c.leaf == nil {
		return nil
	}

	shown, err := auth.Describe(c.leaf)
	if err != nil {
		return err
	}

	c.shown = &shown

	strange, err := s.roster.accepts(c.node, &shown, c.process(), s.Clock.Now())
	if strange {
		s.alarm(ctx, c.node, "somebody still uses a certificate that the node has replaced")
	}

	return err
}

// alarm says to the yard that somebody else may use the identity of a node.
func (s *Server) alarm(ctx context.Context, n id.Node, reason string) {
	record := httpapi.RecordOf(ctx)
	origin := yardmaster.Origin{Actor: "node/" + string(n), Address: record.Address}

	if _, err := s.do(ctx, yardmaster.From{Message: yardmaster.NodeAlarm{Node: n, Reason: reason},
		Origin: origin}); err != nil {
		s.Log.ErrorContext(ctx, "an alarm about the identity of a node could not be stored", "node", n, "reason", reason,
			"error", err)
	}
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
