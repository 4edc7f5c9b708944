// Package yard runs a Trainyard server of this checkout as a process of its
// own, in a folder and on a port of its own, and speaks to it as people and agents do.
//
// It uses the built binary and the API alone, as a user would; it never looks
// into the server, and leaves nothing running. The sections of the benchmark call it.
package yard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/test/bench/daemon"
)

// patience is how long a server or an agent may take to answer for the first
// time. A store with a million jobs is read in it.
const patience = 2 * time.Minute

// Build builds the binary of this checkout into dir, as `make build` does, with the helper in it.
func Build(ctx context.Context, dir string) (string, error) {
	module, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "trainyard/cmd/trainyard").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of trainyard: %w", err)
	}

	embedded := filepath.Join(strings.TrimSpace(string(module)), "helper.bin")
	if err := compile(ctx, embedded, "trainyard/cmd/trainyard-helper"); err != nil {
		return "", err
	}

	path := filepath.Join(dir, "trainyard")

	return path, compile(ctx, path, "-tags", "helper", "trainyard/cmd/trainyard")
}

func compile(ctx context.Context, path string, args ...string) error {
	args = append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %.500s", filepath.Base(path), err, out)
	}

	return nil
}

// Options is what a yard is made of.
type Options struct {
	Binary string   // what Build returned
	Store  string   // address of the store; "" for SQLite in the yard's folder
	Args   []string // further arguments of the server
}

// Yard is a server, and the agents that were started for it.
type Yard struct {
	opts    Options
	dir     string
	addr    string
	url     string
	token   string
	ca      []byte
	daemons daemon.Group
}

// Start starts a server without any jobs or nodes in a new folder and logs in
// to it. There is no limit on rates, and none on jobs that matters. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Yard, error) {
	dir, err := os.MkdirTemp("", "trainyard-bench-yard-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the yard: %w", err)
	}

	y := &Yard{opts: o, dir: dir, daemons: daemon.Group{Dir: dir}}
	err = y.Run(ctx)
	if err == nil {
		err = y.login(ctx)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the yard: %w", err), y.Stop())
	}

	return y, nil
}

// Run starts the server's process, on the store as it is, and returns when it says that it is ready.
func (y *Yard) Run(ctx context.Context) error {
	if y.addr == "" {
		ports, err := daemon.FreePorts(ctx, 1)
		if err != nil {
			return err
		}

		y.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		y.url = "https://" + y.addr
	}

	args := []string{
		"server", "--data", filepath.Join(y.dir, "data"), "--store", y.opts.Store, "--listen", y.addr,
		"--rate", "0", "--max-jobs", "100000000", "--max-job-text", "0B", "--max-all-job-text", "0B", "--log-level", "warn",
	}

	cmd := exec.CommandContext(context.WithoutCancel(ctx), y.opts.Binary, append(args, y.opts.Args...)...)
	if err := y.daemons.Start("server", cmd); err != nil {
		return err
	}
	if err := y.awaitReady(ctx); err != nil {
		return fmt.Errorf("wait for the server: %w", err)
	}

	return nil
}

// awaitReady asks /readyz over one connection after the other until it says yes.
func (y *Yard) awaitReady(ctx context.Context) error {
	var client *http.Client
	return y.daemons.Await(ctx, patience, func(ctx context.Context) error {
		if client == nil {
			ca, _, err := auth.FetchCA(ctx, y.addr, "")
			if err != nil {
				return err
			}

			config, err := auth.PinnedTLS(ca)
			if err != nil {
				return err
			}

			y.ca, client = ca, &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		}

		text, err := get(ctx, client, y.url+"/readyz")
		if err == nil && text != "ready\n" {
			err = fmt.Errorf("it says %q", text)
		}

		return err
	})
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("make a request: %w", err)
	}

	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)

	return string(text), err
}

// login makes the first admin's access token out of the bootstrap token that the server made.
func (y *Yard) login(ctx context.Context) error {
	var bootstrap string

	err := y.daemons.Await(ctx, patience, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(y.dir, "data", "bootstrap-token"))
		bootstrap = strings.TrimSpace(string(text))

		return err
	})
	if err != nil {
		return err
	}

	client, err := y.Client()
	if err != nil {
		return err
	}

	defer client.Close()

	token, err := client.Login(ctx, api.LoginRequest{Token: bootstrap})
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}

	y.token = token.Text

	return nil
}

// Client returns a client of the admin's with a connection of its own.
func (y *Yard) Client() (*api.Client, error) {
	config, err := auth.PinnedTLS(y.ca)
	if err != nil {
		return nil, err
	}

	return api.NewClient(y.url, y.token, config), nil
}

// Environment returns the variables by which the command line finds the yard.
func (y *Yard) Environment() []string {
	return []string{
		"TRAINYARD_SERVER=" + y.url,
		"TRAINYARD_TOKEN=" + y.token,
		"TRAINYARD_CA=" + string(y.ca),
		"HOME=" + y.dir,
		"PATH=" + os.Getenv("PATH"),
	}
}

// Database returns the address of the yard's store.
func (y *Yard) Database() string {
	if y.opts.Store != "" {
		return y.opts.Store
	}

	return filepath.Join(y.dir, "data", "yard.db")
}

// JoinToken makes a token by which so many machines may join.
func (y *Yard) JoinToken(ctx context.Context, uses int) (string, error) {
	client, err := y.Client()
	if err != nil {
		return "", err
	}

	defer client.Close()

	token, err := client.CreateToken(ctx, api.TokenRequest{Kind: tenant.JoinToken, Uses: uses})
	if err != nil {
		return "", fmt.Errorf("make a join token: %w", err)
	}

	return token.Text, nil
}

// RunAgent makes this machine a node of the yard and returns when the yard knows it. Isolation is the agent's setting.
func (y *Yard) RunAgent(ctx context.Context, isolation string) error {
	token, err := y.JoinToken(ctx, 1)
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(context.WithoutCancel(ctx), y.opts.Binary, "agent", "join", y.url,
		"--token", token, "--data", filepath.Join(y.dir, "node"), "--name", "bench", "--log-level", "warn",
		"--isolation", isolation)
	if err := y.daemons.Start("agent", cmd); err != nil {
		return err
	}

	client, err := y.Client()
	if err != nil {
		return err
	}

	defer client.Close()

	return y.daemons.Await(ctx, patience, func(ctx context.Context) error {
		_, err := client.Node(ctx, "bench")
		return err
	})
}

// AwaitIdle returns when no run is left.
func (y *Yard) AwaitIdle(ctx context.Context) error {
	return y.daemons.Await(ctx, patience, func(ctx context.Context) error {
		n, err := y.Metric(ctx, "trainyard_live_runs")
		if err == nil && n > 0 {
			err = fmt.Errorf("%.0f runs have not ended", n)
		}

		return err
	})
}

// Jobs returns the numbers of all jobs in a state, as the API lists them.
func (y *Yard) Jobs(ctx context.Context, state job.State) (map[id.Job]bool, error) {
	client, err := y.Client()
	if err != nil {
		return nil, err
	}

	defer client.Close()

	found := map[id.Job]bool{}

	filter := api.JobFilter{States: []job.State{state}, Page: api.Page{Limit: 500}}
	for {
		page, err := client.Jobs(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}

		for i := range page.Jobs {
			found[page.Jobs[i].ID] = true
		}

		filter.Cursor = page.Next

		if page.Next == "" {
			return found, nil
		}
	}
}

// Kill ends the server with SIGKILL.
func (y *Yard) Kill() error { return y.daemons.Kill("server") }

// Halt ends the server and the agent in good order; Run starts the server again.
func (y *Yard) Halt() error { return y.daemons.Stop() }

// Stop ends everything and removes the folder. It may be called after an
// interrupt and after a failed start.
func (y *Yard) Stop() error {
	return errors.Join(y.daemons.Stop(), y.killRuns(), os.RemoveAll(y.dir))
}

// killRuns ends the supervisors of runs. They outlive their agent by design,
// and are known by the yard's folder in their command line.
func (y *Yard) killRuns() error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}

	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "\x00"+y.dir+"/") {
			continue // gone meanwhile, or not ours
		}

		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end a run's supervisor: %w", err)
		}
	}

	return nil
}
