package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"trainyard/cmd/trainyard/clouds"
	"trainyard/internal/agent/share"
	"trainyard/internal/atomicfile"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/cli"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/server"
	"trainyard/internal/server/history"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/leadership"
	"trainyard/internal/server/notifier"
	"trainyard/internal/server/portal"
	"trainyard/internal/server/standby"
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

At the first start it creates its own CA and a bootstrap token, with which the first admin logs in. The token is in
the file bootstrap-token of the data folder, which only the server's user can read. It works once, within an hour.`,
		Example: "  trainyard server --listen 0.0.0.0:7443 --hosts yard.example.org\n" +
			"  trainyard server --store postgres://yard@db/yard",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(cmd, env, settings)
			if err != nil {
				return err
			}

			if err := c.checkFolder(); err != nil {
				return err
			}

			s, err := startServer(cmd.Context(), c, c.logger(env))
			if err != nil {
				return err
			}
			if err := s.waitLead(cmd.Context()); err != nil {
				return errors.Join(err, s.stop())
			}

			if anew && s.bootstrap == "" && cmd.Context().Err() == nil {
				s.bootstrap, err = bootstrap(cmd.Context(), s)
				if err != nil {
					return errors.Join(err, s.stop())
				}
			}

			if s.bootstrap != "" {
				text := firstLogin(s.folders.ca.Hash(), s.members.Self.Address, s.bootstrap)
				if _, err := io.WriteString(env.Stdout, text); err != nil {
					return errors.Join(err, s.stop())
				}
			}

			return s.wait(cmd.Context())
		},
	}

	register(cmd, settings)
	cmd.Flags().
		BoolVar(&anew, "new-bootstrap-token", false,
			"make a new bootstrap token for admin, to regain access; earlier ones end")

	return cmd
}

// firstLogin says how the first admin logs in: at the address under which others reach the server, so that the line
// works on their machines too.
func firstLogin(caHash, address, tokenFile string) string {
	return fmt.Sprintf("CA %s\n\nLog in as admin with the bootstrap token, which works once within %s:\n\n"+
		"  trainyard login %s "+
		"--token-file %s\n\n", caHash, job.Duration(bootstrapLife), address, tokenFile)
}

// running is a server that runs.
type running struct {
	url        string // on this machine
	config     *config
	in         inputs
	folders    folders
	clock      *clock.Steady
	log        *slog.Logger
	store      store.Store
	kind       string // of the store
	name       serverName
	members    *leadership.Members
	http       *http.Server
	front      front
	metrics    front
	standby    *standby.Server // what it answers while it does not lead
	cancel     context.CancelFunc
	background sync.WaitGroup
	pages      *portal.Portal
	hasPortal  bool
	codes      *server.Codes // of links that sign in to the portal

	stopMetrics func() error
	failed      chan error // gets why it ended by itself

	leads     chan struct{} // closed when it leads for the first time
	bootstrap string        // file with the token of the first admin, at the first start only; set before leads is closed
	mu        sync.Mutex
	loop      *server.Loop // of the present term
}

// startServer opens everything and serves. It leads, or stands by until it does.
func startServer(ctx context.Context, c *config, log *slog.Logger) (_ *running, err error) {
	in, err := readInputs(c)
	if err != nil {
		return nil, err
	}

	r := &running{
		config: c, in: in, clock: clock.NewSteady(), log: log,
		failed: make(chan error, 2), leads: make(chan struct{}),
	}

	r.codes = server.NewCodes(r.clock)
	r.pages, r.hasPortal, err = openPortal()
	if err != nil {
		return nil, err
	}

	r.folders, err = openFolders(ctx, c, r.clock, log)
	if err != nil {
		return nil, err
	}

	r.store, r.kind, err = openStore(ctx, c, r.clock, log)
	if err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, r.store.Close())
		}
	}()

	r.name, err = nameServer(c.data, r.shared())
	if err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, r.name.release())
		}
	}()

	if err := r.listen(ctx); err != nil {
		return nil, err
	}

	return r, nil
}

// listen serves and begins to lead, or to stand by. Where only one server can use the store, it waits until
// this is the one before it listens.
func (r *running) listen(ctx context.Context) (err error) {
	var term *leadership.Term
	if !r.shared() {
		term, err = r.waitToLead(ctx)
		if err != nil {
			return err
		}
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.config.listen)
	if err != nil {
		return fault.New(fault.Unavailable, "listen", "cannot listen on %s: %v", r.config.listen, err).
			WithRemedy("is another server running there? choose another address with --listen")
	}

	r.url = urlOf(listener.Addr())
	r.members = &leadership.Members{
		Store: r.store, Self: store.Server{Name: r.name.text, Address: advertised(r.config, listener.Addr())},
		Shared: r.shared(), Every: r.config.leaderLease / 4, Clock: r.clock, Log: r.log,
	}

	identity, err := r.folders.ca.NewServerIdentity(r.hosts(listener.Addr()), r.clock)
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	r.standby = r.newStandby()
	r.front.set(r.standby)
	r.showMetrics(r.standby.Metrics)

	r.stopMetrics, err = serveMetrics(ctx, r.config.metricsListen, "metrics-listen", &r.metrics, r.log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	handler := clouds.WithProgram(httpapi.DefaultPace(r.clock), standby.WithServers(r.members.Addresses, &r.front))
	r.http = newHTTPServer(handler, r.folders.ca.ServerTLS(identity), r.log)
	r.run(listener, term)

	return nil
}

// shared reports whether several servers can use the store.
func (r *running) shared() bool { return r.kind == "postgres" }

// inputs is what the files and names in the configuration stand for.
type inputs struct {
	newPolicy func() place.Policy
	tariff    *fleet.Tariff
	clouds    *clouds.Clouds
	offers    []fleet.Offer
	notify    notifier.Settings
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

	in.notify, err = c.notify()
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

// folders is what is kept beside the store: in the data folder, and in the blob store.
type folders struct {
	ca     *auth.CA
	blobs  blob.Store
	logDir string
	mark   *history.Mark
}

// markFile records in the data folder how far the yard has come.
const markFile = "history.json"

func openFolders(ctx context.Context, c *config, clk clock.Clock, log *slog.Logger) (folders, error) {
	ca, err := auth.OpenCA(filepath.Join(c.data, caFolder), clk.Now())
	if err != nil {
		return folders{}, err
	}

	f, err := openOutput(ctx, c, log)
	f.ca = ca

	return f, err
}

// openOutput opens what is there beside the CA.
func openOutput(ctx context.Context, c *config, log *slog.Logger) (f folders, err error) {
	f.blobs, err = openBlobs(ctx, c, log)
	if err != nil {
		return f, err
	}

	f.logDir = filepath.Join(c.data, logsFolder)
	f.mark, err = history.OpenMark(filepath.Join(c.data, markFile), log)

	return f, err
}

// yardConfig puts what the operator set over the yard's defaults.
func yardConfig(c *config, in inputs, clk clock.Clock) (yardmaster.Config, error) {
	cfg := yardmaster.Defaults(in.newPolicy())
	cfg.Patience = c.contact().Patience()
	cfg.BackoffBase = c.backoff
	cfg.AskFor = c.askFor
	cfg.SaveWait = c.saveWait
	cfg.KeepFinal = c.keepFinal
	cfg.MaxJobs = c.maxJobs
	cfg.Caps = c.caps
	cfg.MaxJobText = job.Bytes(c.jobText)
	cfg.MaxAllJobText = job.Bytes(c.allJobText)
	cfg.LogLimit = c.logLimit
	cfg.Tariff = in.tariff
	cfg.Shared = c.sharedFS
	cfg.Offers = offersOn(in.offers, c.sharedFS, share.Version(embeddedGPUShare()))
	cfg.RefuseImpossible = c.refuse
	cfg.TrustInventory = c.single // whoever changes what the machine declares is the admin
	cfg.Limit = func() func() bool {
		until := clk.Now().Add(c.roundLimit)
		return func() bool { return clk.Now().After(until) }
	}

	err := in.clouds.Terms(&cfg)

	return cfg, err
}

// offersOn says of offers which shared file systems their nodes will see, and whether they will divide their GPUs:
// they run this binary, with the library in it or without. GPUs that are only declared cannot be divided.
func offersOn(offers []fleet.Offer, shared fleet.SharedFolders, library string) []fleet.Offer {
	list := slices.Clone(offers)
	for i := range list {
		list[i].Shared = shared.Offered(&list[i])

		if list[i].GPUs > 0 && !list[i].Fake {
			list[i].Shares = library
		}
	}

	return list
}

// newHTTPServer sets the time limits of the connections.
func newHTTPServer(handler http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
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

// run serves, and leads whenever it can.
func (r *running) run(listener net.Listener, term *leadership.Term) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // stop calls it
	r.cancel = cancel
	r.http.BaseContext = func(net.Listener) context.Context { return ctx }

	r.background.Go(func() { r.members.Run(ctx) })
	r.background.Go(func() { watchClock(ctx, r.clock, r.log) })
	r.background.Go(func() { paceCollector(ctx, r.clock) })
	r.background.Go(func() {
		if err := r.govern(ctx, term); err != nil {
			r.failed <- err
		}
	})

	go func() {
		if err := r.http.ServeTLS(listener, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
			r.failed <- fmt.Errorf("serve: %w", err)
		}
	}()
}

// waitLead waits until the server leads for the first time.
func (r *running) waitLead(ctx context.Context) error {
	select {
	case <-r.leads:
		return nil
	case err := <-r.failed:
		return err
	case <-ctx.Done():
		return nil
	}
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
	r.background.Wait()

	return errors.Join(err, r.stopMetrics(), r.folders.mark.Close(), r.store.Close(), r.name.release())
}

// openStore opens the store that the configuration names.
func openStore(ctx context.Context, c *config, clk clock.Clock, log *slog.Logger) (store.Store, string, error) {
	c.timeouts.Load = sqlstore.DefaultTimeouts().Load
	url, err := c.storeURL()
	if err != nil {
		return nil, "", err
	}

	st, err := sqlstore.Open(ctx, url, sqlstore.Options{Clock: clk, Log: log, Timeouts: c.timeouts})
	if err != nil {
		return nil, "", fmt.Errorf("open store: %w", err)
	}

	return st, storeKind(url), nil
}

// storeKind says what kind of store a URL stands for.
func storeKind(url string) string {
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		return "postgres"
	}

	return "sqlite"
}

// storeURL is where the store is, with the password if that is in a file.
func (c *config) storeURL() (string, error) {
	if c.storePasswordFile == "" {
		return cmp.Or(c.store, filepath.Join(c.data, storeFile)), nil
	}

	to, err := url.Parse(c.store)
	if err != nil || to.Host == "" || to.User.Username() == "" {
		return "", fault.New(fault.Invalid, "no_password_needed", "has no effect without --store postgres://USER@HOST/…").
			WithField("--store-password-file")
	}

	password, err := os.ReadFile(c.storePasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of the database: %w", err)
	}

	to.User = url.UserPassword(to.User.Username(), strings.TrimRight(string(password), "\r\n"))

	return to.String(), nil
}

// bootstrapLife is how long the first admin has to log in.
const bootstrapLife = time.Hour

// bootstrapFile is where the bootstrap token of the first admin is written, in the data folder. It is not printed: what
// a server prints is kept in journals that more people read.
const bootstrapFile = "bootstrap-token"

// bootstrap makes admin an admin, whoever took that from them, and a bootstrap token for them. It ends earlier ones and
// returns the file in which it is.
func bootstrap(ctx context.Context, r *running) (string, error) {
	if _, err := r.current().Do(ctx, yardmaster.PutUser{User: "admin", Role: tenant.Admin, By: "yard"}); err != nil {
		return "", fmt.Errorf("make the first admin: %w", err)
	}

	earlier := yardmaster.RevokeTokens{Owner: "admin", Kind: tenant.BootstrapToken, By: "yard"}
	if _, err := r.current().Do(ctx, earlier); err != nil {
		return "", fmt.Errorf("end earlier bootstrap tokens: %w", err)
	}

	secret, err := auth.Mint(tenant.BootstrapToken, rand.Reader, r.folders.ca.Hash())
	if err != nil {
		return "", err
	}

	_, err = r.current().Do(
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

	path := filepath.Join(r.config.data, bootstrapFile)
	if err := atomicfile.Write(path, []byte(secret.Text+"\n")); err != nil {
		return "", fmt.Errorf("write the bootstrap token: %w", err)
	}

	return path, nil
}

// hosts lists the names for which the server's certificate is valid.
func (r *running) hosts(addr net.Addr) []string {
	hosts := append([]string{"localhost", "127.0.0.1", "::1"}, r.config.hosts...)
	if h, _, err := net.SplitHostPort(addr.String()); err == nil && !net.ParseIP(h).IsUnspecified() {
		hosts = append(hosts, h)
	}

	if u, err := url.Parse(r.members.Self.Address); err == nil {
		hosts = append(hosts, u.Hostname())
	}

	slices.Sort(hosts)

	return slices.Compact(hosts)
}

// advertised is the URL under which others reach the server: what the operator says, else its first host name, else
// the address that it listens on.
func advertised(c *config, addr net.Addr) string {
	if c.advertise != "" {
		return c.advertise
	}

	_, port, err := net.SplitHostPort(addr.String())
	if err == nil && len(c.hosts) > 0 {
		return "https://" + net.JoinHostPort(c.hosts[0], port)
	}

	return urlOf(addr)
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
