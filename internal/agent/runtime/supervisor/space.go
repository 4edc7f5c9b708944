package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/visitor"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/job"
)

// kept are the files of the run directory that are saved with the program.
func (s *supervisor) kept() snapshot.Kept {
	if s.rec.User != nil {
		return snapshot.Kept{
			Dir: s.dir, Names: []string{rundir.WorkDir, rundir.ReportDir, rundir.HomeDir, rundir.TmpDir},
		}
	}

	return snapshot.Kept{Dir: s.dir, Names: []string{rundir.WorkDir, rundir.ProgressFile, rundir.MetricsFile}}
}

// restoredFrom returns the snapshot that the run continues, "" if it starts its command.
func (s *supervisor) restoredFrom() string {
	r := s.rec.Launch.Restore
	if r == nil || !r.Snapshot {
		return ""
	}

	return filepath.Join(s.checkpoints(), filepath.FromSlash(r.Name))
}

// unpackSnapshot puts the files of a snapshot into the run directory.
func (s *supervisor) unpackSnapshot() error {
	image := s.restoredFrom()
	if image == "" {
		return nil
	}

	kept := s.kept()
	if s.rec.User == nil {
		return snapshot.Unpack(image, kept)
	}

	// CRIU does with the rights of the agent what an image says, so it must be one that only an agent could write.
	if err := sandbox.CheckOwn(image); err != nil {
		return err
	}
	if err := snapshot.Unpack(image, kept); err != nil {
		return err
	}

	for _, name := range kept.Names {
		err := sandbox.Own(filepath.Join(s.dir, name), s.rec.User, nil)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}

// notRestored is the ending of a run that cannot continue its snapshot.
func (s *supervisor) notRestored(err error) rundir.Ending {
	from := s.rec.Launch.Restore.Checkpoint

	return rundir.Ending{
		Cause: job.CauseRestoreFailed, Reason: fmt.Sprintf("cannot continue snapshot %s: %v", from, err),
		Restore: &job.RestoreFailure{Checkpoint: from},
	}
}

// saveable reports whether snapshots can be taken of the script that runs in a state of the rank.
func (s *supervisor) saveable(during job.RunState) bool {
	return s.rec.Launch.Snapshot && during == job.RunRunning
}

// enterSpace starts a script in namespaces of its own, or continues the program there from its snapshot.
func (s *supervisor) enterSpace(
	p *script, program sandbox.Program, attr syscall.SysProcAttr, out [2]*os.File, during job.RunState,
) error {
	view, err := s.view(during)
	if err != nil {
		return err
	}

	program.View, program.User, program.Env = view, s.rec.User, visible(s.rec.Env, view)
	program.Dir = view.Inside(filepath.Join(s.dir, rundir.WorkDir))

	setting := sandbox.Setting{
		Exe: "/proc/self/exe", Start: s.kids.start, Attr: attr, Stdout: out[0], Stderr: out[1],
		Env: []string{rundir.RankDirVar + "=" + s.dir}, // so that it is found if this process is killed
	}

	if user := s.rec.User; user != nil {
		if s.group == nil || !s.group.V2 {
			program.MaxProcesses = limitProcesses * s.rec.MaxPIDs
		}

		for _, pipe := range out { // a program may open /dev/stdout, which its user must be allowed to
			if err := pipe.Chown(user.UID, user.GID); err != nil {
				return fmt.Errorf("give the output of the program to %s: %w", user, err)
			}
		}
	}

	if s.container != nil {
		setting.Join, err = s.container.Namespaces()
		if err != nil {
			return err
		}

		defer func() { visitor.CloseAll(setting.Join) }()

		program.Container = &s.container.Container
	}

	if s.saveable(during) {
		err = s.enterSaveable(p, setting, program)
	} else {
		p.space, err = sandbox.Start(setting, program)
	}

	if err != nil {
		return err
	}

	s.spaceInit, p.program = p.space.PID, program
	p.pid, p.exit = p.space.PID, p.space.Ended()

	return nil
}

// enterSaveable is enterSpace for a program of which snapshots can be taken.
func (s *supervisor) enterSaveable(p *script, inner sandbox.Setting, program sandbox.Program) (err error) {
	setting := snapshot.Setting{
		Setting: inner, GPU: len(s.rec.Spec.DeviceNames()) > 0,
		CUDA: snapshot.CUDA{Python: s.rec.Python, Command: s.kids.command},
	}

	if s.rec.User != nil {
		setting.Drafts = filepath.Join(s.dir, rundir.DraftsDir)
	}

	saved := snapshot.Program{Program: program, CRIU: s.rec.CRIU}
	if image := s.restoredFrom(); image == "" {
		p.saver, err = snapshot.Start(setting, saved)
	} else {
		s.out.remark("continuing the program from snapshot %s", s.rec.Launch.Restore.Checkpoint)
		p.saver, err = snapshot.Restore(context.Background(), setting, saved, image)
	}

	if err != nil {
		return err
	}

	p.space = p.saver.Space

	return nil
}

// limitProcesses is how many times what one run may have all runs of a user may have together on a machine without
// v2 cgroups. A v1 cgroup is joined only after the start, because that can take the kernel long; until then, and
// where there is none, this bounds how fast a program can fork.
const limitProcesses = 4

// visible returns an environment in which directories have the names under which the program sees them.
func visible(env []string, view sandbox.View) []string {
	out := make([]string, len(env))
	for i, text := range env {
		name, value, _ := strings.Cut(text, "=")
		out[i] = name + "=" + view.Inside(value)
	}

	return out
}

// dump saves the program in the checkpoint directory, which ends it, and reports whether it did. If it cannot be saved
// the program goes on. An order to kill, or the end of the grace period, ends it in the middle.
func (s *supervisor) dump(p *script, grace time.Duration) bool {
	s.out.remark("%s: saving the program by a snapshot", s.stop.reason)
	s.state.State, s.state.Reason = job.RunStopping, s.stop.reason
	s.record()

	meta := snapshot.Meta{Taken: s.clk.Now()}
	if dir := s.rec.Setup.OutputDir(); dir != "" {
		meta.Fixed = append(meta.Fixed, dir)
	}

	if dir := s.env.outputDir(); dir != "" {
		meta.Fixed = append(meta.Fixed, dir)
	}

	for _, d := range s.rec.Launch.Data {
		meta.Fixed = append(meta.Fixed, d.Path)
	}

	image := filepath.Join(s.checkpoints(), "snapshot-"+strconv.Itoa(s.rec.Epoch))
	done := make(chan error, 1)
	go func() { done <- p.saver.Dump(context.Background(), image, s.kept(), meta) }()

	for deadline := s.clk.Now().Add(grace); ; {
		select {
		case err := <-done:
			if err != nil {
				s.logError(err)
				s.out.remark("the program could not be saved by a snapshot: %v", err)
			}

			return err == nil
		default:
		}

		now := s.clk.Now()
		if s.stop.mode == job.StopKill || now.After(deadline) || !s.killBy.IsZero() && now.After(s.killBy) {
			if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
				s.logError(err)
			}
		}

		s.await(50 * time.Millisecond)
	}
}
