// Package standby is what a server answers while another leads.
//
// A standby forwards requests to the leader and returns its answers as they come, streams included. Callers keep
// their identity: an access token travels with its request; the certificate of a node is checked here, and the leader
// takes this server's word for it because servers prove to each other that they hold the yard's CA. A standby decides
// nothing, and says nothing of its own about nodes and jobs but what the store holds. cmd/trainyard serves it
// between terms.
package standby

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
)

// Config is what a standby works with.
type Config struct {
	Name   string // of this server
	CA     *auth.CA
	Clock  clock.Clock
	Log    *slog.Logger
	Leader func() string // address of the leader; "" if there is none
	// Loading reports whether this server has the lead but has not loaded the yard yet.
	Loading func() bool
	Metrics http.Handler
	// Reads answers a request that needs nothing but the store, and reports whether it is one.
	Reads func(w http.ResponseWriter, r *http.Request) bool
}

// Server answers for a standby.
type Server struct {
	Config
	proxy *httputil.ReverseProxy
}

// dialTimeout is how long the leader may take to accept a connection.
const dialTimeout = 2 * time.Second

// New returns a standby.
func New(c Config) *Server {
	s := &Server{Config: c}
	s.proxy = &httputil.ReverseProxy{
		Rewrite:       s.rewrite,
		FlushInterval: -1, // live feeds
		ErrorLog:      slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
		Transport: &http.Transport{
			TLSClientConfig:     c.CA.PeerTLS(c.Clock),
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: dialTimeout,
			DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Second}).DialContext,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 3 * time.Second},
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del(api.HeaderServers) // this server sends it itself
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the caller is gone
			}

			failure := s.unanswered(r, err)
			if !s.Reads(w, r) {
				httpapi.WriteProblem(w, failure)
			}
		},
	}

	return s
}

// unanswered says why a request could not be forwarded, or has got no answer.
func (s *Server) unanswered(r *http.Request, err error) error {
	s.Log.WarnContext(r.Context(), "the leader does not answer", "path", r.URL.Path, "error", err)

	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fault.New(fault.Unavailable, "other_ca", "this server and the leader do not have the same CA").
			WithRemedy("an admin must give all servers the same data directory")
	}

	return fault.New(fault.Unavailable, api.CodeLeaderSilent, "the leader does not answer; the request may or may not "+
		"have taken effect").
		WithRemedy("try again: another server will lead within seconds").WithCause(err)
}

type targetKey struct{}

func (s *Server) rewrite(p *httputil.ProxyRequest) {
	target, _ := p.In.Context().Value(targetKey{}).(*url.URL)
	p.SetURL(target)
	p.Out.Host = target.Host
	p.SetXForwarded()
	p.Out.Header.Set(httpapi.HeaderForwarded, s.Name)
	p.Out.Header.Del(httpapi.HeaderNode)
	p.Out.Header.Del(httpapi.HeaderNodeCertificate)

	if n, err := s.CA.NodeOf(p.In.TLS, s.Clock.Now()); err == nil {
		p.Out.Header.Set(httpapi.HeaderNode, string(n))
		p.Out.Header.Set(httpapi.HeaderNodeCertificate,
			base64.StdEncoding.EncodeToString(p.In.TLS.PeerCertificates[0].Raw))
	}
}

// ServeHTTP answers a request or forwards it to the leader.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		text(w, http.StatusOK, "ok\n")
	case "/readyz":
		s.ready(w)
	case "/metrics":
		s.Metrics.ServeHTTP(w, r)
	default:
		s.answer(w, r)
	}
}

// ready says that this server is not the one to rely on: it can answer, but only the leader can decide.
func (s *Server) ready(w http.ResponseWriter) {
	if leader := s.Leader(); leader != "" {
		text(w, http.StatusOK, "standby, leader is "+leader+"\n")
		return
	}

	why := "standby, and no server leads now"
	if s.Loading() {
		why = "loading the yard"
	}

	text(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if from := r.Header.Get(httpapi.HeaderForwarded); from != "" && s.CA.IsPeer(r.TLS, s.Clock.Now()) {
		httpapi.WriteProblem(w, notLeader())
		return
	}

	leader := s.Leader()

	target, err := url.Parse(leader)
	if leader == "" || err != nil {
		if !s.Reads(w, r) {
			httpapi.WriteProblem(w, notLeader())
		}

		return
	}

	s.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, target)))
}

func notLeader() error {
	return fault.New(fault.Unavailable, api.CodeNotLeader, "no server leads the yard now").
		WithRemedy("try again: one will within seconds")
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// The caller is gone if this fails; there is nobody left to tell.
	_, _ = w.Write([]byte(body))
}

// WithServers adds the addresses of all servers to every answer, so that clients know where else to ask.
func WithServers(list func() []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if servers := list(); len(servers) > 0 {
			w.Header().Set(api.HeaderServers, strings.Join(servers, ", "))
		}

		next.ServeHTTP(w, r)
	})
}
