package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/contact"
	"trainyard/internal/engine/agents"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/place/ordered"
	"trainyard/internal/server/collector"
	"trainyard/internal/server/feed"
	"trainyard/internal/server/metrics"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/tenant"
	"trainyard/internal/vault"
	"trainyard/internal/yardmaster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handClock is the steady clock of a machine whose clocks are moved by hand.
type handClock struct {
	*clock.Steady
	begun   time.Time
	ahead   atomic.Int64 // of both clocks
	stepped atomic.Int64 // of the wall clock alone

	mu      sync.Mutex
	holds   int           // how many want the clock to stand still
	held    time.Time     // since when it does; zero while it runs
	missing time.Duration // for how long it stood still before
}

func newHandClock() *handClock {
	c := &handClock{begun: time.Now()}
	c.Steady = clock.SteadyOf(clock.Source{
		Wall:    func() time.Time { return c.begun.Add(c.running() + time.Duration(c.stepped.Load())) },
		Running: c.running,
	})

	return c
}

func (c *handClock) running() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()

	passed := time.Since(c.begun)
	if !c.held.IsZero() {
		passed = c.held.Sub(c.begun)
	}

	return passed - c.missing + time.Duration(c.ahead.Load())
}

// hold lets the clock stand still until the function that it returns is called. Only advance moves it meanwhile.
func (c *handClock) hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.holds == 0 {
		c.held = time.Now()
	}

	c.holds++

	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		c.holds--
		if c.holds > 0 {
			return
		}

		c.missing += time.Since(c.held)
		c.held = time.Time{}
	}
}

// advance lets time pass, whatever the server is doing.
func (c *handClock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// step sets the wall clock.
func (c *handClock) step(d time.Duration) { c.stepped.Add(int64(d)) }

// yard is a whole server that tests speak to: a real store, a real CA, TLS on
// loopback, the loop and the hub of the agents.
type yard struct {
	t      testing.TB
	srv    *Server
	loop   *Loop
	store  *testStore
	blobs  blob.Store
	guard  *collector.Guard
	clock  *handClock
	board  *metrics.Collector
	ca     *auth.CA
	url    string
	http   *http.Client
	ended  chan error    // what the loop returned
	beside chan struct{} // closed when Run of the server has returned
	held   heldFunc
	stock  lastStock
	cancel context.CancelFunc
}

// lastStock is what the last collection found; at first there was none.
type lastStock struct {
	stock atomic.Pointer[collector.Stock]
}

func (l *lastStock) Load() collector.Stock {
	if s := l.stock.Load(); s != nil {
		return *s
	}

	return collector.Stock{}
}

// heldFunc says whether the server leads, as the test sets it; at first it does.
type heldFunc struct{ fn atomic.Pointer[func() error] }

func (h *heldFunc) set(fn func() error) { h.fn.Store(&fn) }

func (h *heldFunc) get() error {
	if fn := h.fn.Load(); fn != nil {
		return (*fn)()
	}

	return nil
}

// setting changes what a yard is started with.
type setting func(*Config, *yardmaster.Config)

func withConfig(change func(*Config)) setting {
	return func(c *Config, _ *yardmaster.Config) { change(c) }
}

func withYard(change func(*yardmaster.Config)) setting {
	return func(_ *Config, c *yardmaster.Config) { change(c) }
}

func newYard(t testing.TB, settings ...setting) *yard {
	t.Helper()
	return startYard(t, t.TempDir(), settings...)
}

// startYard starts a server over a folder, which may hold what an earlier one left.
func startYard(t testing.TB, dir string, settings ...setting) *yard {
	t.Helper()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	return startYardOn(t, dir, blobs, settings...)
}

// startYardOn starts a server that keeps its blobs in a store.
func startYardOn(t testing.TB, dir string, blobs blob.Store, settings ...setting) *yard {
	t.Helper()
	y := &yard{blobs: blobs, t: t, clock: newHandClock(), ended: make(chan error, 1), beside: make(chan struct{})}
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.SuspectAfter = cfg.LostAfter * 4 / 5 // nodes of tests report when there is news, which may take on a busy machine

	config := Config{Version: "test", PolicyName: "fifo", StoreKind: "sqlite", DataDir: dir,
		Contact:     contact.Settings{ReportEvery: time.Second, Lease: time.Minute, Grace: 5 * time.Second},
		NodeCertTTL: 30 * 24 * time.Hour, Burst: 1, MaxFile: 1 << 20, Timeout: 5 * time.Minute}
	for _, set := range settings {
		set(&config, &cfg)
	}

	ctx, cancel := context.WithCancel(context.Background())
	y.cancel = cancel
	ca, err := auth.OpenCA(filepath.Join(dir, "ca"), y.clock.Now())
	y.must(err)
	y.ca = ca
	y.guard = collector.NewGuard(y.blobs, y.clock.Now())
	book, err := archive.Open(filepath.Join(dir, "logs"), y.blobs, y.clock)
	y.must(err)
	st, err := sqlstore.Open(ctx, filepath.Join(dir, "yard.db"), sqlstore.Options{Clock: y.clock})
	y.must(err)
	y.store = &testStore{Store: st, clock: y.clock}
	_, err = st.Lead(ctx, store.Candidate{Server: store.Server{Name: "test"}, Lease: time.Minute})
	y.must(err)
	state, err := st.Load(ctx, y.clock.Now().Add(-cfg.KeepFinal))
	y.must(err)
	box := &vault.Vault{KMS: vault.OpenKeyFile(filepath.Join(dir, "secrets.key"), y.clock, len(state.Secrets) == 0)}
	box.Check(ctx, state.Secrets)
	directory := auth.NewDirectory()
	directory.Set(state.Users, state.Tokens, state.Members)
	core := yardmaster.New(cfg)
	core.Load(y.clock.Now(), state)
	board := metrics.New(y.clock, metrics.Options{Providers: []string{"testcloud"}, ByUser: true})
	board.Load(&state)
	y.board = board
	hub := agents.New(core.Orders())
	events := feed.New(state.LastEvent)
	log := slog.New(slog.DiscardHandler)
	y.loop = NewLoop(LoopConfig{Yard: core, Store: y.store, Engine: hub, Clock: y.clock, Log: log, Held: y.held.get,
		After: []func(*yardmaster.Batch){
			func(b *yardmaster.Batch) { KeepDirectory(directory, b) }, events.Add, board.Take,
		}})

	y.srv = New(
		config,
		Deps{Loop: y.loop, Store: y.store, Blobs: y.guard.Store(), Logbook: book, Assignments: hub, CA: ca,
			Directory: directory, Feed: events, Clock: y.clock, Log: log, Registry: prometheus.NewRegistry(), Metrics: board,
			Servers: func() []string { return []string{"https://yard.test"} }, Stock: y.stock.Load, Vault: box,
			Codes: NewCodes(y.clock)},
		"start-1",
	)

	y.serve(ctx, st)

	return y
}

// serve answers on loopback until the test ends.
func (y *yard) serve(ctx context.Context, st store.Store) {
	y.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	y.must(err)
	identity, err := y.ca.NewServerIdentity([]string{"127.0.0.1"}, y.clock)
	y.must(err)

	web := &http.Server{
		Handler:           y.srv.Handler(),
		TLSConfig:         y.ca.ServerTLS(identity),
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}

	y.url = "https://" + listener.Addr().String()
	served := make(chan error, 1)
	go func() { y.ended <- y.loop.Run(ctx) }()

	go func() {
		defer close(y.beside)

		y.srv.Run(ctx)
	}()

	go func() { served <- web.ServeTLS(listener, "", "") }()
	pinned, err := auth.PinnedTLS(y.ca.PEM())
	y.must(err)
	transport := &http.Transport{TLSClientConfig: pinned, ForceAttemptHTTP2: true}
	y.http = &http.Client{Transport: transport}
	y.t.Cleanup(func() {
		y.store.mend() // whatever hangs goes on
		y.cancel()

		err := web.Close()
		if serving := <-served; !errors.Is(serving, http.ErrServerClosed) {
			err = errors.Join(err, serving)
		}

		<-y.loop.over
		<-y.beside
		transport.CloseIdleConnections()

		err = errors.Join(err, st.Close())
		if err != nil {
			y.t.Errorf("stop the server: %v", err)
		}
	})
}

// must fails the test at once.
func (y *yard) must(err error) {
	y.t.Helper()

	if err != nil {
		y.t.Fatal(err)
	}
}

// advance lets time pass between two commits: one during which an hour passes has hung, and requests are refused.
func (y *yard) advance(d time.Duration) {
	y.t.Helper()
	y.must(y.loop.Query(y.t.Context(), func(*yardmaster.Yard) { y.clock.advance(d) }))
}

func (y *yard) do(m yardmaster.Message) any {
	y.t.Helper()
	answer, err := y.loop.Do(y.t.Context(), m)
	y.must(err)

	return answer
}

// token makes a user, if there is none yet, and a token of theirs.
func (y *yard) token(user id.User, role tenant.Role, scope tenant.Scope) string {
	y.t.Helper()
	y.do(yardmaster.PutUser{User: user, Role: role, By: "test"})

	return y.newToken(
		tenant.Token{Kind: tenant.AccessToken, Owner: user, Scope: scope, Expires: y.clock.Now().Add(20 * 24 * time.Hour)},
	)
}

// newToken hands out any token.
func (y *yard) newToken(t tenant.Token) string {
	y.t.Helper()
	secret, err := auth.Mint(t.Kind, rand.Reader, y.ca.Hash())
	y.must(err)
	t.ID, t.Hash = secret.ID, secret.Hash
	y.do(yardmaster.AddToken{Token: t, By: "test"})

	return secret.Text
}

// joinToken is for so many machines.
func (y *yard) joinToken(uses int) string {
	y.t.Helper()
	y.do(yardmaster.PutUser{User: "root", Role: tenant.Admin, By: "test"})

	return y.newToken(
		tenant.Token{
			Kind:     tenant.JoinToken,
			Owner:    "root",
			Class:    "local",
			UsesLeft: uses,
			Expires:  y.clock.Now().Add(time.Hour),
		},
	)
}

// client calls the API with a token; "" for none.
func (y *yard) client(token string) *api.Client {
	y.t.Helper()
	pinned, err := auth.PinnedTLS(y.ca.PEM())
	y.must(err)
	c := api.NewClient(y.url, token, pinned)
	y.t.Cleanup(c.Close)

	return c
}

// researcher is a client of a user who may submit.
func (y *yard) researcher(user id.User) *api.Client {
	y.t.Helper()
	return y.client(y.token(user, tenant.Researcher, tenant.ScopeSubmit))
}

func (y *yard) admin() *api.Client {
	y.t.Helper()
	return y.client(y.token("root", tenant.Admin, tenant.ScopeAdmin))
}

// submit hands in a file and returns its jobs.
func (y *yard) submit(c *api.Client, file string) []api.Job {
	y.t.Helper()
	reply, err := c.Submit(y.t.Context(), api.SubmitRequest{File: file}, "")
	y.must(err)

	return reply.Jobs
}

// answer is what the server said to a raw request.
type reply struct {
	status int
	header http.Header
	body   []byte
	p      api.Problem
}

// raw sends a request as it is. A header is "Name: value".
func (y *yard) raw(with *http.Client, method, path, token, body string, headers ...string) reply {
	y.t.Helper()
	req, err := http.NewRequestWithContext(y.t.Context(), method, y.url+path, strings.NewReader(body))
	y.must(err)

	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}

	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}

	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}

	resp, err := with.Do(req)
	y.must(err)
	defer func() { _ = resp.Body.Close() }()

	out := reply{status: resp.StatusCode, header: resp.Header}
	if out.status == http.StatusOK && resp.Header.Get("Content-Type") == "text/event-stream" {
		return out // it has no end
	}

	out.body, err = io.ReadAll(resp.Body)
	y.must(err)

	if out.status >= 400 {
		if err := out.readProblem(); err != nil {
			y.t.Errorf("%s %s: %v", method, path, err)
		}
	}

	return out
}

// readProblem makes sure that an error has the one shape that errors have.
func (a *reply) readProblem() error {
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		return fmt.Errorf("status %d has content type %q: %s", a.status, got, a.body)
	}

	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()

	if err := d.Decode(&a.p); err != nil {
		return fmt.Errorf("%w: %s", err, a.body)
	}
	if a.p.Status != a.status || a.p.Detail == "" || a.p.Code == "" || a.p.Kind == "" || a.p.Title == "" {
		return fmt.Errorf("status %d with an incomplete problem: %s", a.status, a.body)
	}

	return nil
}

func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != kind || f.Code != code {
		t.Fatalf("got the error %v, want one of kind %s with the code %s", err, kind, code)
	}
}

func tokenOf(kind tenant.TokenKind, owner id.User, expires time.Time) tenant.Token {
	return tenant.Token{Kind: kind, Owner: owner, UsesLeft: 1, Expires: expires}
}
