// Package pgtest starts a PostgreSQL server of its own for tests and benchmarks.
//
// The server lives in a folder of its own, listens on a socket within it and
// nowhere else unless it is given an address, and ends with Stop or with the program that started it. The
// package never touches a server that it did not start. The contract tests
// of the store, the crash tests and the benchmarks call it.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"trainyard/internal/clock"
)

// ErrMissing says that this machine has no PostgreSQL server programs.
var ErrMissing = errors.New("no PostgreSQL server programs on this machine")

// Server is a running PostgreSQL server.
type Server struct {
	dir    string // holds data and socket
	listen string // address of a network to listen on, beside the socket
	own    bool   // the folder was made by Start and goes with Stop
	cmd    *exec.Cmd
	exited chan struct{}
	output *bytes.Buffer // read only after exited
}

// startTimeout bounds the wait for a new server to answer.
const startTimeout = 60 * time.Second

// Start makes a database cluster in dir and starts a server on it. An empty
// dir means a new folder that Stop removes; any other must be one that the user
// postgres can reach, because the server refuses to run as root. A durable server
// writes to the disk before it answers; one that is not is faster and loses data when the machine dies.
func Start(dir string, durable bool) (*Server, error) { return StartOn("", dir, durable) }

// StartOn does as Start, and lets the server listen on an address as well, to all that are on the same network.
func StartOn(address, dir string, durable bool) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}

	s := &Server{dir: dir, listen: address, exited: make(chan struct{}), output: new(bytes.Buffer)}

	if dir == "" {
		s.dir, err = os.MkdirTemp("", "pg")
		if err != nil {
			return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
		}

		s.own = true
	}

	if err := s.start(bin, durable); err != nil {
		return nil, errors.Join(err, s.Stop())
	}

	return s, nil
}

// programs finds the folder of the newest server programs that the distribution
// installed beside its commands, or of those among the commands.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err == nil && len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return majorVersion(a) - majorVersion(b) })), nil
	}

	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", ErrMissing
	}

	return filepath.Dir(path), nil
}

// majorVersion reads …/15/bin/postgres as 15, and what names no version as 0.
func majorVersion(path string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	if err != nil {
		return 0
	}

	return n
}

// attributes lets programs run as the user postgres if we are root, and end when we do.
func (s *Server) attributes() (*syscall.SysProcAttr, error) {
	attr := endWithParent()
	if os.Geteuid() != 0 {
		return attr, nil
	}

	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find the user that PostgreSQL runs as: %w", err)
	}

	uid, err := strconv.Atoi(who.Uid)
	if err != nil {
		return nil, fmt.Errorf("user postgres: %w", err)
	}

	gid, err := strconv.Atoi(who.Gid)
	if err != nil {
		return nil, fmt.Errorf("user postgres: %w", err)
	}

	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}

	return attr, os.Chown(s.dir, uid, gid)
}

func (s *Server) start(bin string, durable bool) error {
	attr, err := s.attributes()
	if err != nil {
		return err
	}

	data := filepath.Join(s.dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, fs.ErrNotExist) {
		initdb := exec.CommandContext(context.Background(), filepath.Join(bin, "initdb"), initArgs(bin, data)...)
		initdb.SysProcAttr, initdb.Dir = attr, s.dir
		if out, err := initdb.CombinedOutput(); err != nil {
			return fmt.Errorf("initdb: %w: %s", err, out)
		}
	}

	if s.listen != "" {
		if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(trustNetwork), 0o600); err != nil {
			return fmt.Errorf("let the network in: %w", err)
		}
	}

	args := []string{"-D", data, "-k", s.dir, "-c", "listen_addresses=" + s.listen, "-c", "max_connections=200"}
	if !durable {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off")
	}

	s.cmd = exec.CommandContext(context.Background(), filepath.Join(bin, "postgres"), args...)
	s.cmd.SysProcAttr, s.cmd.Dir = attr, s.dir
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("start PostgreSQL: %w", err)
	}

	go func() {
		defer close(s.exited)

		_ = s.cmd.Wait() // how it ended is in its output
	}()

	return s.awaitReady()
}

// trustNetwork lets everybody in who is on this machine or on a network that it is on.
const trustNetwork = "local all all trust\nhost all all samenet trust\n"

// initArgs asks for an order of text that is not that of its bytes, as real
// installations have it, so that what relies on the order of bytes is found out.
func initArgs(bin, data string) []string {
	args := []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"}
	if majorVersion(filepath.Join(bin, "postgres")) >= 15 {
		args = append(args, "--locale-provider", "icu", "--icu-locale", "en-US")
	}

	return args
}

func (s *Server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()

	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}

		select {
		case <-s.exited:
			return fmt.Errorf("PostgreSQL ended at once: %s", s.output)
		default:
		}

		if !clock.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("PostgreSQL did not answer: %w", err)
		}
	}
}

func (s *Server) url(database string) string { return urlOn(s.dir, database) }

// NetworkURL is the URL of a database for those who reach the server by its address.
func (s *Server) NetworkURL(database string) string { return urlOn(s.listen, database) }

func urlOn(host, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database}
	u.RawQuery = url.Values{"host": {host}, "sslmode": {"disable"}}.Encode()
	return u.String()
}

// NewDatabase makes an empty database of this name and returns its URL.
func (s *Server) NewDatabase(name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()

	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}

	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}

	return s.url(name), nil
}

// Kill ends the server as a crash would, and keeps its folder: Start on the same one goes on from there.
func (s *Server) Kill() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill PostgreSQL: %w", err)
	}

	<-s.exited

	return nil
}

// Stop ends the server without waiting for those who are connected, and removes its folder if Start made it.
func (s *Server) Stop() error {
	var err error
	if s.cmd != nil {
		if killErr := s.cmd.Process.Signal(syscall.SIGINT); killErr != nil && !errors.Is(killErr, os.ErrProcessDone) {
			err = fmt.Errorf("stop PostgreSQL: %w", killErr)
		}

		<-s.exited
	}

	if s.own {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}

	return err
}
