package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/metrics"
	"trainyard/internal/server/portal"
	"trainyard/internal/spec"
)

func (s *Server) infoRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "info",
			Method:      http.MethodGet,
			Path:        "/api/v1/info",
			Summary:     "Show server version and configuration",
			Tags:        []string{"server"},
		},
		s.info,
	)

	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "ok\n") })
	s.mux.HandleFunc("GET /readyz", s.ready)

	s.mux.HandleFunc("GET /api/v1/openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		d, err := s.openAPI()
		if err != nil {
			httpapi.WriteProblem(w, s.fail(r.Context(), err))
			return
		}

		d.answer(w, r)
	})

	schema := sync.OnceValue(func() document { return newDocument("text/plain; charset=utf-8", spec.Schema()) })
	s.mux.HandleFunc(
		"GET /api/v1/jobfile.schema.json",
		func(w http.ResponseWriter, r *http.Request) { schema().answer(w, r) },
	)

	if !s.HideMetrics {
		s.mux.HandleFunc("GET /metrics", s.MetricsHandler().ServeHTTP)
	}

	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if portal.IsPage(r) {
			s.Portal.Page(w, r)
			return
		}

		answerText(
			w,
			http.StatusOK,
			"This is a Trainyard server, version "+s.Version+".\nUse the command line: trainyard login, trainyard jobs.\nThe "+
				"API is described at /api/v1/openapi.yaml.\n",
		)
	})

	s.mux.HandleFunc("GET /assets/{file}", func(w http.ResponseWriter, r *http.Request) {
		if !s.Portal.Asset(w, r, r.PathValue("file")) {
			httpapi.WriteProblem(w, noSuchPath(r))
		}
	})

	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if portal.IsPage(r) {
			s.Portal.Page(w, r)
			return
		}

		httpapi.WriteProblem(w, noSuchPath(r))
	})
	s.Registry.MustRegister(s.Loop.metrics, s.use)
	s.Registry.MustRegister(metrics.Health(s.health.why, s.Loop.Stuck)...)
	s.Registry.MustRegister(metrics.Followers(func() (int, int, int64) {
		stats := s.shared.Stats()
		return stats.Followers, stats.Bytes, stats.Skipped
	})...)

	if s.DataDir != "" {
		s.Registry.MustRegister(metrics.Disk(s.DataDir))
	}

	if s.Metrics != nil {
		s.Registry.MustRegister(s.Metrics)
	}
}

// MetricsHandler serves the Prometheus metrics.
func (s *Server) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{})
}

// document is something that is the same for everybody until the server is replaced. It is made once.
type document struct {
	kind string
	text []byte
	tag  string
}

func newDocument(kind string, text []byte) document {
	sum := sha256.Sum256(text)

	return document{kind: kind, text: text, tag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// answer sends the document, unless the caller has it.
func (d document) answer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", d.kind)
	h.Set("ETag", d.tag)

	// It sends nothing but the status to who has this version.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.text))
}

func noSuchPath(r *http.Request) error {
	return fault.New(fault.NotFound, "no_such_path", "%s %s does not exist", r.Method, r.URL.Path).
		WithRemedy("the API is described at /api/v1/openapi.yaml")
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// The caller is gone if this fails; there is nobody left to tell.
	_, _ = w.Write([]byte(text))
}

func (s *Server) info(context.Context, *struct{}) (*httpapi.Body[api.Info], error) {
	return &httpapi.Body[api.Info]{
		Body: api.Info{
			Version:    s.Version,
			Capability: api.Capability,
			CAHash:     s.CA.Hash(),
			Policy:     s.PolicyName,
			Store:      s.StoreKind,
			Started:    s.started,
			Now:        s.Clock.Now(),
			Demo:       s.Demo,
		},
	}, nil
}
