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
	"time"

	"trainyard/internal/clock"
)

// Server is a program that serves an API on a port of this machine.
type Server struct {
	URL    string
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	output *bytes.Buffer // must be read only after exited is closed
}

// startTimeout bounds the wait for a new server to answer: some load a lot of data at their start.
const startTimeout = 90 * time.Second

// StartServer starts a program on a free port and waits until it answers at a path. It ends with Stop, or with
// the program that started it.
func StartServer(name, path string, command func(port string) *exec.Cmd) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}

	s := &Server{
		URL: "http://127.0.0.1:" + port, name: name, cmd: command(port),
		exited: make(chan struct{}), output: new(bytes.Buffer),
	}
	s.cmd.SysProcAttr = endWithParent()
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	go func() {
		defer close(s.exited)

		_ = s.cmd.Wait() // its output says how it ended
	}()

	if err := s.awaitReady(path); err != nil {
		return nil, errors.Join(err, s.Stop())
	}

	return s, nil
}

// Stop ends the server.
func (s *Server) Stop() error {
	err := s.cmd.Process.Kill()
	<-s.exited

	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}

	return nil
}

func (s *Server) awaitReady(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()

	for {
		err := get(ctx, s.URL+path)
		if err == nil {
			return nil
		}

		select {
		case <-s.exited:
			return fmt.Errorf("%s ended at once: %s", s.name, s.output)
		default:
		}

		if !clock.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s did not answer: %w", s.name, err)
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

// Pinned returns the version of a program that a script of set-up installs: what its line VARIABLE=… says.
func Pinned(script, variable string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}

	text, err := os.ReadFile(filepath.Join(root, "scripts", script))
	if err != nil {
		return "", fmt.Errorf("which version is wanted: %w", err)
	}

	version := regexp.MustCompile(`(?m)^` + variable + `=(\S+)$`).FindSubmatch(text)
	if version == nil {
		return "", fmt.Errorf("scripts/%s has no line %s=", script, variable)
	}

	return string(version[1]), nil
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
