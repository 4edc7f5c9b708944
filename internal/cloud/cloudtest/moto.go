package cloudtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"trainyard/internal/clock"
)

// ErrNoMoto says that moto is not installed on this machine.
var ErrNoMoto = errors.New("no moto on this machine: scripts/setup-moto.sh installs it")

// Moto is a running server of the EC2 API.
type Moto struct {
	URL    string
	cmd    *exec.Cmd
	exited chan struct{}
	output *bytes.Buffer // must be read only after exited is closed
}

// motoTimeout bounds the wait for a new server to answer: it loads a lot of data at its start.
const motoTimeout = 90 * time.Second

// serveMoto starts moto's own server with one request at a time, because its tables are not safe
// for several threads.
const serveMoto = `
import sys
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
`

// StartMoto starts moto on a free port, with its optional checks of types and images. It ends with
// Stop, or with the program that started it.
func StartMoto() (*Moto, error) {
	python, err := motoPython()
	if err != nil {
		return nil, err
	}

	port, err := freePort()
	if err != nil {
		return nil, err
	}

	m := &Moto{URL: "http://127.0.0.1:" + port, exited: make(chan struct{}), output: new(bytes.Buffer)}
	m.cmd = exec.CommandContext(context.Background(), python, "-c", serveMoto, port)
	m.cmd.Env = append(os.Environ(), "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION=true", "MOTO_ENABLE_AMI_VALIDATION=true")
	m.cmd.SysProcAttr = endWithParent()
	m.cmd.Stdout, m.cmd.Stderr = m.output, m.output
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start moto: %w", err)
	}

	go func() {
		defer close(m.exited)

		_ = m.cmd.Wait() // its output says how it ended
	}()

	if err := m.awaitReady(); err != nil {
		return nil, errors.Join(err, m.Stop())
	}

	return m, nil
}

// Stop ends the server.
func (m *Moto) Stop() error {
	err := m.cmd.Process.Kill()
	<-m.exited

	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop moto: %w", err)
	}

	return nil
}

func (m *Moto) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), motoTimeout)
	defer cancel()

	for {
		err := get(ctx, m.URL+"/moto-api/")
		if err == nil {
			return nil
		}

		select {
		case <-m.exited:
			return fmt.Errorf("moto ended at once: %s", m.output)
		default:
		}

		if !clock.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("moto did not answer: %w", err)
		}
	}
}

func get(ctx context.Context, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}

	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}

	return res.Body.Close()
}

// SkipMoto skips tb because moto did not start, or fails it where moto is required.
func SkipMoto(tb testing.TB, err error) {
	tb.Helper()

	if errors.Is(err, ErrNoMoto) && os.Getenv("CI") != "true" {
		tb.Skip("needs moto: ", err)
	}

	tb.Fatal("needs moto: ", err)
}

var motoVersion = regexp.MustCompile(`(?m)^MOTO_VERSION=(\S+)$`)

// motoPython returns the Python interpreter of the moto version that scripts/setup-moto.sh
// installs.
func motoPython() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}

	text, err := os.ReadFile(filepath.Join(root, "scripts", "setup-moto.sh"))
	if err != nil {
		return "", fmt.Errorf("which moto is wanted: %w", err)
	}

	version := motoVersion.FindSubmatch(text)
	if version == nil {
		return "", errors.New("scripts/setup-moto.sh has no line MOTO_VERSION=")
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoMoto, err)
	}

	folder := filepath.Join(cache, "trainyard", "moto-"+string(version[1]))

	//nolint:gosec // G703: the user chooses the cache directory
	if _, err := os.Stat(filepath.Join(folder, ".complete")); err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoMoto, err)
	}

	return filepath.Join(folder, "bin", "python"), nil
}

// repository returns the directory of go.mod above the running test.
func repository() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}

		up := filepath.Dir(folder)
		if up == folder {
			return "", errors.New("no go.mod above this folder")
		}

		folder = up
	}
}

// freePort returns a port that is not in use.
func freePort() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}

	_, port, err := net.SplitHostPort(l.Addr().String())

	return port, errors.Join(err, l.Close())
}
