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
	"trainyard/internal/clock"
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
	From   string   // SQLite database that the yard begins with a copy of; "" for an empty one
	Args   []string // further arguments of the server
	Env    []string // further variables of the server and of agents
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

// Start starts a server in a new folder and logs in to it; it has no jobs and no nodes unless it begins with a copy.
// There is no limit on rates and feeds, and none on jobs that matters. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Yard, error) {
	dir, err := os.MkdirTemp("", "trainyard-bench-yard-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the yard: %w", err)
	}

	y := &Yard{opts: o, dir: dir, daemons: daemon.Group{Dir: dir}}
	if err := y.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the yard: %w", err), y.Stop())
	}

	return y, nil
}

func (y *Yard) begin(ctx context.Context) error {
	var anew []string

	if y.opts.From != "" {
		if err := copyFile(y.opts.From, y.Database()); err != nil {
			return fmt.Errorf("copy the database: %w", err)
		}

		anew = []string{"--new-bootstrap-token"} // it has users, so the server makes none by itself
	}

	if err := y.run(ctx, anew...); err != nil {
		return err
	}

	return y.login(ctx)
}

// copyFile copies a file into a folder that may not be there yet. It is on the disk then, so that nothing that is
// measured waits for it.
func copyFile(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}

	in, err := os.Open(from)
	if err != nil {
		return err
	}

	defer func() { _ = in.Close() }() // it was only read

	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, out.Close()) }()

	if _, err := io.Copy(out, in); err != nil {
		return err
	}

	return out.Sync()
}

// Run starts the server's process, on the store as it is, and returns when it says that it is ready.
func (y *Yard) Run(ctx context.Context) error { return y.run(ctx) }

// run starts the server's process with further arguments.
func (y *Yard) run(ctx context.Context, more ...string) error {
	if y.addr == "" {
		ports, err := daemon.FreePorts(ctx, 1)
		if err != nil {
			return err
		}

		y.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		y.url = "https://" + y.addr
	}

	args := []string{
		"server", "--data", y.Data(), "--store", y.opts.Store, "--listen", y.addr,
		"--rate", "0", "--max-jobs", "100000000", "--max-job-text", "0B", "--max-all-job-text", "0B", "--log-level", "warn",
		"--max-streams", "0",
	}
	args = append(append(args, y.opts.Args...), more...)

	cmd := exec.CommandContext(context.WithoutCancel(ctx), y.opts.Binary, args...)
	cmd.Env = y.processEnvironment()

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
		text, err := os.ReadFile(filepath.Join(y.Data(), "bootstrap-token"))
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

// Data returns the server's data folder.
func (y *Yard) Data() string { return filepath.Join(y.dir, "data") }

// Command runs a command of the command line to its end.
func (y *Yard) Command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, y.opts.Binary, args...)
	cmd.Env = y.Environment()
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run trainyard %s: %w: %.500s", args[0], err, text)
	}

	return nil
}

// Database returns the address of the yard's store.
func (y *Yard) Database() string {
	if y.opts.Store != "" {
		return y.opts.Store
	}

	return filepath.Join(y.Data(), "yard.db")
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
	return y.addAgent(ctx, "agent", "bench", "--isolation", isolation)
}

// AddAgent starts an agent on this machine, with further arguments, and returns when the yard knows its node. Process
// and node have the same name.
func (y *Yard) AddAgent(ctx context.Context, name string, args ...string) error {
	return y.addAgent(ctx, name, name, args...)
}

func (y *Yard) addAgent(ctx context.Context, process, name string, args ...string) error {
	token, err := y.JoinToken(ctx, 1)
	if err != nil {
		return err
	}

	args = append([]string{
		"agent", "join", y.url, "--token", token, "--data", y.AgentData(name), "--name", name, "--log-level", "warn",
	}, args...)

	cmd := exec.CommandContext(context.WithoutCancel(ctx), y.opts.Binary, args...)
	cmd.Env = y.processEnvironment()

	if err := y.daemons.Start(process, cmd); err != nil {
		return err
	}

	client, err := y.Client()
	if err != nil {
		return err
	}

	defer client.Close()

	return y.daemons.Await(ctx, patience, func(ctx context.Context) error {
		_, err := client.Node(ctx, id.Node(name))
		return err
	})
}

// AgentData returns the data folder of an agent.
func (y *Yard) AgentData(name string) string { return filepath.Join(y.dir, "node-"+name) }

// PID returns the process id of the server ("server") or of an agent.
func (y *Yard) PID(name string) int { return y.daemons.PID(name) }

// processEnvironment is what the server and the agents have in their environment.
func (y *Yard) processEnvironment() []string { return append(os.Environ(), y.opts.Env...) }

// AwaitIdle returns when no job is queued and no run is left.
func (y *Yard) AwaitIdle(ctx context.Context) error {
	return y.daemons.Await(ctx, patience, func(ctx context.Context) error {
		for _, name := range []string{"trainyard_queued_jobs", "trainyard_live_runs"} {
			n, err := y.Metric(ctx, name)
			if err == nil && n > 0 {
				err = fmt.Errorf("%s is %.0f", name, n)
			}

			if err != nil {
				return err
			}
		}

		return nil
	})
}

// AwaitNoJobs returns when all jobs have ended. It asks rarely, because the server has better things to do.
func (y *Yard) AwaitNoJobs(ctx context.Context) error {
	return y.daemons.Await(ctx, patience, func(ctx context.Context) error {
		var left float64
		for _, name := range []string{"trainyard_queued_jobs", "trainyard_live_runs"} {
			n, err := y.Metric(ctx, name)
			if err != nil {
				return err
			}

			left += n
		}

		if left == 0 {
			return nil
		}

		clock.Sleep(ctx, 200*time.Millisecond)

		return fmt.Errorf("%.0f jobs have not ended", left)
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
