package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
)

// Descriptors with which Init is started. Those of the output are also those of a Continuation.
const (
	connFD   = 3
	StdoutFD = 4
	StderrFD = 5
)

const lastPIDFile = "/proc/sys/kernel/ns_last_pid"

// initProcess is the first process of a space.
type initProcess struct {
	mu       sync.Mutex
	replies  *json.Encoder
	program  Program
	pid      int // of the program; 0 if it has not started
	status   syscall.WaitStatus
	ended    bool
	reported bool // the end
	busy     bool // a command runs; the end is reported after it
	waiting  map[int]chan syscall.WaitStatus
	born     sync.Once
	children chan struct{} // closed when there is a child
	files    *inbox        // descriptors that came with requests
	visits   visits
	shell    string // of the container
	joined   joined // where the program runs, if that is a container
}

// Init is the first process of a space. main calls it, in a process that Start has started, before anything else is set
// up. It ends when no other process of the space is left, and the kernel ends what is left when it does.
func Init(stderr io.Writer) int {
	// The stop of a run is the business of its supervisor, which signals the program. The runtime would end this process.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)

	// The program gets no descriptor of this process, also none that this one inherited: CRIU finds only files that were
	// opened in the namespace.
	if err := unix.CloseRange(connFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		_, _ = fmt.Fprintln(stderr, "init of a space: close inherited files:", err)
		return 1
	}

	conn := os.NewFile(connFD, "supervisor")
	p := &initProcess{
		replies: json.NewEncoder(conn), waiting: map[int]chan syscall.WaitStatus{}, children: make(chan struct{}),
		files: &inbox{}, visits: visits{byID: map[string]process.Process{}},
	}

	requests := json.NewDecoder(p.files)
	var first request
	if err := requests.Decode(&first); err != nil || first.Program == nil {
		_, _ = fmt.Fprintln(stderr, "init of a space: no program:", err)
		return 1
	}

	p.program = *first.Program
	over := make(chan struct{})

	go func() {
		defer close(over)
		<-p.children
		p.reap()
	}()

	code, err := p.begin(first)
	_ = unix.Close(StdoutFD) // the program has them now; the pipes end with it
	_ = unix.Close(StderrFD)

	if err != nil {
		p.reply(reply{Error: err.Error()})
		return 1
	}

	p.reply(reply{PID: p.pid, Code: code, Shell: p.shell})

	if code != 0 {
		return 1
	}

	p.reportEnd()

	go p.serve(requests)
	<-over

	return 0
}

// begin makes the view of the program and starts it, or lets a command continue it. It returns the exit code of the
// command.
func (p *initProcess) begin(first request) (int, error) {
	if p.program.Container != nil {
		var err error
		if p.joined, p.shell, err = join(p.files.take(), &p.program); err != nil {
			return 0, err
		}

		if p.program.Path == "" {
			p.program.Path, p.program.Args[0] = p.shell, filepath.Base(p.shell)
		}
	} else if err := mountAll(p.program.View, p.program.User, nil); err != nil {
		return 0, err
	}

	if first.Continue != nil {
		return p.resume(first.Continue)
	}

	if n := p.program.FirstPID; n > 0 {
		if err := setLastPID(n - 1); err != nil {
			return 0, err
		}
	}

	if n := p.program.MaxProcesses; n > 0 { // of this process, which may have as many as it likes, and of its children
		limit := &unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, limit); err != nil {
			return 0, fmt.Errorf("limit the processes of the program: %w", err)
		}
	}

	// Opened here, because CRIU looks for its mount in this namespace.
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}

	defer func() { _ = null.Close() }()

	attr := &syscall.ProcAttr{
		Dir: p.program.Dir, Env: p.program.Env, Files: []uintptr{null.Fd(), StdoutFD, StderrFD},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.pid, err = forkExec(p.program.Path, p.program.Args, attr, p.program.User, p.joined)
	if err != nil {
		return 0, fmt.Errorf("start %s in %s: %w", p.program.Path, p.program.Dir, err)
	}

	p.born.Do(func() { close(p.children) })

	return 0, nil
}

// forkExec starts a process with the rights of a user, or with those of this process if it is nil, in the namespaces of
// a container if it has some.
func forkExec(path string, args []string, attr *syscall.ProcAttr, user *User, in joined) (pid int, err error) {
	if user == nil && in == nil {
		return syscall.ForkExec(path, args, attr)
	}
	if user == nil {
		return 0, errors.New("a program in a container must have a user of its own")
	}

	groups := make([]uint32, len(user.Groups))
	for i, g := range user.Groups {
		groups[i] = uint32(g)
	}

	attr.Sys.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID), Groups: groups}

	// What enter and confine set belongs to the thread, and the child inherits it from there.
	onThread(func() {
		if err = in.enter(); err != nil {
			return
		}

		if err = confine(); err == nil {
			pid, err = syscall.ForkExec(path, args, attr)
		}
	})

	return pid, err
}

// resume lets a command make the processes of the program, as children of this process.
func (p *initProcess) resume(c *Continuation) (int, error) {
	p.mu.Lock()
	p.pid = c.PID // from now on, since it may end before the command has
	p.mu.Unlock()

	code, err := p.run(c.Command, StdoutFD, StderrFD)
	if err != nil || code != 0 {
		return code, err
	}

	return 0, setLastPID(max(c.LastPID, p.program.FirstPID-1))
}

// run runs a command to its end, with some more descriptors, and returns its exit code.
func (p *initProcess) run(c Command, more ...uintptr) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}

	defer func() { _ = null.Close() }()

	files := append([]uintptr{null.Fd(), null.Fd(), null.Fd(), null.Fd()}, more...)
	attr := &syscall.ProcAttr{Dir: "/", Env: c.Env, Files: files}

	p.mu.Lock()
	pid, err := syscall.ForkExec(c.Path, append([]string{c.Path}, c.Args...), attr)
	if err != nil {
		p.mu.Unlock()
		return 0, fmt.Errorf("start %s: %w", c.Path, err)
	}

	exit := make(chan syscall.WaitStatus, 1)
	p.waiting[pid] = exit
	p.born.Do(func() { close(p.children) })
	p.mu.Unlock()

	return (<-exit).ExitStatus(), nil
}

// reap waits for every process of the space until none is left.
func (p *initProcess) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return // ECHILD: no process is left
		}

		p.mu.Lock()

		switch exit, ok := p.waiting[pid]; {
		case ok:
			delete(p.waiting, pid)
			exit <- status
		case pid == p.pid:
			p.status, p.ended = status, true
		}

		p.mu.Unlock()
		p.reportEnd()
	}
}

// reportEnd tells the supervisor that the program has ended, once, and not while a command runs.
func (p *initProcess) reportEnd() {
	p.mu.Lock()
	due := p.ended && !p.reported && !p.busy
	p.reported = p.reported || due
	p.mu.Unlock()

	if due {
		p.reply(reply{Ended: true, Status: uint32(p.status), Last: childless()})
	}
}

// childless reports whether no other process is left in the space.
func childless() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// reply sends an answer. If the supervisor is gone nobody needs it: its watcher ends this process.
func (p *initProcess) reply(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()

	_ = p.replies.Encode(r)
}

// serve carries out requests until the supervisor is gone.
func (p *initProcess) serve(requests *json.Decoder) {
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			return
		}

		switch {
		case r.Run != nil:
			p.runBeside(*r.Run)
		case r.Kill:
			p.kill()
		case r.Visit != nil:
			p.receive(*r.Visit)
		case r.EndVisit != "":
			p.endVisit(r.EndVisit)
		case r.Signal != nil:
			p.signalVisit(*r.Signal)
		default:
			p.reply(reply{Error: "unknown request"})
		}
	}
}

// runBeside runs a command while the program is there.
func (p *initProcess) runBeside(c Command) {
	p.mu.Lock()
	ended := p.ended
	p.busy = !ended
	p.mu.Unlock()

	if ended {
		p.reply(reply{Error: "the program has ended"})
		return
	}

	var answer reply
	code, err := p.run(c)
	answer.Code = code

	if err == nil {
		answer.LastPID, err = readLastPID()
	}

	if err != nil {
		answer = reply{Error: err.Error()}
	}

	p.reply(answer)
	p.mu.Lock()
	p.busy = false
	p.mu.Unlock()
	p.reportEnd()
}

// kill ends all processes of the space but this one.
func (p *initProcess) kill() {
	err := unix.Kill(-1, unix.SIGKILL)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		p.reply(reply{Error: err.Error()})
		return
	}

	p.reply(reply{})
}

func setLastPID(pid int) error {
	if err := os.WriteFile(lastPIDFile, []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("set the next pid of the namespace: %w", err)
	}

	return nil
}

func readLastPID() (int, error) {
	data, err := os.ReadFile(lastPIDFile)
	if err != nil {
		return 0, err
	}

	return strconv.Atoi(strings.TrimSpace(string(data)))
}
