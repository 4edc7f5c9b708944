// Package server is the yard's edge to people and agents: HTTP handlers, live
// feeds, uploads, and the loop that feeds the yardmaster. The handlers here are
// the people's API; the agents' protocol is in agentapi, and what both need of
// HTTP in httpapi.
//
// Handlers decide nothing about jobs: they check who asks (auth, tenant), turn
// wire types into messages, hand them to the loop and turn the answer back.
// Lists and history are read from the store. cmd/trainyard builds a Server and
// serves its Handler.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/contact"
	"trainyard/internal/diskspace"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/place"
	"trainyard/internal/retention"
	"trainyard/internal/server/agentapi"
	"trainyard/internal/server/collector"
	"trainyard/internal/server/content"
	"trainyard/internal/server/fanout"
	"trainyard/internal/server/feed"
	"trainyard/internal/server/forecaster"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/metrics"
	"trainyard/internal/server/notifier"
	"trainyard/internal/server/outputs"
	"trainyard/internal/server/portal"
	"trainyard/internal/server/utilization"
	"trainyard/internal/store"
	"trainyard/internal/vault"
)

// Config is what an operator can set, and the names of what is in use.
type Config struct {
	Version     string
	PolicyName  string
	StoreKind   string
	DataDir     string           // holds logs and blobs, and the database if that is SQLite; "" in tests without one
	Contact     contact.Settings // how often agents report, and what each answer grants them
	NodeCertTTL time.Duration
	Rate        float64 // requests per second allowed per token, node and address; 0 for no limit
	Burst       int
	MaxFile     int64              // bytes of one uploaded file
	MaxStreams  int                // live feeds of one user; 0 for no limit
	MaxUploads  int                // files that one user uploads at the same time; 0 for no limit
	MaxUploaded int64              // bytes of the uploaded files of one user; 0 for no limit
	AllUploaded int64              // the same of all users together
	Reserve     *diskspace.Reserve // room that uploads leave free; nil for none
	HideMetrics bool               // Prometheus metrics are served elsewhere
	Limits      retention.Limits
	Timeout     time.Duration // for an answer of the loop
	Standby     bool          // whether another server may lead the yard
	HasShared   bool          // whether shared file systems are declared
	// Personal says that jobs run under the account of the person who started the yard and can do whatever that person
	// can, so that nobody else may use it.
	Personal bool
	Notify   notifier.Settings
	// Demo says that all that the yard has is simulated. Every answer says so.
	Demo bool
}

// Deps is what a server works with.
type Deps struct {
	Loop        *Loop
	Store       store.Store
	Blobs       blob.Store
	Logbook     *archive.Archive
	Assignments agentapi.Assignments
	CA          *auth.CA
	Directory   *auth.Directory
	Feed        *feed.Feed
	Clock       clock.Clock
	Log         *slog.Logger
	Registry    *prometheus.Registry
	Metrics     *metrics.Collector // of the yard, for Registry; nil to show those of the server alone
	Servers     func() []string    // addresses of all servers, the leader first; none if there can be only one
	Address     string             // under which agents reach this server
	Stock       func() collector.Stock
	Vault       *vault.Vault   // encrypts secrets; nil for a server that does not lead
	Portal      *portal.Portal // the pages
	Codes       *Codes         // links that sign in once
	Policies    place.Registry // that the configuration can name
	WhatIf      WhatIf         // simulates the yard; nil for none
}

// Server answers HTTP.
type Server struct {
	Config
	Deps
	started  time.Time
	limiter  *rateLimiter
	searches *searches

	summaries  summaries
	reports    *turnstile
	rehearsals *turnstile
	starts     starts
	whatIfs    *turnstile
	streams    *httpapi.Slots
	tunnels    tunnelLimits
	shared     *fanout.Hub[logKey, logPlace] // output that is followed
	uploads    *httpapi.Slots
	joins      joins
	quota      *content.Quota
	openAPI    func() (document, error)
	used       *lastUsed
	access     *accessLog
	health     *health
	mux        *gate
	encoded    encodedJobs // of lists
	lists      jointly[[]byte]
	api        huma.API
	router     httpapi.Router
	agents     *agentapi.Server
	seer       *forecaster.Forecaster
	content    *content.Content
	outputs    *outputs.Catalogue
	notifier   *notifier.Notifier
	use        *utilization.Recorder
	tests      *rateLimiter // of channels
	origins    *http.CrossOriginProtection

	lagPatience time.Duration // with those who follow output and fall behind

	rotation sync.Mutex // of the master key of the secrets: one at a time
}

// New returns a server; Handler is what it serves. The loop must not run yet.
func New(c Config, d Deps, start string) *Server {
	s := &Server{Config: c, Deps: d, started: d.Clock.Now(), lagPatience: lagPatience}
	s.mux = &gate{http.NewServeMux(), s}

	if s.Portal == nil {
		s.Portal = portal.None()
	}

	if s.WhatIf == nil {
		s.WhatIf = noSimulator
	}

	s.limiter = newRateLimiter(c.Rate, c.Burst, d.Clock)
	s.searches = newSearches(d.Clock)
	s.reports = newTurnstile(reportsEach, reportsAtAll, reportWait, api.CodeTooManyReports, "reports")
	s.rehearsals = newTurnstile(rehearsalsEach, rehearsalsAtAll, rehearsalWait, api.CodeTooManyPreviews, "previews")
	s.whatIfs = newTurnstile(whatIfEach, whatIfAtAll, whatIfWait, "too_many_simulations", "simulations")
	s.streams = httpapi.NewSlots(c.MaxStreams, c.MaxStreams*allUsers, "too_many_streams", "live feeds")
	s.tunnels = newTunnelLimits()
	s.shared = fanout.NewHub[logKey, logPlace](sharedOutput, allSharedOutput)
	s.uploads = httpapi.NewSlots(c.MaxUploads, c.MaxUploads*allUsers, api.CodeTooManyUploads, "uploads")
	s.quota = content.NewQuota(c.MaxUploaded, c.AllUploaded, d.Store, d.Clock)
	s.used = newLastUsed()
	s.access = newAccessLog(d.Clock)
	s.health = newHealth(d.Loop, d.Store, d.Clock)
	s.health.dataDir = c.DataDir
	s.api = humago.New(s.mux, describe(c.Version))
	s.router = httpapi.Router{API: s.api, Mux: s.mux, Log: d.Log}
	s.content = content.New(d.Store, d.Blobs, d.Clock)
	s.outputs = outputs.New(d.Store, d.Blobs, d.Clock, c.Limits.UserFiles)
	s.seer = forecaster.New(forecaster.Deps{Store: d.Store, Clock: d.Clock, Log: d.Log, Do: s.do, Query: s.query,
		Statuses: s.statuses})
	d.Loop.Tell(s.seer.Follow)
	s.notifier = notifier.New(notifier.Deps{
		Settings: c.Notify, Store: d.Store, Feed: d.Feed, Vault: d.Vault, Clock: d.Clock, Log: d.Log, Do: s.do,
		Query: s.query,
	})
	s.tests = newRateLimiter(1/testPause.Seconds(), testsBurst, d.Clock)
	s.origins = http.NewCrossOriginProtection()
	s.use = utilization.New(utilization.Deps{Store: d.Store, Clock: d.Clock, Log: d.Log, Note: s.noteShare})
	d.Loop.Tell(s.use.Follow)
	s.agents = agentapi.New(s.agentConfig(start))
	d.Loop.tellFirst(s.agents.Follow)
	s.routes()
	s.openAPI = sync.OnceValues(func() (document, error) {
		text, err := s.OpenAPI()

		return newDocument("text/plain; charset=utf-8", text), err
	})

	return s
}

// allUsers is how many times as much all users together may have under way as one.
const allUsers = 16

// agentConfig is what the agents' side works with; start names this start of the
// server to them.
func (s *Server) agentConfig(start string) agentapi.Config {
	return agentapi.Config{
		Loop:        s.Loop,
		Nodes:       s.Loop.nodes(),
		Incarnation: s.Loop.incarnation(),
		Store:       s.Store,
		Blobs:       s.Blobs,
		Content:     s.content,
		Outputs:     s.outputs,
		Archive:     s.Logbook,
		Assignments: s.Assignments,
		Metrics:     s.seer,
		Use:         s.use,
		CA:          s.CA,
		Directory:   s.Directory,
		Clock:       s.Clock,
		Log:         s.Log,
		Start:       start,
		Contact:     s.Contact,
		NodeCertTTL: s.NodeCertTTL,
		Timeout:     s.Timeout,
		Standby:     s.Standby,
		HasShared:   s.HasShared,
		Servers:     s.Servers,
		Reserve:     s.Reserve,
		Allow:       func(n id.Node) bool { return s.limiter.allow("node " + string(n)) },
		Unknown:     s.unknown,
		Vault:       s.Vault,
	}
}

func (s *Server) routes() {
	s.jobRoutes()
	s.queueRoutes()
	s.arrayRoutes()
	s.logRoutes()
	s.checkpointRoutes()
	s.outputRoutes()
	s.tunnelRoutes()
	s.nodeRoutes()
	s.nodeRunRoutes()
	s.summaryRoutes()
	s.draftRoutes()
	s.offerRoutes()
	s.leaseRoutes()
	s.inboxRoutes()
	s.quotaRoutes()
	s.datasetRoutes()
	s.secretRoutes()
	s.notifyRoutes()
	s.utilizationRoutes()
	s.scheduleRoutes()
	s.reservationRoutes()
	s.usageRoutes()
	s.savingsRoutes()
	s.wasteRoutes()
	s.seer.Routes(forecaster.Edge{
		API: s.api, Security: byToken, Allow: allow, Fail: s.fail, Job: s.readJob, Sees: seesJob,
	})
	s.loginRoutes()
	s.sessionRoutes()
	s.userRoutes()
	s.tokenRoutes()
	s.projectRoutes()
	s.eventRoutes()
	s.fileRoutes()
	s.retentionRoutes()
	s.whatIfRoutes()
	s.agents.Routes(s.router)
	s.infoRoutes()
}

// Run does what a server does beside answering, until ctx ends. When it returns the store can be closed.
func (s *Server) Run(ctx context.Context) {
	var beside sync.WaitGroup
	for _, task := range []func(context.Context){
		s.health.run, s.seer.Run, s.notifier.Run, s.use.Run, s.rollUp,
		s.agents.VerifyCheckpoints, s.adoptContent, func(ctx context.Context) { s.access.run(ctx, s.do) },
	} {
		beside.Go(func() { task(ctx) })
	}
	defer beside.Wait() // what they have done is stored, and nothing uses the store any more

	if err := s.agents.RecallReleases(ctx); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "reading releases of GPUs failed; release them again", "error", err)
	}

	clock.Every(ctx, s.Clock, time.Minute, func(time.Time) {
		if err := s.Logbook.Sweep(); err != nil {
			s.Log.ErrorContext(ctx, "closing idle logs failed", "error", err)
		}

		s.limiter.sweep()
		s.tests.sweep()
	})
}

// adoptContent enters who possesses the content that earlier versions have taken. Until then, and if it fails, people
// upload it again.
func (s *Server) adoptContent(ctx context.Context) {
	if err := s.content.Adopt(ctx); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "entering the owners of uploaded files failed; the next start tries again", "error", err)
	}
}

// Handler answers requests.
func (s *Server) Handler() http.Handler { return s.labelled(s.audited(s.recovered(s.mux))) }

// labelled says with every answer of a simulated yard that it is one.
func (s *Server) labelled(next http.Handler) http.Handler {
	if !s.Demo {
		return next
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderDemo, "yes")
		next.ServeHTTP(w, r)
	})
}

// recovered answers a request whose handler panicked, and logs it.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { //nolint:errorlint // a sentinel value, compared as net/http does
					panic(p)
				}

				s.Log.ErrorContext(r.Context(), "handler panicked", "path", r.URL.Path, "panic", p, "stack", stack())
				httpapi.WriteProblem(w, errInternal())
			}
		}()

		next.ServeHTTP(w, r)
	})
}

// describe is the head of the OpenAPI description.
func describe(version string) huma.Config {
	c := huma.DefaultConfig("Trainyard", version)
	c.Info.Description = "HTTP API of the Trainyard server. For users: jobs, checkpoints, output files, forecasts, " +
		"nodes, offers, leases, quotas, datasets, secrets, notifications, usage, users, tokens, events and files. " +
		"For agents: join, assignments, reports, metrics, output, checkpoints and output files."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.CreateHooks = nil // no $schema links in answers
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "access token"},
		"node":  {Type: "mutualTLS", Description: "client certificate of the node"},
	}

	return c
}

// op describes an operation for people.
func (s *Server) op(name, method, path, summary, tag string) huma.Operation {
	return huma.Operation{
		OperationID: name, Method: method, Path: path, Summary: summary,
		Security: byToken, Tags: []string{tag},
	}
}

// schemaName names a type in the description: wire types by their name, nouns
// with their package in front, because both have a GPU.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)

	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if pkg := path.Base(t.PkgPath()); t.Name() != "" && pkg != "api" && pkg != "server" && pkg != "." {
		return strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}

	return name
}

// OpenAPI returns the description of the API as YAML.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().YAML() }
