package crash_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// recorder writes to the shared folder for programs in containers, which do not have it. Each has a connection, by
// which it holds its lock.
type recorder struct {
	listener net.Listener
	folder   string
	tasks    sync.WaitGroup

	mu    sync.Mutex
	locks map[string]*net.TCPConn
	conns map[*net.TCPConn]bool
}

// startRecorder starts a recorder that ends with the test.
func startRecorder(t *testing.T, folder string) *recorder {
	t.Helper()

	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &recorder{listener: l, folder: folder, locks: map[string]*net.TCPConn{}, conns: map[*net.TCPConn]bool{}}
	r.tasks.Go(r.accept)
	t.Cleanup(r.close)

	return r
}

func (r *recorder) address() string { return r.listener.Addr().String() }

func (r *recorder) close() {
	_ = r.listener.Close()

	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()

	r.tasks.Wait()
}

func (r *recorder) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // closed
		}

		conn, ok := c.(*net.TCPConn)
		if !ok {
			continue
		}

		r.mu.Lock()
		r.conns[conn] = true
		r.mu.Unlock()

		r.tasks.Go(func() { r.serve(conn) })
	}
}

// serve answers the calls of one program until that has ended.
func (r *recorder) serve(conn *net.TCPConn) {
	defer func() {
		r.mu.Lock()
		delete(r.conns, conn)
		r.mu.Unlock()

		_ = conn.Close()
	}()

	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		call, text, _ := strings.Cut(lines.Text(), " ")

		answer := "yes"
		if yes, err := r.do(conn, call, text); err != nil {
			answer = err.Error()
		} else if !yes {
			answer = "no"
		}

		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return // the program was killed
		}
	}
}

// do does what a program asks for. The lines of the record are in the order in which it was asked.
func (r *recorder) do(conn *net.TCPConn, call, text string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	path := filepath.Join(r.folder, text)

	switch call {
	case "lock":
		if other := r.locks[text]; other != nil && alive(other) {
			return false, nil
		}

		r.locks[text] = conn

		return true, nil
	case "note":
		f, err := os.OpenFile(filepath.Join(r.folder, "record"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return false, err
		}

		_, err = f.WriteString(text + "\n")

		return err == nil, errors.Join(err, f.Close())
	case "touch":
		err := os.WriteFile(path, nil, 0o600)
		return err == nil, err
	case "exists":
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}

		return err == nil, err
	}

	return false, fmt.Errorf("unknown call %q", call)
}

// alive reports whether the program at the other end of a connection is still there. The kernel ends the connection
// before anybody can see that the program has ended, so that asking the socket itself cannot come too early.
func alive(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}

	there := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		there = n > 0 || errors.Is(err, unix.EAGAIN)
	})

	return err == nil && there
}
