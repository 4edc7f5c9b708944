package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/visitor"
	"trainyard/internal/agent/sandbox"
)

// selfExe is the program that this process runs, the helper.
const selfExe = "/proc/self/exe"

// visitors are the processes that people have started beside the program, see package visitor. Unlike the rest of the
// supervisor they have goroutines of their own.
type visitors struct {
	mu     sync.Mutex
	house  *house            // where they run; nil while the program does not
	closed string            // why it does not
	open   map[string]*guest // by id
	came   bool              // somebody has asked for one
}

// house is where visitors are started, and how they are ended.
type house struct {
	start  func(r visitor.Request, p sandbox.Program, files []*os.File) (<-chan syscall.WaitStatus, error)
	kill   func(id string) error
	signal func(id string, number int) error
	env    []string
	dir    string // the working directory, as they see it
	shell  string // of the container; "" for that of the machine
}

// guest is one visitor.
type guest struct {
	reason string // why it is ended; guarded by visitors.mu
}

// receiveVisitors listens for agents that want to start visitors, until ctx is cancelled. A rank whose socket cannot be
// made has none.
func (s *supervisor) receiveVisitors(ctx context.Context) {
	s.guests.closed = visitor.NotStarted
	s.guests.open = map[string]*guest{}

	socket, err := visitor.Listen(s.dir)
	if err != nil {
		s.logError(err)
		return
	}

	context.AfterFunc(ctx, func() { _ = socket.Close() })

	go func() {
		for {
			conn, err := visitor.Accept(socket)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil {
				s.logError(err)
				return
			}

			go s.receiveVisitor(conn)
		}
	}()
}

// receiveVisitor carries out the request of one connection. The visitor is killed when the connection ends.
func (s *supervisor) receiveVisitor(conn *visitor.Conn) {
	defer func() { _ = conn.Close() }()

	var r visitor.Request
	files, err := conn.Receive(&r)
	if err != nil {
		return // the agent is gone
	}

	in, g, end, err := s.guests.begin(r, files)
	visitor.CloseAll(files)

	if err != nil {
		_ = conn.Send(visitor.Message{Error: err.Error()}) // nobody is left who would want to know if it fails
		return
	}

	if err := conn.Send(visitor.Message{Started: true}); err != nil {
		s.endVisitor(in, r.ID)
	}

	go s.obeyAgent(conn, in, r.ID)

	last := visitor.End{Status: uint32(<-end)}
	last.Reason = s.guests.leave(r.ID, g)
	_ = conn.Send(visitor.Message{End: &last})
}

// obeyAgent passes signals on until the connection ends, and then kills the visitor.
func (s *supervisor) obeyAgent(conn *visitor.Conn, in *house, id string) {
	for {
		var m visitor.Message
		if _, err := conn.Receive(&m); err != nil {
			break
		}

		if m.Signal > 0 {
			if err := in.signal(id, m.Signal); err != nil {
				s.logError(err)
			}
		}
	}

	s.endVisitor(in, id)
}

func (s *supervisor) endVisitor(in *house, id string) {
	if err := in.kill(id); err != nil {
		s.logError(err)
	}
}

// begin starts a visitor, if the program runs.
func (v *visitors) begin(r visitor.Request, files []*os.File) (
	*house, *guest, <-chan syscall.WaitStatus, error,
) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.came = true

	if v.house == nil {
		return nil, nil, nil, errors.New(v.closed)
	}
	if v.open[r.ID] != nil || r.ID == "" {
		return nil, nil, nil, errors.New("a visitor needs an id of its own")
	}

	p, err := v.house.program(r)
	if err != nil {
		return nil, nil, nil, err
	}

	end, err := v.house.start(r, p, files)
	if err != nil {
		return nil, nil, nil, err
	}

	g := &guest{}
	v.open[r.ID] = g

	return v.house, g, end, nil
}

// none reports whether nobody has asked for a visitor.
func (v *visitors) none() bool {
	v.mu.Lock()
	defer v.mu.Unlock()

	return !v.came
}

// leave forgets a visitor that has ended and returns why it was ended, "" if it ended by itself.
func (v *visitors) leave(id string, g *guest) string {
	v.mu.Lock()
	defer v.mu.Unlock()

	delete(v.open, id)

	return g.reason
}

// admit lets visitors in from now on.
func (v *visitors) admit(h *house) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.house = h
}

// dismiss kills all visitors and lets nobody in any more. It must come before the program is stopped: a shell ignores
// SIGTERM, and the run would not end before its grace period is over.
func (v *visitors) dismiss(reason string, logError func(error)) {
	v.mu.Lock()
	h := v.house
	v.house, v.closed = nil, reason
	var ids []string

	for id, g := range v.open {
		g.reason = reason
		ids = append(ids, id)
	}

	v.mu.Unlock()

	for _, id := range ids {
		if err := h.kill(id); err != nil {
			logError(err)
		}
	}
}

// program returns what is executed for a request.
func (h *house) program(r visitor.Request) (sandbox.Program, error) {
	p := sandbox.Program{Dir: h.dir, Env: append(append([]string{}, h.env...), r.Env...)}
	p.Env = append(p.Env, visitor.Var+"="+r.ID)

	if r.Copy != nil {
		how := visitor.Get
		if r.Copy.Put {
			how = visitor.Put
		}

		p.Path, p.Args = selfExe, []string{"trainyard", visitor.CopyCommand, how, r.Copy.Path}

		return p, nil
	}

	shell := h.shell
	if shell == "" {
		var err error
		if shell, err = sandbox.FindShell(); err != nil {
			return p, err
		}
	}

	name := filepath.Base(shell)
	p.Path, p.Args = shell, []string{name}

	switch {
	case len(r.Args) > 0: // a shell finds the command on the PATH of the program
		p.Args = append(p.Args, append([]string{"-c", `exec "$@"`, name}, r.Args...)...)
	case r.Terminal && name == "bash":
		p.Args = append(p.Args, "--norc", "-i") // the prompt is in its environment, and PATH stays that of the program
	case r.Terminal:
		p.Args = append(p.Args, "-i")
	}

	return p, nil
}

// houseOf returns where the visitors of a script run: in its namespaces, or like it beside the supervisor.
func (s *supervisor) houseOf(p *script) *house {
	if p.space != nil {
		return &house{
			start: p.space.Visit, kill: p.space.EndVisit, signal: p.space.SignalVisit, env: p.program.Env, dir: p.program.Dir,
			shell: p.space.Shell,
		}
	}

	w := &walkIns{s: s, roots: map[string]process.Process{}}

	return &house{
		start: w.start, kill: w.kill, signal: w.signal, env: s.rec.Env, dir: filepath.Join(s.dir, rundir.WorkDir),
	}
}

// walkIns are visitors of a program that has no namespaces of its own: they are children of the supervisor, as it is.
type walkIns struct {
	s *supervisor

	mu    sync.Mutex
	roots map[string]process.Process
}

func (w *walkIns) start(r visitor.Request, p sandbox.Program, files []*os.File) (<-chan syscall.WaitStatus, error) {
	attr, err := visitor.Attr(&r, files)
	if err != nil {
		return nil, err
	}

	attr.Dir, attr.Env = p.Dir, p.Env

	leave, err := w.s.enterV2(attr.Sys)
	if err != nil {
		return nil, err
	}

	defer leave()

	pid, exit, err := w.launch(p, attr)
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", p.Path, p.Dir, err)
	}

	root, _ := process.Read(pid)
	root.PID = pid
	w.mu.Lock()
	w.roots[r.ID] = root
	w.mu.Unlock()

	end := make(chan syscall.WaitStatus, 1)

	go func() {
		status := <-exit
		if err := visitor.Kill(r.ID, root); err != nil {
			w.s.logError(err)
		}

		w.mu.Lock()
		delete(w.roots, r.ID)
		w.mu.Unlock()
		end <- status
	}()

	return end, nil
}

// launch starts a process in the cgroup of the rank. It cannot be started inside of a v1 cgroup, so a shell waits until
// it was moved there, and then becomes the process.
func (w *walkIns) launch(p sandbox.Program, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	group := w.s.group // it is there before visitors are admitted
	if group == nil || group.V2 {
		return w.s.kids.start(p.Path, p.Args, attr)
	}

	shell, err := sandbox.FindShell()
	if err != nil {
		return 0, nil, err
	}

	gate, opener, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}

	defer visitor.CloseAll([]*os.File{gate, opener})

	path := p.Path
	if path == selfExe { // it is that of the supervisor, not that of the shell
		path = "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"
	}

	attr.Files = append(attr.Files, gate.Fd())
	args := []string{filepath.Base(shell), "-c", `read _ <&3 && exec 3<&- && exec "$@"`, filepath.Base(shell), path}

	pid, exit, err := w.s.kids.start(shell, append(args, p.Args[1:]...), attr)
	if err != nil {
		return 0, nil, err
	}

	if err := group.Add([]int{pid}); err != nil {
		w.s.logError(err) // as for the program: its limits are then not enforced
	}

	// If this fails the shell has ended, which its exit says.
	_, _ = opener.WriteString("go\n")

	return pid, exit, nil
}

func (w *walkIns) find(id string) (process.Process, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	root, ok := w.roots[id]

	return root, ok
}

func (w *walkIns) kill(id string) error {
	root, ok := w.find(id)
	if !ok {
		return nil
	}

	return visitor.Kill(id, root)
}

func (w *walkIns) signal(id string, number int) error {
	root, ok := w.find(id)
	if !ok {
		return nil
	}

	if err := unix.Kill(-root.PID, unix.Signal(number)); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}

	return nil
}
