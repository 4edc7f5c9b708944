// Package yardtest starts real yards for tests: the real binary as server and
// agents, on loopback, in a folder of their own.
//
// It builds the binary, starts, kills and stops processes, makes the first
// login, and finds what processes a yard has left on the machine. It never
// touches a process that does not belong to the yard's folder and asserts
// nothing itself. The crash test and the end-to-end tests call it.
package yardtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/tenant"
)

// Yard is a server and its agents. Fill in the exported fields and call Open.
type Yard struct {
	Binary  string
	Folder  string   // everything lies below it
	Store   string   // "" for SQLite in the folder
	Flags   []string // further flags of the server
	Env     []string // further variables of the server
	Address string   // where the server listens; chosen by Open if empty

	server    *Process
	bootstrap string
	admin     string // access token
	ca        []byte
}

// URL is the server's address for clients.
func (y *Yard) URL() string { return "https://" + y.Address }

// Admin is the access token of the first admin.
func (y *Yard) Admin() string { return y.admin }

// Bootstrap is the bootstrap token that the first start made.
func (y *Yard) Bootstrap() string { return y.bootstrap }

// BootstrapFile is the file in which it is.
func (y *Yard) BootstrapFile() string { return filepath.Join(y.Folder, "server", "bootstrap-token") }

// Server is the server's process.
func (y *Yard) Server() *Process { return y.server }

// ServerLog is the file with the server's output.
func (y *Yard) ServerLog() string { return filepath.Join(y.Folder, "server.log") }

// AgentLog is the file with the output of an agent.
func (y *Yard) AgentLog(name string) string { return filepath.Join(y.Folder, name+".log") }

// AgentData is the data folder of an agent.
func (y *Yard) AgentData(name string) string { return filepath.Join(y.Folder, name) }

// Open starts the server for the first time and takes note of its bootstrap token.
func (y *Yard) Open(ctx context.Context) error {
	var err error
	if y.Address == "" {
		y.Address, err = FreeAddress(ctx)
		if err != nil {
			return err
		}
	}

	if err := y.StartServer(); err != nil {
		return err
	}
	if err := y.AwaitReady(ctx); err != nil {
		return err
	}

	return y.await(ctx, "the bootstrap token", func() error {
		text, err := os.ReadFile(y.BootstrapFile())
		y.bootstrap = strings.TrimSpace(string(text))

		return err
	})
}

// LogIn makes the first admin's access token.
func (y *Yard) LogIn(ctx context.Context) error {
	token, err := auth.Parse(y.bootstrap)
	if err != nil {
		return err
	}

	y.ca, _, err = auth.FetchCA(ctx, y.Address, token.CAHash)
	if err != nil {
		return err
	}

	client, err := y.Client("")
	if err != nil {
		return err
	}

	defer client.Close()

	reply, err := client.Login(ctx, api.LoginRequest{Token: y.bootstrap})
	y.admin = reply.Text

	return err
}

// Client returns a client of its own, with a token or without.
func (y *Yard) Client(token string) (*api.Client, error) { return y.ClientAt(y.Address, token) }

// HTTP returns a client for requests that the API's own client does not make. It trusts the yard's CA.
func (y *Yard) HTTP() (*http.Client, error) {
	tls, err := auth.PinnedTLS(y.ca)
	if err != nil {
		return nil, err
	}

	return &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}}, nil
}

// ClientAt returns a client that uses another address of the yard, such as that of a second server.
func (y *Yard) ClientAt(address, token string) (*api.Client, error) {
	tls, err := auth.PinnedTLS(y.ca)
	if err != nil {
		return nil, err
	}

	return api.NewClient("https://"+address, token, tls), nil
}

// JoinToken makes a token by which so many machines may join.
func (y *Yard) JoinToken(ctx context.Context, uses int) (string, error) {
	client, err := y.Client(y.admin)
	if err != nil {
		return "", err
	}

	defer client.Close()

	reply, err := client.CreateToken(ctx, api.TokenRequest{Kind: tenant.JoinToken, Uses: uses})

	return reply.Text, err
}

// StartServer starts the server and does not wait for it.
func (y *Yard) StartServer() error {
	args := []string{"server", "--data", filepath.Join(y.Folder, "server"), "--listen", y.Address}
	if y.Store != "" {
		args = append(args, "--store", y.Store)
	}

	cmd := exec.CommandContext(context.Background(), y.Binary, append(args, y.Flags...)...)
	cmd.Env = append(os.Environ(), y.Env...)

	var err error
	y.server, err = Start(cmd, y.ServerLog())

	return err
}

// StartAgent starts an agent with the name and does not wait for it. The token
// is used the first time only. Jobs run as the tests do, since they share files with them; later flags prevail.
func (y *Yard) StartAgent(name, token string, flags ...string) (*Process, error) {
	return Start(y.agent(name, token, flags), y.AgentLog(name))
}

// StartAgentAs is StartAgent under another user, who owns the agent's data folder. It needs root.
func (y *Yard) StartAgentAs(uid uint32, name, token string, flags ...string) (*Process, error) {
	data := y.AgentData(name)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("make a data folder: %w", err)
	}
	if err := os.Chown(data, int(uid), int(uid)); err != nil {
		return nil, fmt.Errorf("give away a data folder: %w", err)
	}

	// On the way to its data and to the binary are folders of ours.
	for _, folder := range []string{y.Folder, filepath.Dir(y.Binary)} {
		if err := os.Chmod(folder, 0o711); err != nil { //nolint:gosec // others may pass, not look
			return nil, fmt.Errorf("open the way to a data folder: %w", err)
		}
	}

	cmd := y.agent(name, token, flags)
	cmd.Dir, cmd.Env = data, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + data}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}

	return Start(cmd, y.AgentLog(name))
}

func (y *Yard) agent(name, token string, flags []string) *exec.Cmd {
	// How full the disk of the machine is does not matter here.
	flags = append([]string{"--isolation", "none", "--min-free-disk", "64MB"}, flags...)
	args := append(
		[]string{"agent", "join", y.URL(), "--data", y.AgentData(name), "--name", name, "--token", token,
			"--mix-users", "yes"},
		flags...)

	return exec.CommandContext(context.Background(), y.Binary, args...)
}

// AwaitReady waits until the server says that it is ready.
func (y *Yard) AwaitReady(ctx context.Context) error {
	return y.await(ctx, "the server", func() error { return y.Ready(ctx) })
}

// Ready asks the server once whether it is ready, and returns why not.
func (y *Yard) Ready(ctx context.Context) error {
	_, err := y.Readiness(ctx)

	return err
}

// Readiness asks the server once whether it is ready, and returns what it says about itself, or why it is not.
func (y *Yard) Readiness(ctx context.Context) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: trustAny()}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, y.URL()+"/readyz", nil)
	if err != nil {
		return "", err
	}

	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}

	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("readyz answers %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}

	return strings.TrimSpace(string(text)), nil
}

// AwaitAgent waits until an agent has joined and says that it works.
func (y *Yard) AwaitAgent(ctx context.Context, name string) error {
	return y.await(ctx, "agent "+name, func() error {
		text, err := os.ReadFile(y.AgentLog(name))
		if err == nil && !strings.Contains(string(text), "agent started") {
			err = errors.New("it has not said that it works")
		}

		return err
	})
}

// patience bounds every wait; it is far longer than anything takes.
const patience = 5 * time.Minute

// await asks again and again until the answer is nil, and gives up early when
// the server has ended.
func (y *Yard) await(ctx context.Context, what string, ask func() error) error {
	for end := time.Now().Add(patience); ; {
		err := ask()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-y.server.Gone():
			return fmt.Errorf("wait for %s: the server has ended: %s", what, Tail(y.ServerLog(), 5))
		case <-time.After(10 * time.Millisecond):
		}

		if time.Now().After(end) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}
