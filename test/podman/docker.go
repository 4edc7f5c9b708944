package podman

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// engineVar names the engine that tests use: podman if it is not set, or docker.
const engineVar = "TRAINYARD_TEST_ENGINE"

func docker() bool { return os.Getenv(engineVar) == "docker" }

// Name is the name of the engine, as nodes have it.
func Name() string {
	if docker() {
		return "Docker"
	}

	return "podman"
}

// ending is the signal that ends the engine: Docker's has programs of its own to end.
func ending() os.Signal {
	if docker() {
		return os.Interrupt
	}

	return os.Kill
}

// daemon returns the command that runs Docker's engine. Its network is a bridge that has to be there.
func (e *Engine) daemon() (*exec.Cmd, error) {
	bridge := e.bridge()
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"address", "add", strings.Replace(e.subnet, ".0/", ".1/", 1), "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if err := e.ip(args...); err != nil {
			return nil, err
		}
	}

	cmd := exec.CommandContext(context.Background(), "dockerd", "--config-file", filepath.Join(e.root, "daemon.json"),
		"--host", "unix://"+e.Socket, "--data-root", filepath.Join(e.root, "storage"),
		"--exec-root", filepath.Join(e.root, "run"), "--pidfile", filepath.Join(e.root, "pid"),
		"--storage-driver", "overlay2", "--default-ulimit", "nofile=20000:20000", "--insecure-registry", e.Address,
		"--bridge", bridge, "--iptables=false", "--ip6tables=false")
	cmd.Env = append(os.Environ(), "TMPDIR="+e.root)

	return cmd, nil
}

// bridge is the name of the bridge of Docker's engine; the kernel takes 15 letters.
func (e *Engine) bridge() string {
	_, number, _ := strings.Cut(filepath.Base(e.root), "-")
	return "ty" + number
}

// client returns a command for Docker's engine.
func (e *Engine) client(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "docker", append([]string{"--host", "unix://" + e.Socket}, args...)...)
}

// ip runs ip where the engine is.
func (e *Engine) ip(args ...string) error {
	return e.do(func() error {
		out, err := exec.CommandContext(context.Background(), "ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}

		return nil
	})
}

// unmount unmounts what Docker's engine leaves mounted in its folder.
func (e *Engine) unmount(t testing.TB) {
	t.Helper()

	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Error(err)
	}

	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], e.root+"/") {
			// Those inside of others are gone with them.
			_ = exec.CommandContext(context.Background(), "umount", "--lazy", fields[1]).Run()
		}
	}
}
