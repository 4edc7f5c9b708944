package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/gauges"
	"trainyard/internal/spec"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func (s *Server) opsRoutes() {
	huma.Register(s.api, huma.Operation{OperationID: "info", Method: http.MethodGet, Path: "/api/v1/info", Summary: "Say what this server is", Tags: []string{"server"}}, s.info)
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "ok\n") })
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.HandleFunc("GET /api/v1/openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		text, err := s.OpenAPI()
		if err != nil {
			writeProblem(w, s.fail(r.Context(), err))
			return
		}
		answerText(w, http.StatusOK, string(text))
	})
	s.mux.HandleFunc("GET /api/v1/jobfile.schema.json", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, string(spec.Schema())) })
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}))
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answerText(w, http.StatusOK, "This is a Trainyard server, version "+s.Version+".\nUse the command line: trainyard login, trainyard jobs.\nThe API is described at /api/v1/openapi.yaml.\n")
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { writeProblem(w, noSuchPath(r)) })
	s.Registry.MustRegister(s.Loop.metrics)
	s.Registry.MustRegister(gauges.Health(s.health.why, s.Loop.Stuck)...)
	if s.Gauges != nil {
		s.Registry.MustRegister(s.Gauges)
	}
}

func noSuchPath(r *http.Request) error {
	return fault.New(fault.NotFound, "no_such_path", "there is no %s %s", r.Method, r.URL.Path).WithRemedy("the API is described at /api/v1/openapi.yaml")
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// The caller is gone if this fails; there is nobody left to tell.
	_, _ = w.Write([]byte(text))
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func (s *Server) info(context.Context, *struct{}) (*body[api.Info], error) {
	return &body[api.Info]{api.Info{Version: s.Version, Capability: api.Capability, CAHash: s.CA.Hash(), Policy: s.PolicyName, Store: s.StoreKind,
		Started: s.started, Now: s.Clock.Now()}}, nil
}

// ready tells the truth: the loop answers and the store has just written and read.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if why := s.health.why(); why != "" {
		answerText(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
		return
	}
	answerText(w, http.StatusOK, "ready\n")
}

// health checks loop and store again and again, so that asking is cheap and a
// check that hangs is seen as what it is.
type health struct {
	loop  *Loop
	store store.Store
	clock clock.Clock
	mu    sync.Mutex
	fault string
	good  time.Time // last time all was well
}

const (
	checkEvery   = time.Second
	checkTimeout = 3 * time.Second
)

func newHealth(l *Loop, s store.Store, clk clock.Clock) *health {
	return &health{loop: l, store: s, clock: clk, fault: "just started"}
}

func (h *health) run(ctx context.Context) {
	clock.Every(ctx, h.clock, checkEvery, func(time.Time) {
		bounded, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		err := h.store.Ping(bounded)
		if err == nil {
			err = h.loop.Query(bounded, func(*yardmaster.Yard) {})
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.fault = err.Error()
			return
		}
		h.fault, h.good = "", h.clock.Now()
	})
}

// why returns why the server is not ready, "" if it is.
func (h *health) why() string {
	if why := h.loop.Stuck(); why != "" {
		return why
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault == "" && h.clock.Now().Sub(h.good) > 2*checkTimeout {
		return "the last check has not come back"
	}
	return h.fault
}

// writers remembers which node was found to be allowed to write a log.
type writers struct {
	mu sync.Mutex
	by map[string]id.Node
}

// maxWriters bounds the memory; past it all are asked for again.
const maxWriters = 50_000

func (w *writers) is(key string, n id.Node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[key] == n
}

func (w *writers) set(key string, n id.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil || len(w.by) >= maxWriters {
		w.by = map[string]id.Node{}
	}
	w.by[key] = n
}

// publicKey returns the encoded public key of a certificate request.
func publicKey(der []byte) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, err
	}
	return x509.MarshalPKIXPublicKey(csr.PublicKey)
}
