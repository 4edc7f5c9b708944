package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/visitor"
)

// InitCommand is the hidden subcommand that runs Init, see package subprocess.
const InitCommand = "init-space"

// StartProcess starts a process like syscall.ForkExec, and returns its pid and a channel with its end.
type StartProcess func(path string, args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error)

// Setting says where and how a space is made.
type Setting struct {
	Exe    string // the helper
	Start  StartProcess
	Attr   syscall.SysProcAttr // of its first process: the cgroup; namespaces and session are added
	Env    []string            // of its first process, not of the program
	Stdout *os.File            // into which the program writes; pipes
	Stderr *os.File
	// Join are the namespaces of the program's container, if it has one; see Container.Namespaces.
	Join []*os.File
}

// Space is the set of namespaces in which a program runs.
type Space struct {
	// PID is that of Init, seen from outside. All processes of the program descend from it, and the kernel ends them
	// with it.
	PID int

	// Shell is that of the program's container, "" if it has none.
	Shell string

	conn    *os.File
	ended   chan syscall.WaitStatus
	replies chan reply

	mu   sync.Mutex // one request at a time
	root int        // pid of the program, in the namespace

	guests guests
}

// request is what a space is asked to do. The first one has the program.
type request struct {
	Program  *Program      `json:"program,omitempty"`
	Continue *Continuation `json:"continue,omitempty"` // with Program: its processes are made by a command
	Run      *Command      `json:"run,omitempty"`
	Kill     bool          `json:"kill,omitempty"`
	// Visit starts a visitor, whose descriptors come with the request. The other two are about one that was started.
	Visit    *visit `json:"visit,omitempty"`
	EndVisit string `json:"end_visit,omitempty"`
	Signal   *sent  `json:"signal,omitempty"`
}

// reply is the answer to a request, or the end of the program.
type reply struct {
	Error   string `json:"error,omitempty"`
	PID     int    `json:"pid,omitempty"`  // of the program, in the namespace
	LastPID int    `json:"last,omitempty"` // newest pid of the namespace
	// Shell is the path of the container's shell.
	Shell string `json:"shell,omitempty"`
	// Code is the exit code of a command, -1 if a signal ended it.
	Code int `json:"code,omitempty"`
	// Ended says that the program has ended, with Status. If it was the last process of the space the space ends too.
	Ended  bool   `json:"ended,omitempty"`
	Status uint32 `json:"status,omitempty"`
	Last   bool   `json:"last_process,omitempty"`
	// Visitor says that Ended and Status are those of a visitor.
	Visitor string `json:"visitor,omitempty"`
}

// ErrGone says that a space has ended.
var ErrGone = errors.New("the program and its namespaces are gone")

// Start starts a program in a new space.
func Start(s Setting, p Program) (*Space, error) {
	space, err := open(s)
	if err != nil {
		return nil, err
	}

	got, err := space.ask(request{Program: &p}, s.Join...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the program: %w", err), space.Close())
	}

	space.Shell = got.Shell

	return space, nil
}

// Continue makes the processes of a program in a new space by a command. If the command fails the space ends.
func Continue(s Setting, p Program, c Continuation) (*Space, Result, error) {
	space, err := open(s)
	if err != nil {
		return nil, Result{}, err
	}

	got, err := space.ask(request{Program: &p, Continue: &c})
	if err != nil {
		return nil, Result{}, errors.Join(err, space.Close())
	}
	if got.Code != 0 {
		return nil, Result{Code: got.Code}, space.Close()
	}

	return space, Result{}, nil
}

// open makes a space in which nothing runs yet.
func open(s Setting) (*Space, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}

	theirs := os.NewFile(uintptr(fds[1]), "space")
	defer func() { _ = theirs.Close() }()

	err = unix.SetNonblock(fds[0], true)
	conn := os.NewFile(uintptr(fds[0]), "space")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	defer func() { _ = null.Close() }()

	sys := s.Attr
	sys.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	sys.Setsid = true
	attr := &syscall.ProcAttr{
		Dir: "/", Env: append([]string{"GOMAXPROCS=1"}, s.Env...), Sys: &sys,
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd(), s.Stdout.Fd(), s.Stderr.Fd()},
	}

	pid, exit, err := s.Start(s.Exe, []string{"trainyard", InitCommand}, attr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the namespaces of the program: %w", err), conn.Close())
	}

	space := &Space{
		PID: pid, conn: conn, ended: make(chan syscall.WaitStatus, 1), replies: make(chan reply, 1),
		guests: guests{ends: map[string]chan syscall.WaitStatus{}},
	}
	go space.receive(exit)

	return space, nil
}

// receive passes on what Init says until it has ended.
func (s *Space) receive(exit <-chan syscall.WaitStatus) {
	var last *reply // with which the space ends
	reported := false
	for dec := json.NewDecoder(s.conn); ; {
		var r reply
		if err := dec.Decode(&r); err != nil {
			break // Init has ended
		}

		if r.Visitor != "" {
			s.guests.end(r.Visitor, syscall.WaitStatus(r.Status))
			continue
		}

		if r.Ended && r.Last {
			last = &r
			continue
		}

		if r.Ended {
			reported = true
			s.ended <- syscall.WaitStatus(r.Status)
			continue
		}

		s.replies <- r
	}

	close(s.replies)
	s.guests.endAll()

	status := <-exit
	if last != nil {
		status = syscall.WaitStatus(last.Status)
	}

	if !reported {
		s.ended <- status
	}
}

// Ended returns a channel with the end of the program. Processes that it left behind may still run. If there are none
// the space has ended too.
func (s *Space) Ended() <-chan syscall.WaitStatus { return s.ended }

// Root returns the pid of the program, in the namespace.
func (s *Space) Root() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.root
}

// Run runs a command beside the program to its end. If the program ends meanwhile, that is reported afterwards.
func (s *Space) Run(c Command) (Result, error) {
	got, err := s.ask(request{Run: &c})
	return Result{Code: got.Code, LastPID: got.LastPID}, err
}

// Kill ends all processes of the space.
func (s *Space) Kill() error {
	if _, err := s.ask(request{Kill: true}); err != nil && !errors.Is(err, ErrGone) {
		return err
	}

	return nil
}

// ask sends a request, with descriptors if it has some, and waits for the answer.
func (s *Space) ask(r request, files ...*os.File) (reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	text, err := json.Marshal(r)
	if err != nil {
		return reply{}, err
	}
	if err := visitor.Send(s.conn, append(text, '\n'), files); err != nil {
		return reply{}, errors.Join(ErrGone, err)
	}

	got, ok := <-s.replies
	switch {
	case !ok:
		return reply{}, ErrGone
	case got.Error != "":
		return reply{}, errors.New(got.Error)
	}

	if got.PID != 0 {
		s.root = got.PID
	}

	return got, nil
}

// Close ends the connection with Init. The program runs on.
func (s *Space) Close() error { return s.conn.Close() }

// Processes lists the processes of the program.
func (s *Space) Processes() ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, err
	}

	return process.Descendants(all, map[int]bool{s.PID: true}), nil
}
