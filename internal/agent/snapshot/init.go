package snapshot

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
)

// Descriptors with which Init is started.
const (
	connFD   = 3
	stdoutFD = 4
	stderrFD = 5
)

// firstPID is below the pids of every program in a space. What restores a program has smaller ones, so that they
// never meet. It is where the kernel begins again after the largest pid.
const firstPID = 300

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
	dumping  bool // the end is reported after the dump
	waiting  map[int]chan syscall.WaitStatus
	born     sync.Once
	children chan struct{} // closed when there is a child
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
	}

	requests := json.NewDecoder(conn)
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

	err := p.begin(first)
	_ = unix.Close(stdoutFD) // the program has them now; the pipes end with it
	_ = unix.Close(stderrFD)

	if err != nil {
		p.reply(reply{Error: err.Error()})
		return 1
	}

	p.reply(reply{PID: p.pid})
	p.reportEnd()

	go p.serve(requests)
	<-over

	return 0
}

// begin makes the space and starts or restores the program.
func (p *initProcess) begin(first request) error {
	if err := mountAll(p.program.Binds); err != nil {
		return err
	}

	if first.Image != "" {
		return p.restore(first)
	}

	if err := setLastPID(firstPID - 1); err != nil {
		return err
	}

	// Opened here, because CRIU looks for its mount in this namespace.
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}

	defer func() { _ = null.Close() }()

	attr := &syscall.ProcAttr{
		Dir: p.program.Dir, Env: p.program.Env, Files: []uintptr{null.Fd(), stdoutFD, stderrFD},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.pid, err = syscall.ForkExec(p.program.Path, p.program.Args, attr)
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", p.program.Path, p.program.Dir, err)
	}

	p.born.Do(func() { close(p.children) })

	return nil
}

// mountAll gives the space its own view of processes, and the program the directories of its run.
func mountAll(binds []Bind) error {
	// Mounts of the machine still appear here, those made here do not appear outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := os.MkdirAll(Root, 0o755); err != nil { //nolint:gosec // programs of other users see it
		return err
	}
	if err := unix.Mount("trainyard", Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount %s: %w", Root, err)
	}

	for _, b := range binds {
		at := filepath.Join(Root, b.Name)
		if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // likewise
			return err
		}
		if err := unix.Mount(b.From, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s as %s: %w", b.From, at, err)
		}
	}

	return nil
}

// restore lets CRIU make the processes of the program, as children of this process.
func (p *initProcess) restore(first request) error {
	images := first.Image

	p.mu.Lock()
	p.pid = first.Meta.Root // from now on, since it may end before CRIU has
	p.mu.Unlock()

	status, err := p.runCRIU(restoreArgs(images, first.Meta.Pipes, [2]int{stdoutFD, stderrFD}), stdoutFD, stderrFD)
	if err != nil {
		return err
	}
	if !status.Exited() || status.ExitStatus() != 0 {
		return criuFailed("restore", images, restoreLog, status.ExitStatus())
	}

	return setLastPID(max(first.Meta.LastPID, firstPID-1))
}

// runCRIU runs CRIU to its end, with some more descriptors.
func (p *initProcess) runCRIU(args []string, more ...uintptr) (syscall.WaitStatus, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}

	defer func() { _ = null.Close() }()

	files := append([]uintptr{null.Fd(), null.Fd(), null.Fd(), null.Fd()}, more...)
	attr := &syscall.ProcAttr{Dir: "/", Env: []string{"PATH=" + criuPath}, Files: files}

	p.mu.Lock()
	pid, err := syscall.ForkExec(p.program.CRIU, append([]string{"criu"}, args...), attr)
	if err != nil {
		p.mu.Unlock()
		return 0, fmt.Errorf("start %s: %w", p.program.CRIU, err)
	}

	exit := make(chan syscall.WaitStatus, 1)
	p.waiting[pid] = exit
	p.born.Do(func() { close(p.children) })
	p.mu.Unlock()

	return <-exit, nil
}

// criuPath is where CRIU finds the programs that it calls, those of networks.
const criuPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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

// reportEnd tells the supervisor that the program has ended, once, and not in the middle of a dump.
func (p *initProcess) reportEnd() {
	p.mu.Lock()
	due := p.ended && !p.reported && !p.dumping
	p.reported = p.reported || due
	p.mu.Unlock()

	if due {
		p.reply(reply{Ended: true, Status: uint32(p.status)})
	}
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
		case r.Dump != "":
			p.dump(r.Dump)
		case r.Kill:
			p.kill()
		default:
			p.reply(reply{Error: "unknown request"})
		}
	}
}

// dump lets CRIU save the program and leave it stopped.
func (p *initProcess) dump(images string) {
	p.mu.Lock()
	ended := p.ended
	p.dumping = !ended
	p.mu.Unlock()

	if ended {
		p.reply(reply{Error: "the program has ended"})
		return
	}

	status, err := p.runCRIU(dumpArgs(images, p.pid))
	if err == nil && (!status.Exited() || status.ExitStatus() != 0) {
		err = criuFailed("dump", images, dumpLog, status.ExitStatus())
	}

	last := 0
	if err == nil {
		last, err = readLastPID()
	}

	answer := reply{Last: last}
	if err != nil {
		answer = reply{Error: err.Error()}
	}

	p.reply(answer)
	p.mu.Lock()
	p.dumping = false
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
