package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"trainyard/cmd/trainyard/clouds"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/cli"
	"trainyard/internal/clock"
	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/engine/agents"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/logs/archive"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/server"
	"trainyard/internal/server/feed"
	"trainyard/internal/server/metrics"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func serverCommand(env cli.Env) *cobra.Command {
	settings := append(append([]setting{dataSetting}, serverSettings...), logSettings...)
	anew := false
	cmd := &cobra.Command{
		Use:     "server",
		Short:   "Run the server",
		GroupID: cli.GroupStart,
		Args:    cobra.NoArgs,
		Long: `Run the server until it is stopped with SIGINT or SIGTERM.

At the first start it creates its own CA and prints a bootstrap token, once, with which the first admin
logs in.`,
		Example: "  trainyard server --listen 0.0.0.0:7443 --hosts yard.example.org\n" +
			"  trainyard server --store postgres://yard@db/yard",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(cmd, env, settings)
			if err != nil {
				return err
			}

			s, err := startServer(cmd.Context(), c, c.logger(env))
			if err != nil {
				return err
			}

			if anew && s.bootstrap == "" {
				s.bootstrap, err = bootstrap(cmd.Context(), s)
				if err != nil {
					return errors.Join(err, s.stop())
				}
			}

			if s.bootstrap != "" {
				if _, err := fmt.Fprintf(
					env.Stdout,
					"Log in as admin with this bootstrap token; it is shown once and works once:\n\n  trainyard login %s --token "+
						"%s\n\n",
					s.url,
					s.bootstrap,
				); err != nil {
					return errors.Join(err, s.stop())
				}
			}

			return s.wait(cmd.Context())
		},
	}

	register(cmd, settings)
	cmd.Flags().
		BoolVar(&anew, "new-bootstrap-token", false, "print a new bootstrap token for admin, to regain access")

	return cmd
}

// running is a server that runs.
type running struct {
	url       string
	bootstrap string // token of the first admin, at the first start only
	ca        *auth.CA
	loop      *server.Loop
	clock     clock.Clock
	http      *http.Server
	store     store.Store
	cancel    context.CancelFunc
	failed    chan error // gets why it ended by itself
	done      chan struct{}
	log       *slog.Logger
	runner    *reconcile.Runner // calls the providers; nil if nothing can be provisioned
}

// startServer opens everything, takes up where the last server stopped, and serves.
func startServer(ctx context.Context, c *config, log *slog.Logger) (_ *running, err error) {
	in, err := readInputs(c)
	if err != nil {
		return nil, err
	}

	collectLess()
	clk := clock.NewSteady()
	began := clk.Now()

	f, err := openFolders(c, clk)
	if err != nil {
		return nil, err
	}

	st, kind, err := openStore(ctx, c, clk, log)
	if err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, st.Close())
		}
	}()

	start, err := randomHex()
	if err != nil {
		return nil, err
	}
	if err := acquire(ctx, st, start, log); err != nil {
		return nil, err
	}

	state, err := st.Load(ctx, clk.Now().Add(-c.keepFinal))
	if err != nil {
		return nil, fmt.Errorf("load the yard: %w", err)
	}

	continueTime(clk, &state, log)

	cfg, err := yardConfig(c, in, clk)
	if err != nil {
		return nil, err
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "listen", "cannot listen on %s: %v", c.listen, err).
			WithRemedy("is another server running there? choose another address with --listen")
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()

	runner, provisioner, err := clouds.NewRunner(ctx, clouds.Options{
		Clouds: in.clouds, Data: c.data, URL: urlOf(listener.Addr()), CA: f.ca, Config: cfg.Provision, Clock: clk, Log: log,
	})
	if err != nil {
		return nil, err
	}

	r := &running{
		url: urlOf(listener.Addr()), ca: f.ca, clock: clk, store: st, log: log, runner: runner,
		failed: make(chan error, 2), done: make(chan struct{}),
	}

	srv := r.newServer(c, serverParts{
		config: cfg, state: state, folders: f, providers: in.clouds.Names(), provisioner: provisioner,
		storeKind: kind, start: start,
	})

	identity, err := f.ca.NewServerIdentity(hostsOf(c, listener.Addr()), clk)
	if err != nil {
		return nil, err
	}

	r.http = newHTTPServer(srv.Handler(), f.ca.ServerTLS(identity), log)
	r.run(srv, listener, clk)

	r.bootstrap, err = firstAdmin(ctx, r, state.Users)
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}

	log.Info("server works", "url", r.url, "store", kind, "policy", c.policy,
		"jobs", len(state.Jobs), "nodes", len(state.Nodes), "took", clk.Now().Sub(began))

	return r, nil
}

// inputs is what the files and names in the configuration stand for.
type inputs struct {
	newPolicy func() place.Policy
	tariff    *fleet.Tariff
	clouds    *clouds.Clouds
	offers    []fleet.Offer
}

// readInputs reads them before anything is opened, so that a mistake changes nothing.
func readInputs(c *config) (in inputs, err error) {
	in.newPolicy, err = policies().Make(c.policy)
	if err != nil {
		return in, err
	}

	in.tariff, err = readTariff(c.tariff)
	if err != nil {
		return in, err
	}

	in.clouds, in.offers, err = clouds.ReadClouds(c.clouds)
	if err != nil {
		return in, err
	}

	return in, in.check()
}

// check refuses what cannot be combined.
func (in *inputs) check() error {
	if in.clouds == nil {
		if ondemand.HasOwnTerms(in.newPolicy()) {
			return fault.New(fault.Invalid, "no_clouds",
				"the parameters provision_… of a policy have no effect without clouds").WithField("policy").
				WithRemedy("leave them out, or name the clouds file with --clouds")
		}

		return nil
	}

	return place.Refusal(in.newPolicy(), place.Clouds)
}

// folders is what is kept in the data folder beside the store.
type folders struct {
	ca    *auth.CA
	blobs *blob.Dir
	logs  *archive.Archive
}

func openFolders(c *config, clk clock.Clock) (f folders, err error) {
	f.ca, err = auth.OpenCA(filepath.Join(c.data, "ca"), clk.Now())
	if err != nil {
		return f, err
	}

	f.blobs, err = blob.OpenDir(filepath.Join(c.data, "blobs"))
	if err != nil {
		return f, err
	}

	f.logs, err = archive.Open(filepath.Join(c.data, "logs"), f.blobs, clk)

	return f, err
}

// yardConfig puts what the operator set over the yard's defaults.
func yardConfig(c *config, in inputs, clk clock.Clock) (yardmaster.Config, error) {
	cfg := yardmaster.Defaults(in.newPolicy())
	cfg.SuspectAfter = c.suspectAfter
	cfg.LostAfter = c.lostAfter
	cfg.BackoffBase = c.backoff
	cfg.KeepFinal = c.keepFinal
	cfg.MaxJobs = c.maxJobs
	cfg.LogLimit = c.logLimit
	cfg.Tariff = in.tariff
	cfg.Offers = in.offers
	cfg.RefuseImpossible = c.refuse
	cfg.Limit = func() func() bool {
		until := clk.Now().Add(c.roundLimit)
		return func() bool { return clk.Now().After(until) }
	}

	err := in.clouds.Terms(&cfg)

	return cfg, err
}

// serverParts is what newServer puts together.
type serverParts struct {
	config      yardmaster.Config
	state       yardmaster.State
	folders     folders
	providers   []string
	provisioner *clouds.Provisioner // nil if nothing can be provisioned
	storeKind   string
	start       string // names this start of the server
}

// newServer builds the yard from its stored state, the loop that feeds it, and the
// server in front of it. Nothing runs yet.
func (r *running) newServer(c *config, p serverParts) *server.Server {
	yard := yardmaster.New(p.config)
	directory := auth.NewDirectory()
	directory.Set(p.state.Users, p.state.Tokens)

	collector := metrics.New(r.clock, metrics.Options{Providers: p.providers, ByUser: c.byUser})
	collector.Load(&p.state)
	yard.Load(r.clock.Now(), p.state)
	hub := agents.New(yard.Orders())
	events := feed.New(p.state.LastEvent)

	after := []func(*yardmaster.Batch){
		events.Add,
		collector.Take,
		func(b *yardmaster.Batch) { tell(directory, b) },
	}

	if r.runner != nil {
		after = append(after, func(b *yardmaster.Batch) { r.runner.Take(b.Leases) })
	}

	r.loop = server.NewLoop(server.LoopConfig{
		Yard: yard, Store: r.store, Engine: hub, Clock: r.clock, Log: r.log, After: after,
	})
	if r.runner != nil {
		r.provision(p.provisioner, collector, p.state.Leases)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)

	return server.New(server.Config{
		Version: version, PolicyName: c.policy, StoreKind: p.storeKind,
		Interval: c.reportEvery, Lease: c.lostAfter * 9 / 10, NodeCertTTL: 30 * 24 * time.Hour,
		Rate: c.rate, Burst: c.burst, MaxFile: c.maxFile, Timeout: 30 * time.Second,
	}, server.Deps{
		Loop: r.loop, Store: r.store, Blobs: p.folders.blobs, Logbook: p.folders.logs, Assignments: hub,
		CA: p.folders.ca, Directory: directory, Feed: events, Clock: r.clock, Log: r.log,
		Registry: registry, Metrics: collector,
	}, p.start)
}

// provision connects the runner that calls the providers with the loop.
func (r *running) provision(p *clouds.Provisioner, collector *metrics.Collector, leases []fleet.Lease) {
	p.Loop = r.loop
	r.runner.Deliver = func(ctx context.Context, m yardmaster.Message) error {
		_, err := r.loop.Do(ctx, m)
		return err
	}

	r.runner.Watch = collector
	r.runner.Take(leases)
}

// newHTTPServer sets the time limits of the connections.
func newHTTPServer(handler http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           clouds.WithProgram(handler),
		TLSConfig:         config,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			SendPingTimeout:      30 * time.Second,
			PingTimeout:          15 * time.Second,
		},
	}
}

// run starts the loop and serves.
func (r *running) run(srv *server.Server, listener net.Listener, clk *clock.Steady) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // stop calls it
	r.cancel = cancel
	r.http.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() {
		defer close(r.done)

		if err := r.loop.Run(ctx); err != nil {
			r.failed <- fmt.Errorf("the loop ended: %w", err)
		}
	}()

	go srv.Run(ctx)
	go watchClock(ctx, clk, r.log)

	if r.runner != nil {
		go r.runner.Run(ctx)
	}

	go func() {
		if err := r.http.ServeTLS(listener, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
			r.failed <- fmt.Errorf("serve: %w", err)
		}
	}()
}

// wait serves until ctx ends or something fails, and then stops in order.
func (r *running) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		r.log.Info("stopping")
		return r.stop()
	case err := <-r.failed:
		return errors.Join(err, r.stop())
	}
}

// stop lets requests that are under way finish, ends live feeds, and closes the store.
func (r *running) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	r.http.SetKeepAlivesEnabled(false)

	go func() {
		if clock.Sleep(ctx, 200*time.Millisecond) {
			r.cancel() // live feeds do not end by themselves
		}
	}()

	err := r.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = r.http.Close()
	}

	r.cancel()
	<-r.done

	return errors.Join(err, r.store.Close())
}

// openStore opens the store that the configuration names.
func openStore(ctx context.Context, c *config, clk clock.Clock, log *slog.Logger) (store.Store, string, error) {
	url, kind := c.store, "sqlite"
	if url == "" {
		url = filepath.Join(c.data, "yard.db")
	}

	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		kind = "postgres"
	}

	st, err := sqlstore.Open(ctx, url, sqlstore.Options{Clock: clk, Log: log})
	if err != nil {
		return nil, "", fmt.Errorf("open store: %w", err)
	}

	return st, kind, nil
}

// acquire becomes the one writer, and says so if it has to wait for another server.
func acquire(ctx context.Context, st store.Store, holder string, log *slog.Logger) error {
	done := make(chan struct{})
	defer close(done)

	waiting, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() {
		if clock.Wait(waiting, 2*time.Second, done) == clock.Passed {
			log.Warn("another server holds the store; waiting until it is gone")
		}
	}()

	if err := st.Acquire(ctx, holder); err != nil {
		return fmt.Errorf("become the store's writer: %w", err)
	}

	return nil
}

// tell keeps the directory up to date with what was committed.
func tell(d *auth.Directory, b *yardmaster.Batch) {
	for i := range b.Users {
		d.PutUser(b.Users[i])
	}

	for i := range b.Tokens {
		d.PutToken(b.Tokens[i])
	}
}

// bootstrapLife is how long the first admin has to log in.
const bootstrapLife = 7 * 24 * time.Hour

// firstAdmin makes the first user and their bootstrap token at the first start.
func firstAdmin(ctx context.Context, r *running, users []tenant.User) (string, error) {
	if len(users) > 0 {
		return "", nil
	}

	return bootstrap(ctx, r)
}

// bootstrap makes admin an admin, whoever took that from them, and a bootstrap token for them.
func bootstrap(ctx context.Context, r *running) (string, error) {
	if _, err := r.loop.Do(ctx, yardmaster.PutUser{User: "admin", Role: tenant.Admin, By: "yard"}); err != nil {
		return "", fmt.Errorf("make the first admin: %w", err)
	}

	secret, err := auth.Mint(tenant.BootstrapToken, rand.Reader, r.ca.Hash())
	if err != nil {
		return "", err
	}

	_, err = r.loop.Do(
		ctx,
		yardmaster.AddToken{
			By: "yard",
			Token: tenant.Token{ID: secret.ID, Kind: tenant.BootstrapToken, Owner: "admin", Hash: secret.Hash,
				Scope: tenant.ScopeAdmin, UsesLeft: 1, Expires: r.clock.Now().Add(bootstrapLife)},
		},
	)
	if err != nil {
		return "", fmt.Errorf("make the bootstrap token: %w", err)
	}

	return secret.Text, nil
}

// hostsOf lists the names for which the server's certificate is valid.
func hostsOf(c *config, addr net.Addr) []string {
	hosts := append([]string{"localhost", "127.0.0.1", "::1"}, c.hosts...)
	if h, _, err := net.SplitHostPort(addr.String()); err == nil && !net.ParseIP(h).IsUnspecified() {
		hosts = append(hosts, h)
	}

	slices.Sort(hosts)

	return slices.Compact(hosts)
}

// urlOf is how the server is reached on this machine.
func urlOf(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "https://" + addr.String()
	}

	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}

	return "https://" + net.JoinHostPort(host, port)
}

func randomHex() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("name this start: %w", err)
	}

	return hex.EncodeToString(b[:]), nil
}
