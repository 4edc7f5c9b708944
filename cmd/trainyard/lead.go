package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trainyard/cmd/trainyard/clouds"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/diskspace"
	"trainyard/internal/engine/agents"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server"
	"trainyard/internal/server/collector"
	"trainyard/internal/server/feed"
	"trainyard/internal/server/history"
	"trainyard/internal/server/leadership"
	"trainyard/internal/server/metrics"
	"trainyard/internal/server/standby"
	"trainyard/internal/sim/demo"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/vault"
	"trainyard/internal/yardmaster"
)

// front serves what the server is at present: the leader, or a standby.
type front struct{ handler atomic.Pointer[http.Handler] }

func (f *front) set(h http.Handler) { f.handler.Store(&h) }

// ServeHTTP answers a request.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*f.handler.Load()).ServeHTTP(w, r)
}

// showMetrics lets the listener for metrics, if there is one, serve these.
func (r *running) showMetrics(h http.Handler) { r.metrics.set(h) }

// current is the loop of the present term.
func (r *running) current() *server.Loop {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.loop
}

// waitToLead begins a term, and says so if it has to wait for another server.
func (r *running) waitToLead(ctx context.Context) (*leadership.Term, error) {
	done := make(chan struct{})
	defer close(done)

	waiting, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() {
		if clock.Wait(waiting, 2*time.Second, done) == clock.Passed {
			r.log.Warn("another server leads; waiting until it is gone")
		}
	}()

	address := ""
	if r.members != nil {
		address = r.members.Self.Address
	}

	term, err := leadership.Begin(ctx, leadership.Config{
		Store: r.store,
		Candidate: store.Candidate{
			Server: store.Server{Name: r.name.text, Address: address},
			Lease:  r.config.leaderLease,
			Former: r.name.former,
		},
		Clock: clock.NewSteady(), // not the yard's, which is set forward to the newest time that was stored
		Log:   r.log,
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the lead: %w", err)
	}

	return term, nil
}

// govern leads whenever it can, until ctx ends. A server that another one has followed drops all that it held in
// memory and stands by; where only one server can use the store it ends.
func (r *running) govern(ctx context.Context, term *leadership.Term) error {
	for ctx.Err() == nil {
		if term == nil {
			var err error
			term, err = r.waitToLead(ctx)
			if err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // it was stopped while it stood by
				}

				return err
			}
		}

		err := r.lead(ctx, term)
		r.front.set(r.standby)
		r.showMetrics(r.standby.Metrics)

		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped; what had failed by then was logged
		}
		if !r.shared() || fault.KindOf(err) != fault.Unavailable {
			return fmt.Errorf("the loop ended: %w", err)
		}

		r.log.Warn("this server does not lead any more; standing by", "error", err)

		if err := r.store.Resign(ctx); err != nil {
			r.log.Warn("could not resign", "error", err)
		}

		term = nil
	}

	return nil
}

// lead loads the yard and runs it until ctx ends or the term does.
func (r *running) lead(parent context.Context, term *leadership.Term) (err error) {
	ctx, cancel := context.WithCancelCause(parent)
	ended := make(chan error, 6)
	tasks := 0
	start := func(task func(context.Context) error) {
		tasks++

		go func() {
			err := task(ctx)
			cancel(err)
			ended <- err
		}()
	}

	defer func() {
		cancel(nil)

		for range tasks {
			err = errors.Join(err, <-ended)
		}

		if err == nil && parent.Err() == nil {
			err = context.Cause(ctx)
		}
	}()

	// The lease is renewed while the yard is loaded, which may take longer than it lasts.
	start(term.Keep)

	began := r.clock.Now()

	y, err := r.takeLead(ctx, term)
	if err != nil {
		return err
	}

	r.mu.Lock()
	r.loop = y.loop
	r.mu.Unlock()

	start(y.loop.Run)
	start(func(ctx context.Context) error {
		y.server.Run(ctx)
		return nil
	})

	start(func(ctx context.Context) error {
		y.blobs.Run(ctx)
		return nil
	})

	if y.runner != nil {
		start(func(ctx context.Context) error {
			y.runner.Run(ctx)
			return nil
		})
	}

	if y.demo != nil {
		start(func(ctx context.Context) error {
			return y.demo.Run(ctx, demo.Server{
				Intake: y.server, Do: y.loop.Do, Store: r.store, Logs: y.logs, Clock: r.clock, Log: r.log,
			})
		})
	}

	r.front.set(within(ctx, y.server.Handler()))
	r.showMetrics(y.server.MetricsHandler())

	if err := r.announce(ctx, y.users); err != nil {
		return err
	}

	r.log.Info("server works", "url", r.url, "store", r.kind, "policy", r.config.policy,
		"jobs", y.jobs, "nodes", y.nodes, "took", r.clock.Now().Sub(began))

	<-ctx.Done()

	return nil
}

// announce lets those go on who wait until this server leads for the first time. The first server of a yard
// makes the first admin before.
func (r *running) announce(ctx context.Context, users int) error {
	select {
	case <-r.leads:
		return nil
	default:
	}

	if users == 0 {
		var err error
		r.bootstrap, err = bootstrap(ctx, r)
		if err != nil {
			return err
		}
	}

	close(r.leads)

	return nil
}

// within ends the requests of a handler with ctx: live feeds of a server that does not lead any more say nothing new.
func within(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		bounded, cancel := context.WithCancel(req.Context())
		defer cancel()

		stop := context.AfterFunc(ctx, cancel)
		defer stop()

		next.ServeHTTP(w, req.WithContext(bounded))
	})
}

// yard is what a server holds in memory while it leads.
type yard struct {
	server *server.Server
	loop   *server.Loop
	runner *reconcile.Runner // calls the providers; nil if nothing can be provisioned
	blobs  *collector.Collector
	logs   *archive.Archive
	demo   *demo.Live // models its nodes; nil if they are real

	users, jobs, nodes int
}

// takeLead builds the yard from its stored state, the loop that feeds it, and the server in front of it. It is
// called once for each term, and nothing of an earlier term is in what it returns. Nothing runs yet.
func (r *running) takeLead(ctx context.Context, term *leadership.Term) (*yard, error) {
	state, err := r.store.Load(ctx, r.clock.Now().Add(-r.config.keepFinal))
	if err != nil {
		return nil, fmt.Errorf("load the yard: %w", err)
	}

	continueTime(r.clock, &state, r.log)

	// An archive remembers how long logs are; another leader may have continued them.
	logs, err := archive.Open(r.folders.logDir, r.folders.blobs, r.clock)
	if err != nil {
		return nil, err
	}

	found := history.Deps{Store: r.store, Logs: logs, Mark: r.folders.mark, Log: r.log}
	if _, err := history.Resume(ctx, found, r.clock.Now(), &state); err != nil {
		return nil, err
	}

	cfg, err := yardConfig(r.config, r.in, r.clock)
	if err != nil {
		return nil, err
	}

	start, err := randomHex()
	if err != nil {
		return nil, err
	}

	box := r.openVault(ctx, state.Secrets)
	out := &yard{users: len(state.Users), jobs: len(state.Jobs), nodes: len(state.Nodes), logs: logs}
	if r.config.demo {
		demo.Configure(&cfg)
		out.demo = demo.NewLive(&state)
	}

	core := yardmaster.New(cfg)
	directory := auth.NewDirectory()
	directory.Set(state.Users, state.Tokens, state.Members)

	figures := metrics.New(r.clock, metrics.Options{Providers: r.in.clouds.Names(), ByUser: r.config.byUser})
	figures.Load(&state)

	for i := range state.Nodes { // of an earlier version, whose agents may not report their inventory again for long
		inv := &state.Nodes[i].Inventory
		inv.SingleUser = inv.RequiresSingleUser()
	}

	core.Load(r.clock.Now(), state)
	hub := agents.New(core.Orders())
	events := feed.New(state.LastEvent)

	after := []func(*yardmaster.Batch){
		r.folders.mark.Follow,
		// Before the feed, so that nobody is sent what happened after they were locked out.
		func(b *yardmaster.Batch) { server.KeepDirectory(directory, b) },
		events.Add,
		figures.Take,
		func(b *yardmaster.Batch) {
			if out.runner != nil {
				out.runner.Take(b.Leases)
			}

			if out.demo != nil {
				out.demo.Follow(b)
			}
		},
	}

	out.loop = server.NewLoop(server.LoopConfig{
		Yard: core, Store: r.store, Engine: hub, Clock: r.clock, Log: r.log, After: after, Held: term.Held,
	})

	out.runner, err = r.provision(ctx, cfg, out.loop, figures, state.Leases)
	if err != nil {
		return nil, err
	}

	guard := collector.NewGuard(r.folders.blobs, r.clock.Now())
	out.blobs = collector.New(collector.Deps{
		Guard: guard, Store: r.store, Logs: logs, Loop: out.loop, Yard: r.folders.ca.Hash(), Limits: r.config.limits,
		Clock: r.clock, Log: r.log,
	})

	known := policies()
	out.server = server.New(server.Config{
		Version: version, PolicyName: r.config.policy, StoreKind: r.kind, DataDir: r.config.data,
		Contact: r.config.contact(), NodeCertTTL: 30 * 24 * time.Hour,
		Rate: r.config.rate, Burst: r.config.burst, MaxFile: r.config.maxFile, Timeout: 30 * time.Second,
		MaxStreams: r.config.maxStreams, MaxUploads: r.config.maxUploads, Reserve: r.reserve(),
		MaxUploaded: r.config.maxUploaded, AllUploaded: r.config.allUploaded,
		HideMetrics: r.config.metricsListen != "",
		Limits:      r.config.limits, Standby: r.shared(), HasShared: len(r.config.sharedFS) > 0,
		Personal: r.config.personal, Notify: r.in.notify, Demo: r.config.demo,
	}, server.Deps{
		Loop: out.loop, Store: r.store, Blobs: guard.Store(), Logbook: logs, Assignments: hub,
		CA: r.folders.ca, Directory: directory, Feed: events, Clock: r.clock, Log: r.log,
		Registry: newRegistry(1), Metrics: figures, Servers: r.members.Addresses,
		Address: r.members.Self.Address, Stock: out.blobs.Stock,
		Vault: box, Portal: r.pages, Codes: r.codes, Policies: known, WhatIf: r.simulator(known),
	}, start)

	return out, nil
}

// reserve is the room that uploads leave free on the disks with the data directory and the blobs.
func (r *running) reserve() *diskspace.Reserve {
	dirs := []string{r.config.data}
	if local, ok := r.folders.blobs.(blob.Local); ok {
		dirs = append(dirs, local.Folder())
	}

	return &diskspace.Reserve{Bytes: job.Bytes(r.config.diskReserve), Dirs: dirs}
}

// keyFile has the master keys of the secrets, in the data folder.
const keyFile = "secrets.key"

// openVault opens the key file and finds out which of the stored secrets can be decrypted with it. Jobs that ask for
// another one are held; everything else goes on.
func (r *running) openVault(ctx context.Context, stored []tenant.Secret) *vault.Vault {
	keys := vault.OpenKeyFile(filepath.Join(r.config.data, keyFile), r.clock, len(stored) == 0)
	if err := keys.Problem(); err != nil {
		r.log.ErrorContext(ctx, "secrets cannot be used", "error", err)
	}

	box := &vault.Vault{KMS: keys}
	box.Check(ctx, stored)

	for i := range stored {
		if s := &stored[i]; s.Problem != "" {
			r.log.ErrorContext(ctx, "a secret cannot be decrypted; jobs that ask for it are held",
				"secret", s.Path(), "error", s.Problem)
		}
	}

	return box
}

// provision returns the runner that calls the providers, connected with the loop; nil if there are none.
func (r *running) provision(
	ctx context.Context,
	cfg yardmaster.Config,
	loop *server.Loop,
	figures *metrics.Collector,
	leases []fleet.Lease,
) (*reconcile.Runner, error) {
	runner, provisioner, err := clouds.NewRunner(ctx, clouds.Options{
		Clouds: r.in.clouds, Data: r.config.data, URL: r.members.Self.Address, CA: r.folders.ca,
		Config: cfg.Provision, Clock: r.clock, Log: r.log,
	})
	if err != nil || runner == nil {
		return nil, err
	}

	provisioner.Loop = loop
	runner.Deliver = func(ctx context.Context, m yardmaster.Message) error {
		_, err := loop.Do(ctx, m)
		return err
	}

	runner.Watch, runner.Held = figures, loop.Held
	runner.Take(leases)

	return runner, nil
}

// newRegistry holds the metrics of the process, and whether it leads.
func newRegistry(leads float64) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(processMetrics()...)
	registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "trainyard_leader", Help: "1 if this server leads the yard, 0 if it stands by."},
		func() float64 { return leads },
	))

	return registry
}

// newStandby returns what the server answers while it does not lead.
func (r *running) newStandby() *standby.Server {
	reads := r.newReads()

	return standby.New(standby.Config{
		Name: r.name.text, CA: r.folders.ca, Clock: r.clock, Log: r.log,
		Leader: r.members.Leader, Loading: r.members.SelfLeads, Reads: reads.answer,
		Metrics: promhttp.HandlerFor(newRegistry(0), promhttp.HandlerOpts{}),
	})
}

// reads answers from the store while no server leads.
type reads struct {
	store     store.Store
	clock     clock.Clock
	log       *slog.Logger
	routes    *http.ServeMux
	directory *auth.Directory

	mu    sync.Mutex
	known time.Time // when users and tokens were read
}

// readsKeep is for how long users and tokens that were read are used.
const readsKeep = time.Second

// newReads returns a server without a yard. Its loop never runs and says that another server leads.
func (r *running) newReads() *reads {
	directory := auth.NewDirectory()
	notLeader := func() error { return store.ErrNotLeader }
	srv := server.New(server.Config{
		Version: version, PolicyName: r.config.policy, StoreKind: r.kind, Rate: r.config.rate, Burst: r.config.burst,
		Timeout: time.Second, Standby: r.shared(),
	}, server.Deps{
		Loop:  server.NewLoop(server.LoopConfig{Store: r.store, Clock: r.clock, Log: r.log, Held: notLeader}),
		Store: r.store, Blobs: r.folders.blobs, CA: r.folders.ca, Directory: directory, Feed: feed.New(0),
		Clock: r.clock, Log: r.log, Registry: prometheus.NewRegistry(), Servers: r.members.Addresses,
	}, "")

	out := &reads{
		store: r.store, clock: r.clock, log: r.log, routes: http.NewServeMux(), directory: directory,
	}
	for _, path := range []string{"/api/v1/info", "/api/v1/jobs", "/api/v1/jobs/{job}", "/api/v1/events"} {
		out.routes.Handle("GET "+path, srv.Handler())
	}

	return out
}

// answer answers a request that needs nothing but the store, and reports whether it is one.
func (s *reads) answer(w http.ResponseWriter, req *http.Request) bool {
	handler, pattern := s.routes.Handler(req)
	if pattern == "" {
		return false
	}
	if err := s.readPeople(req.Context()); err != nil {
		s.log.WarnContext(req.Context(), "cannot read who may ask", "error", err)
		return false
	}

	handler.ServeHTTP(w, req)

	return true
}

// readPeople reads users, members of projects and tokens, which the leader may have changed.
func (s *reads) readPeople(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if now := s.clock.Now(); now.Sub(s.known) < readsKeep {
		return nil
	}

	users, err := s.store.Users(ctx, "", math.MaxInt32)
	if err != nil {
		return err
	}

	tokens, err := s.store.Tokens(ctx, "", "", math.MaxInt32)
	if err != nil {
		return err
	}

	members, err := s.store.Members(ctx)
	if err != nil {
		return err
	}

	s.directory.Set(users, tokens, members)
	s.known = s.clock.Now()

	return nil
}
