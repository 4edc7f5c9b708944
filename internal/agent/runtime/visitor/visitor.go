// Package visitor describes processes that people start beside the program of a rank: shells, commands and copies of
// files.
//
// The agent asks the supervisor of the rank for a visitor over a socket in the run directory, one connection for each,
// and passes it the descriptors of its input and output. The supervisor starts it where the program runs: as the same
// user, in the same namespaces and cgroup, with the same environment. A visitor lives as long as its connection: when
// the agent closes it, or is killed, the visitor and whatever it has started is killed. It ends with the program, too.
//
// The package holds what both sides say, how they pass descriptors, and how the processes of a visitor are found. It
// starts nothing.
package visitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is the name of the socket in the run directory.
const Socket = "visitors"

// Var is set in the environment of every process of a visitor to its id, so that all of them can be found.
const Var = "TRAINYARD_VISITOR"

// NotStarted is the error for a visitor of a program that is just being started.
const NotStarted = "the program has not started yet"

// maxMessage bounds one message. Commands are limited to less than that.
const maxMessage = 128 << 10

// maxFiles is how many descriptors a request has at most.
const maxFiles = 3

// Request asks for a visitor. Its descriptors come with it: one terminal, or its input, output and errors.
type Request struct {
	ID       string   `json:"id"`
	Args     []string `json:"args,omitempty"` // of a command; a shell if there are none
	Copy     *Copy    `json:"copy,omitempty"` // files are copied instead
	Env      []string `json:"env,omitempty"`  // beside that of the program
	Terminal bool     `json:"terminal,omitempty"`
}

// Copy is a copy of files from or to the working directory, as a tar stream on output or input.
type Copy struct {
	Put  bool   `json:"put,omitempty"` // to the working directory
	Path string `json:"path"`          // below it
}

// Message is what the two sides say to each other after the request.
type Message struct {
	Signal  int    `json:"signal,omitempty"`  // of the agent: for the visitor's foreground
	Started bool   `json:"started,omitempty"` // of the supervisor
	Error   string `json:"error,omitempty"`   // of the supervisor: why there is no visitor
	End     *End   `json:"end,omitempty"`     // of the supervisor: the last message
}

// End is how a visitor ended.
type End struct {
	Status uint32 `json:"status"`           // as of wait(2)
	Reason string `json:"reason,omitempty"` // why it was ended; "" if it ended by itself
}

// Conn is one end of a connection for a visitor.
type Conn struct{ file *os.File }

// Listen makes the socket in a run directory.
func Listen(dir string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make the socket for visitors: %w", err)
	}

	socket := os.NewFile(uintptr(fd), Socket)
	err = inDir(dir, func(address string) error {
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
			return err
		}

		return unix.Listen(fd, unix.SOMAXCONN)
	})
	if err == nil {
		err = os.Chmod(filepath.Join(dir, Socket), 0o600)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the socket for visitors: %w", err), socket.Close())
	}

	return socket, nil
}

// Accept waits for the next connection. It fails when the socket is closed.
func Accept(socket *os.File) (*Conn, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}

	var fd int
	var failure error

	err = raw.Read(func(listening uintptr) bool {
		fd, _, failure = unix.Accept4(int(listening), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err := errors.Join(err, failure); err != nil {
		return nil, err
	}

	return &Conn{os.NewFile(uintptr(fd), Socket)}, nil
}

// Dial connects to the supervisor of the rank with this run directory.
func Dial(dir string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	c := &Conn{os.NewFile(uintptr(fd), Socket)}
	if err := inDir(dir, func(address string) error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: address})
	}); err != nil {
		return nil, errors.Join(err, c.Close())
	}

	return c, nil
}

// inDir calls fn with an address of the socket that is short, however long the path of the directory is: the kernel
// takes only about a hundred bytes.
func inDir(dir string, fn func(address string) error) error {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}

	defer func() { _ = d.Close() }()

	return fn("/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + Socket)
}

// Close ends the connection.
func (c *Conn) Close() error { return c.file.Close() }

// Send sends a message, with descriptors if there are some. This side keeps its own copies of them.
func (c *Conn) Send(message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return fmt.Errorf("the message has %d bytes, the limit is %d", len(text), maxMessage)
	}

	return Send(c.file, text, files)
}

// Receive reads a message and the descriptors that come with it. It returns io.EOF when the other side is gone.
func (c *Conn) Receive(message any) ([]*os.File, error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return nil, err
	}

	buf := make([]byte, maxMessage)
	var n int
	var files []*os.File
	var failure error

	err = raw.Read(func(fd uintptr) bool {
		n, files, failure = Receive(int(fd), buf)
		return !errors.Is(failure, unix.EAGAIN)
	})

	err = errors.Join(err, failure)
	if err == nil && n == 0 {
		err = io.EOF
	}

	if err == nil {
		err = json.Unmarshal(buf[:n], message)
	}

	if err != nil {
		CloseAll(files)
		return nil, err
	}

	return files, nil
}

// Send writes bytes to a socket of this process and passes descriptors with them.
func Send(socket *os.File, data []byte, files []*os.File) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}

	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}

		rights = unix.UnixRights(fds...)
	}

	for len(data) > 0 {
		var n int
		var failure error

		err := raw.Write(func(fd uintptr) bool {
			n, failure = unix.SendmsgN(int(fd), data, rights, nil, unix.MSG_NOSIGNAL)
			return !errors.Is(failure, unix.EAGAIN)
		})
		if err := errors.Join(err, failure); err != nil {
			return err
		}

		data, rights = data[n:], nil // a stream may take a part; the descriptors went with its first byte
	}

	return nil
}

// Receive reads bytes from a socket, and the descriptors that come with them.
func Receive(fd int, buf []byte) (int, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))

	n, oobn, _, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, nil, err
	}

	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}

	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			CloseAll(files)
			return 0, nil, err
		}

		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "visitor"))
		}
	}

	return n, files, nil
}

// CloseAll closes files that are not needed here.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Attr returns how a visitor with these descriptors is started: in a session of its own, with the terminal as that of
// the session if it has one.
func Attr(r *Request, files []*os.File) (*syscall.ProcAttr, error) {
	want := maxFiles
	if r.Terminal {
		want = 1
	}

	if len(files) != want {
		return nil, fmt.Errorf("a visitor needs %d descriptors, got %d", want, len(files))
	}

	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true, Setctty: r.Terminal}}
	for i := range maxFiles {
		attr.Files = append(attr.Files, files[min(i, len(files)-1)].Fd())
	}

	return attr, nil
}
