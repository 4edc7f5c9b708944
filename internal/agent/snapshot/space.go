package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
)

// InitCommand is the hidden subcommand of the trainyard binary that runs Init.
const InitCommand = "init-space"

// Root is the directory below which a program sees the directories of its run, the same for every run on every machine.
const Root = "/run/trainyard/job"

// Bind shows a directory of the machine to the program below Root.
type Bind struct {
	From string `json:"from"`
	Name string `json:"name"` // below Root
}

// Program is a program that can be dumped.
type Program struct {
	Path  string   `json:"path"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`
	Dir   string   `json:"dir"` // as the program sees it
	Binds []Bind   `json:"binds"`
	CRIU  string   `json:"criu"` // path of CRIU
}

// StartProcess starts a process like syscall.ForkExec, and returns its pid and a channel with its end.
type StartProcess func(path string, args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error)

// Setting says where and how a space is made.
type Setting struct {
	Exe    string // the trainyard binary
	Start  StartProcess
	Attr   syscall.SysProcAttr // of its first process: the cgroup; namespaces and session are added
	Env    []string            // of its first process, not of the program
	Stdout *os.File            // into which the program writes; pipes
	Stderr *os.File
	CUDA   CUDA
	GPU    bool // the program may use GPUs
}

// Space is a pid namespace and a mount namespace in which a program runs.
type Space struct {
	// PID is that of Init, seen from outside. All processes of the program descend from it, and the kernel ends them
	// with it.
	PID int

	cuda    CUDA
	gpu     bool
	criu    string
	pipes   [2]string
	conn    *os.File
	ended   chan syscall.WaitStatus
	replies chan reply

	mu   sync.Mutex // one request at a time
	root int        // pid of the program, in the namespace
}

// request is what a space is asked to do. The first one has the program.
type request struct {
	Program *Program `json:"program,omitempty"`
	Image   string   `json:"image,omitempty"` // directory from which the program is restored, not started
	Meta    *Meta    `json:"meta,omitempty"`  // of the image
	Dump    string   `json:"dump,omitempty"`  // directory for CRIU's files
	Kill    bool     `json:"kill,omitempty"`
}

// reply is the answer to a request, or the end of the program.
type reply struct {
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid,omitempty"`  // of the program, in the namespace
	Last  int    `json:"last,omitempty"` // newest pid of the namespace
	// Ended says that the program has ended, with Status.
	Ended  bool   `json:"ended,omitempty"`
	Status uint32 `json:"status,omitempty"`
}

// errSpaceGone says that Init has ended.
var errSpaceGone = errors.New("the program and its namespaces are gone")

// Start starts a program in a new space.
func Start(s Setting, p Program) (*Space, error) {
	space, err := open(s, p)
	if err != nil {
		return nil, err
	}

	if _, err := space.ask(request{Program: &p}); err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}

	return space, nil
}

// open makes a space in which nothing runs yet.
func open(s Setting, p Program) (*Space, error) {
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

	space := &Space{
		cuda: s.CUDA, gpu: s.GPU, criu: p.CRIU, conn: conn,
		ended: make(chan syscall.WaitStatus, 1), replies: make(chan reply, 1),
	}

	for i, f := range []*os.File{s.Stdout, s.Stderr} {
		space.pipes[i], err = os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))))
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	defer func() { _ = null.Close() }()

	sys := s.Attr
	sys.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNS
	sys.Setsid = true
	attr := &syscall.ProcAttr{
		Dir: "/", Env: append([]string{"GOMAXPROCS=1"}, s.Env...), Sys: &sys,
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd(), s.Stdout.Fd(), s.Stderr.Fd()},
	}

	pid, exit, err := s.Start(s.Exe, []string{"trainyard", InitCommand}, attr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the namespaces of the program: %w", err), conn.Close())
	}

	space.PID = pid
	go space.receive(exit)

	return space, nil
}

// receive passes on what Init says until it has ended.
func (s *Space) receive(exit <-chan syscall.WaitStatus) {
	reported := false
	for dec := json.NewDecoder(s.conn); ; {
		var r reply
		if err := dec.Decode(&r); err != nil {
			break // Init has ended
		}

		if r.Ended {
			reported = true
			s.ended <- syscall.WaitStatus(r.Status)
			continue
		}

		s.replies <- r
	}

	close(s.replies)

	if status := <-exit; !reported {
		s.ended <- status
	}
}

// Ended returns a channel with the end of the program. Processes that it left behind may still run.
func (s *Space) Ended() <-chan syscall.WaitStatus { return s.ended }

// ask sends a request and waits for the answer.
func (s *Space) ask(r request) (reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := json.NewEncoder(s.conn).Encode(r); err != nil {
		return reply{}, errors.Join(errSpaceGone, err)
	}

	got, ok := <-s.replies
	switch {
	case !ok:
		return reply{}, errSpaceGone
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

// users returns the processes of the program that may use CUDA.
func (s *Space) users() ([]int, error) {
	if !s.gpu {
		return nil, nil
	}

	procs, err := s.Processes()
	pids := make([]int, len(procs))
	for i, p := range procs {
		pids[i] = p.PID
	}

	return pids, err
}

// Kept are the files that belong to a program and are saved with it.
type Kept struct {
	Dir   string   // of the machine
	Names []string // files and directories in it; those that do not exist are left out
}

// Dump saves the program with its files in a directory, which must not exist, and ends it. On failure the program goes
// on, and nothing is left of the directory. Meta has what the caller knows of the machine.
func (s *Space) Dump(ctx context.Context, dir string, kept Kept, m Meta) (err error) {
	// A name that begins with a dot is not taken for a checkpoint.
	partial := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".partial")
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("dump the program: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(partial, ImagesDir), 0o700); err != nil {
		return fmt.Errorf("dump the program: %w", err)
	}

	suspended, err := s.freeze(ctx, partial, &m)
	if err == nil {
		err = s.complete(partial, dir, kept, m)
	}

	if err != nil {
		resume := context.WithoutCancel(ctx)
		return errors.Join(fmt.Errorf("dump the program: %w", err), s.thaw(resume, suspended), os.RemoveAll(partial))
	}

	if _, err := s.ask(request{Kill: true}); err != nil && !errors.Is(err, errSpaceGone) {
		return fmt.Errorf("end the dumped program: %w", err)
	}

	return nil
}

// freeze moves the program's GPU memory to host memory and writes its processes into the directory. They are stopped
// then. It returns the processes with GPU memory, also if it fails.
func (s *Space) freeze(ctx context.Context, partial string, m *Meta) (suspended []int, err error) {
	pids, err := s.users()
	if err != nil {
		return nil, err
	}

	if len(pids) > 0 {
		suspended, err = s.cuda.Suspend(ctx, pids)
		if err != nil {
			return nil, err
		}
	}

	for _, pid := range suspended {
		inside, err := insidePID(pid)
		if err != nil {
			return suspended, err
		}

		m.CUDA = append(m.CUDA, inside)
	}

	got, err := s.ask(request{Dump: filepath.Join(partial, ImagesDir)})
	if err != nil {
		return suspended, err
	}

	m.LastPID, m.Root, m.Pipes, m.Version = got.Last, s.root, s.pipes, version
	m.CRIU, err = criuVersion(ctx, s.cuda.Command, s.criu)

	return suspended, err
}

// thaw lets a program go on whose dump has failed.
func (s *Space) thaw(ctx context.Context, suspended []int) error {
	procs, err := s.Processes()
	errs := []error{err}
	for _, p := range procs {
		errs = append(errs, p.Signal(unix.SIGCONT))
	}

	return errors.Join(append(errs, s.cuda.Resume(ctx, suspended))...)
}

// complete adds the files and the description to a dump and gives it its name.
func (s *Space) complete(partial, dir string, kept Kept, m Meta) error {
	if err := pack(filepath.Join(partial, filesName), kept); err != nil {
		return err
	}
	if err := writeMeta(partial, m); err != nil {
		return err
	}

	return os.Rename(partial, dir)
}

// Unpack puts the files of a snapshot back before Restore. They replace what is there.
func Unpack(image string, kept Kept) error { return unpack(filepath.Join(image, filesName), kept) }

// Restore continues the program of a snapshot in a new space. Its files have been put back.
func Restore(ctx context.Context, s Setting, p Program, image string) (*Space, error) {
	m, err := ReadMeta(image)
	if err != nil {
		return nil, err
	}

	for _, dir := range m.Fixed {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("the program uses %s, which is not on this machine: %w", dir, err)
		}
	}

	space, err := open(s, p)
	if err != nil {
		return nil, err
	}

	if _, err = space.ask(request{Program: &p, Image: filepath.Join(image, ImagesDir), Meta: &m}); err == nil {
		err = space.resumeGPU(ctx, m)
	}

	if err != nil {
		kill := unix.Kill(space.PID, unix.SIGKILL)
		return nil, errors.Join(fmt.Errorf("restore the program: %w", err), kill, space.Close())
	}

	return space, nil
}

// resumeGPU gives the restored processes their GPU memory back.
func (s *Space) resumeGPU(ctx context.Context, m Meta) error {
	if len(m.CUDA) == 0 {
		return nil
	}

	procs, err := s.Processes()
	if err != nil {
		return err
	}

	var pids []int
	for _, p := range procs {
		if inside, err := insidePID(p.PID); err == nil && slices.Contains(m.CUDA, inside) {
			pids = append(pids, p.PID)
		}
	}

	if len(pids) != len(m.CUDA) {
		return fmt.Errorf("%d of %d processes that use the GPU are there", len(pids), len(m.CUDA))
	}

	return s.cuda.Resume(ctx, pids)
}

// insidePID returns the pid that a process has in its own pid namespace.
func insidePID(pid int) (int, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(data)) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			words := strings.Fields(list)
			return strconv.Atoi(words[len(words)-1])
		}
	}

	return 0, fmt.Errorf("process %d: the kernel lists no pid namespaces: %w", pid, io.ErrUnexpectedEOF)
}
