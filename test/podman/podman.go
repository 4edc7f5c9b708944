// Package podman starts a real podman for tests, with storage and a network of its own, and a registry with images.
// Where TRAINYARD_TEST_ENGINE=docker says so it starts Docker's engine instead.
//
// Nothing is fetched from outside: the registry runs in the process of the test, and images are made of programs of
// this machine with the libraries that they need. Both end with the test.
package podman

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/clock"
)

// patience bounds the wait for podman's service, which is far longer than it takes.
const patience = 2 * time.Minute

// Engine is a podman that serves its API.
type Engine struct {
	Socket string
	*Registry

	root   string
	subnet string
	env    []string
	do     func(func() error) error
	size   string // of its disk; "" for that of the machine
}

// Lacking returns why podman cannot be used here, "" if it can.
func Lacking() string {
	if os.Geteuid() != 0 {
		return "needs root: jobs in containers run as users of their own"
	}

	needs := []string{"podman", "runc", "conmon"}
	if docker() {
		needs = []string{"dockerd", "docker", "runc"}
	}

	for _, program := range needs {
		if _, err := exec.LookPath(program); err != nil {
			return "needs " + program + ": scripts/setup.sh test installs it"
		}
	}

	return ""
}

// Option changes how Start starts podman.
type Option func(*Engine)

// From lets podman pull from a registry that is there already.
func From(r *Registry) Option { return func(e *Engine) { e.Registry = r } }

// On lets podman run where a function calls another one, such as on a host of package netlab.
func On(do func(func() error) error) Option { return func(e *Engine) { e.do = do } }

// Small gives podman a disk of its own of some size, such as 8m.
func Small(size string) Option { return func(e *Engine) { e.size = size } }

// Start starts podman and a registry, both of which end with the test. Where there is no podman the test is skipped, in
// CI it fails.
func Start(t testing.TB, options ...Option) *Engine {
	t.Helper()

	if why := Lacking(); why != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}

		t.Skip(why)
	}

	// Podman does not take long paths for its sockets, and its storage must not be in a folder that others cannot pass.
	dir, err := os.MkdirTemp("/var/tmp", "podman-")
	if err != nil {
		t.Fatal(err)
	}

	e := &Engine{Socket: filepath.Join(dir, "sock"), root: dir, do: func(start func() error) error { return start() }}
	for _, option := range options {
		option(e)
	}

	if e.size != "" {
		mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+e.size, "none", dir)
		if out, err := mount.CombinedOutput(); err != nil {
			t.Fatalf("mount a disk for podman: %v: %s", err, out)
		}
	}

	if e.Registry == nil {
		e.Registry = NewRegistry(t, "127.0.0.1")
	}

	if err := e.configure(); err != nil {
		t.Fatal(err)
	}

	service, err := e.service()
	if err != nil {
		t.Fatal(err)
	}

	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}

	service.Stdout, service.Stderr = log, log
	if err := e.do(service.Start); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if docker() { // its client is of no use without it
			e.removeContainers(t)
		}

		_ = service.Process.Signal(ending())
		_ = service.Wait() // it was ended
		_ = log.Close()
		e.clear(t)
	})

	e.await(t)

	return e
}

// await waits until podman answers.
func (e *Engine) await(t testing.TB) {
	t.Helper()

	for end := time.Now().Add(patience); time.Now().Before(end); {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", e.Socket)
		if err == nil {
			_ = conn.Close()
			return
		}

		clock.Sleep(t.Context(), 20*time.Millisecond)
	}

	text, _ := os.ReadFile(filepath.Join(e.root, "log"))
	t.Fatalf("podman does not answer: %s", text)
}

// configure writes what this podman needs to know: it has nothing in common with another one on this machine.
func (e *Engine) configure() error {
	// The number keeps the networks of two tests apart.
	e.subnet = fmt.Sprintf("10.%d.%d.0/24", 100+rand.IntN(100), rand.IntN(256))
	files := map[string]string{
		"containers.conf": `[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
[network]
network_config_dir = "` + filepath.Join(e.root, "networks") + `"
default_subnet = "` + e.subnet + `"
`,
		"daemon.json":     "{}",
		"registries.conf": "[[registry]]\nlocation = \"" + e.Address + "\"\ninsecure = true\n",
	}

	for name, text := range files {
		if err := os.WriteFile(filepath.Join(e.root, name), []byte(text), 0o600); err != nil {
			return err
		}
	}

	e.env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(e.root, "containers.conf"),
		"CONTAINERS_REGISTRIES_CONF="+filepath.Join(e.root, "registries.conf"), "TMPDIR="+e.root)

	return nil
}

// service returns the command that serves the API of the engine.
func (e *Engine) service() (*exec.Cmd, error) {
	if docker() {
		return e.daemon()
	}

	return e.command(context.Background(), "system", "service", "--time=0", "unix://"+e.Socket), nil
}

func (e *Engine) command(ctx context.Context, args ...string) *exec.Cmd {
	if docker() {
		return e.client(ctx, args...)
	}

	all := append([]string{
		"--root", filepath.Join(e.root, "storage"), "--runroot", filepath.Join(e.root, "run"), "--tmpdir",
		filepath.Join(e.root, "tmp"), "--storage-driver", "overlay",
	}, args...)

	cmd := exec.CommandContext(ctx, "podman", all...)
	cmd.Env = e.env

	return cmd
}

// Run runs a command of podman and returns what it wrote.
func (e *Engine) Run(t testing.TB, args ...string) string {
	t.Helper()

	out, err := e.command(context.Background(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", Name(), strings.Join(args, " "), err, out)
	}

	return string(out)
}

// Containers lists the names of all containers, also of those that have ended.
func (e *Engine) Containers(t testing.TB) []string {
	t.Helper()
	return strings.Fields(e.Run(t, "ps", "--all", "--quiet"))
}

// Kill kills what runs in all containers.
func (e *Engine) Kill(t testing.TB) {
	t.Helper()

	if running := strings.Fields(e.Run(t, "ps", "--quiet")); len(running) > 0 {
		e.Run(t, append([]string{"kill"}, running...)...)
	}
}

// removeContainers removes all containers. Docker's engine may be about to remove one itself, and then refuses to.
func (e *Engine) removeContainers(t testing.TB) {
	t.Helper()

	for end := time.Now().Add(patience); ; {
		left := e.Containers(t)
		if len(left) == 0 {
			return
		}

		out, err := e.command(context.Background(), append([]string{"rm", "--force"}, left...)...).CombinedOutput()
		if err != nil && time.Now().After(end) {
			t.Errorf("remove containers: %v: %s", err, out)
			return
		}

		clock.Sleep(context.Background(), 20*time.Millisecond)
	}
}

// clear removes all that is left.
func (e *Engine) clear(t testing.TB) {
	t.Helper()

	if docker() {
		if err := e.ip("link", "delete", e.bridge()); err != nil {
			t.Error(err)
		}

		e.unmount(t)
	} else {
		e.removeContainers(t)
	}

	// Podman keeps its storage mounted, and may have just been asked for something that uses it.
	left := func() error {
		_ = exec.CommandContext(context.Background(), "umount", filepath.Join(e.root, "storage", "overlay")).Run()

		if e.size != "" {
			if out, err := exec.CommandContext(context.Background(), "umount", e.root).CombinedOutput(); err != nil {
				return fmt.Errorf("unmount the disk of podman: %w: %s", err, out)
			}

			e.size = ""
		}

		return os.RemoveAll(e.root)
	}

	err := left()
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = left() {
		clock.Sleep(context.Background(), 100*time.Millisecond)
	}

	if err != nil {
		t.Errorf("clean up after podman: %v", err)
	}
}
