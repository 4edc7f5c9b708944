package main

import (
	"context"
	"crypto/rand"
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

	"trainyard/cmd/trainyard/hiring"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/cli"
	"trainyard/internal/clock"
	"trainyard/internal/cloud/desk"
	"trainyard/internal/engine/agents"
	"trainyard/internal/fault"
	"trainyard/internal/logbook"
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
		Use: "server", Short: "Run the yard's server", GroupID: cli.GroupStart, Args: cobra.NoArgs,
		Long: "Run the yard's server until it is told to stop (SIGINT or SIGTERM).\n\nAt the first start it makes its own CA and prints a bootstrap token, once, with which the first admin logs in.",
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
				if s.bootstrap, err = bootstrap(cmd.Context(), s); err != nil {
					return errors.Join(err, s.stop())
				}
			}
			if s.bootstrap != "" {
				if _, err := fmt.Fprintf(env.Stdout, "Log in as admin with this bootstrap token; it is shown once and works once:\n\n  trainyard login %s --token %s\n\n", s.url, s.bootstrap); err != nil {
					return errors.Join(err, s.stop())
				}
			}
			return s.wait(cmd.Context())
		},
	}
	register(cmd, settings)
	cmd.Flags().BoolVar(&anew, "new-bootstrap-token", false, "print a bootstrap token for admin again, for one who is locked out")
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
	runner    *desk.Runner // hires; nil if nothing can be hired
}

// startServer opens everything, takes up where the last server stopped, and serves.
func startServer(ctx context.Context, c *config, log *slog.Logger) (_ *running, err error) {
	newPolicy, err := policies().Make(c.policy)
	if err != nil {
		return nil, err
	}
	tariff, err := readTariff(c.tariff)
	if err != nil {
		return nil, err
	}
	cloudFile, offers, err := hiring.ReadClouds(c.clouds)
	if err != nil {
		return nil, err
	}
	collectLess()
	clk := clock.Wall{}
	began := clk.Now()
	ca, err := auth.OpenCA(filepath.Join(c.data, "ca"), began)
	if err != nil {
		return nil, err
	}
	blobs, err := blob.OpenDir(filepath.Join(c.data, "blobs"))
	if err != nil {
		return nil, err
	}
	book, err := logbook.Open(filepath.Join(c.data, "logs"), blobs, clk)
	if err != nil {
		return nil, err
	}
	st, kind, err := openStore(ctx, c, log)
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
	cfg := yardmaster.Defaults(newPolicy())
	cfg.SuspectAfter, cfg.LostAfter, cfg.BackoffBase = c.suspectAfter, c.lostAfter, c.backoff
	cfg.KeepFinal, cfg.MaxJobs, cfg.LogLimit = c.keepFinal, c.maxJobs, c.logLimit
	cfg.Tariff, cfg.Offers, cfg.Refuse = tariff, offers, c.refuse
	if err := cloudFile.Terms(&cfg); err != nil {
		return nil, err
	}
	cfg.Limit = func() func() bool {
		until := clk.Now().Add(c.roundLimit)
		return func() bool { return clk.Now().After(until) }
	}
	yard := yardmaster.New(cfg)
	directory := auth.NewDirectory()
	directory.Set(state.Users, state.Tokens)
	board := metrics.New(clk, metrics.Options{Providers: cloudFile.Names(), ByUser: c.byUser})
	board.Load(&state)
	yard.Load(clk.Now(), state)
	hub := agents.New(yard.Orders())
	events := feed.New(state.LastEvent)
	after := []func(*yardmaster.Batch){events.Add, board.Take, func(b *yardmaster.Batch) { tell(directory, b) }}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "listen", "cannot listen on %s: %v", c.listen, err).WithRemedy("is another server running there? choose another address with --listen")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	runner, hirer, err := hiring.NewRunner(ctx, cloudFile, c.data, urlOf(listener.Addr()), ca, cfg.Hire, clk, log)
	if err != nil {
		return nil, err
	}
	if runner != nil {
		after = append(after, func(b *yardmaster.Batch) { runner.Take(b.Leases) })
	}
	loop := server.NewLoop(server.LoopConfig{Yard: yard, Store: st, Engine: hub, Clock: clk, Log: log, After: after})
	if runner != nil {
		hirer.Loop = loop
		runner.Tell = func(ctx context.Context, m yardmaster.Message) error { _, err := loop.Do(ctx, m); return err }
		runner.Watch = board
		runner.Take(state.Leases)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	srv := server.New(server.Config{
		Version: version, PolicyName: c.policy, StoreKind: kind, Interval: c.reportEvery, Lease: c.lostAfter * 9 / 10,
		NodeCertTTL: 30 * 24 * time.Hour, Rate: c.rate, Burst: c.burst, MaxFile: c.maxFile, Timeout: 30 * time.Second,
	}, server.Deps{
		Loop: loop, Store: st, Blobs: blobs, Logbook: book, Assignments: hub, CA: ca, Directory: directory, Feed: events, Clock: clk, Log: log, Registry: registry, Metrics: board,
	}, start)
	identity, err := ca.NewServerIdentity(hostsOf(c, listener.Addr()), clk)
	if err != nil {
		return nil, err
	}
	r := &running{url: urlOf(listener.Addr()), ca: ca, loop: loop, clock: clk, store: st, failed: make(chan error, 2), done: make(chan struct{}), log: log, runner: runner}
	r.http = &http.Server{Handler: hiring.WithProgram(srv.Handler()), TLSConfig: ca.ServerTLS(identity), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 3 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}}
	r.run(srv, listener)
	if r.bootstrap, err = firstAdmin(ctx, r, state.Users); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	log.Info("server works", "url", r.url, "store", kind, "policy", c.policy, "jobs", len(state.Jobs), "nodes", len(state.Nodes), "took", clk.Now().Sub(began))
	return r, nil
}

// run starts the loop and serves.
func (r *running) run(srv *server.Server, listener net.Listener) {
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
func openStore(ctx context.Context, c *config, log *slog.Logger) (store.Store, string, error) {
	url, kind := c.store, "sqlite"
	if url == "" {
		url = filepath.Join(c.data, "yard.db")
	}
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		kind = "postgres"
	}
	st, err := sqlstore.Open(ctx, url, sqlstore.Options{Clock: clock.Wall{}, Log: log})
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
	_, err = r.loop.Do(ctx, yardmaster.AddToken{By: "yard", Token: tenant.Token{ID: secret.ID, Kind: tenant.BootstrapToken, Owner: "admin", Hash: secret.Hash,
		Scope: tenant.ScopeAdmin, UsesLeft: 1, Expires: r.clock.Now().Add(bootstrapLife)}})
	if err != nil {
		return "", fmt.Errorf("make the bootstrap token: %w", err)
	}
	return secret.Text, nil
}

// hostsOf lists the names the server's certificate is good for.
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
