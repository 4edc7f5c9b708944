package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/sandbox"
)

// Root is the directory below which a program sees the directories of its run, the same for every run on every machine.
const Root = sandbox.Root

// firstPID is below the pids of every program that can be dumped. What restores a program has smaller ones, so that
// they never meet. It is where the kernel begins again after the largest pid.
const firstPID = 300

// Program is a program that can be dumped.
type Program struct {
	sandbox.Program
	CRIU string // path of CRIU
}

// Setting says where and how a space is made.
type Setting struct {
	sandbox.Setting
	CUDA CUDA
	GPU  bool // the program may use GPUs
	// Drafts is a directory that only the agent's user can write to and in which dumps are written, seen by the program
	// under the same path. A dump is written beside its place if it is left out.
	Drafts string
}

// Space is a sandbox whose program can be dumped.
type Space struct {
	*sandbox.Space

	view   sandbox.View
	cuda   CUDA
	gpu    bool
	criu   string
	pipes  [2]string
	drafts string
}

// Start starts a program in a new space.
func Start(s Setting, p Program) (*Space, error) {
	space, err := describe(s, p)
	if err != nil {
		return nil, err
	}

	p.FirstPID = firstPID

	space.Space, err = sandbox.Start(s.Setting, p.Program)
	if err != nil {
		return nil, err
	}

	return space, nil
}

// describe returns a space that is not made yet.
func describe(s Setting, p Program) (*Space, error) {
	space := &Space{cuda: s.CUDA, gpu: s.GPU, criu: p.CRIU, view: p.View, drafts: s.Drafts}
	for i, f := range []*os.File{s.Stdout, s.Stderr} {
		var err error
		space.pipes[i], err = os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))))
		if err != nil {
			return nil, err
		}
	}

	return space, nil
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
	partial := filepath.Join(cmp.Or(s.drafts, filepath.Dir(dir)), "."+filepath.Base(dir)+".partial")
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

	if err := s.Kill(); err != nil {
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

	images := filepath.Join(partial, ImagesDir)
	root := s.Root()

	got, err := s.Run(criuCommand(s.criu, dumpArgs(s.view.Inside(images), root)))
	if err != nil {
		return suspended, err
	}
	if got.Code != 0 {
		return suspended, criuFailed("dump", images, dumpLog, got.Code)
	}

	m.LastPID, m.Root, m.Pipes, m.Version = got.LastPID, root, s.pipes, version
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

	err := os.Rename(partial, dir)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}

	// A checkpoint directory on another file system: the program is stopped, so nobody can interfere.
	beside := filepath.Join(filepath.Dir(dir), filepath.Base(partial))
	if err := errors.Join(os.RemoveAll(beside), os.CopyFS(beside, os.DirFS(partial))); err != nil {
		return errors.Join(err, os.RemoveAll(beside))
	}

	return errors.Join(os.Rename(beside, dir), os.RemoveAll(partial))
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

	space, err := describe(s, p)
	if err != nil {
		return nil, err
	}

	images := filepath.Join(image, ImagesDir)
	args := restoreArgs(p.View.Inside(images), m.Pipes, [2]int{sandbox.StdoutFD, sandbox.StderrFD})
	p.FirstPID = firstPID

	var got sandbox.Result
	space.Space, got, err = sandbox.Continue(s.Setting, p.Program, sandbox.Continuation{
		Command: criuCommand(p.CRIU, args), PID: m.Root, LastPID: m.LastPID,
	})
	if err == nil && got.Code != 0 {
		err = criuFailed("restore", images, restoreLog, got.Code)
	}

	if err != nil {
		return nil, fmt.Errorf("restore the program: %w", err)
	}

	if err := space.resumeGPU(ctx, m); err != nil {
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
