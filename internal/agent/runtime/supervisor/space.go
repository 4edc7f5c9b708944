package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/snapshot"
	"trainyard/internal/job"
)

// Names under which a program that is saved by snapshots sees its directories, below snapshot.Root.
const (
	runBind        = "run"
	checkpointBind = "checkpoint"
)

// binds are the directories of the machine that the program sees in the same place in every run.
func (s *supervisor) binds() []snapshot.Bind {
	return []snapshot.Bind{{From: s.dir, Name: runBind}, {From: s.checkpoints(), Name: checkpointBind}}
}

// kept are the files of the run directory that are saved with the program.
func (s *supervisor) kept() snapshot.Kept {
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

	return snapshot.Unpack(image, s.kept())
}

// notRestored is the ending of a run that cannot continue its snapshot.
func (s *supervisor) notRestored(err error) rundir.Ending {
	from := s.rec.Launch.Restore.Checkpoint

	return rundir.Ending{
		Cause: job.CauseRestoreFailed, Reason: fmt.Sprintf("cannot continue snapshot %s: %v", from, err),
		Restore: &job.RestoreFailure{Checkpoint: from},
	}
}

// enterSpace starts the program in namespaces of its own, or continues it there from its snapshot.
func (s *supervisor) enterSpace(p *script, program snapshot.Program, attr syscall.SysProcAttr, out [2]*os.File) error {
	program.Binds, program.CRIU = s.binds(), s.rec.CRIU
	program.Env = visible(s.rec.Env, program.Binds)
	program.Dir = filepath.Join(snapshot.Root, runBind, rundir.WorkDir)

	setting := snapshot.Setting{
		Exe: "/proc/self/exe", Start: s.kids.start, Attr: attr, Stdout: out[0], Stderr: out[1],
		Env:  []string{rundir.RankDirVar + "=" + s.dir}, // so that it is found if this process is killed
		CUDA: snapshot.CUDA{Python: s.rec.Python, Command: s.kids.command}, GPU: len(s.rec.Spec.DeviceNames()) > 0,
	}

	var err error
	if image := s.restoredFrom(); image == "" {
		p.space, err = snapshot.Start(setting, program)
	} else {
		s.out.remark("continuing the program from snapshot %s", s.rec.Launch.Restore.Checkpoint)
		p.space, err = snapshot.Restore(context.Background(), setting, program, image)
	}

	if err != nil {
		return err
	}

	s.spaceInit = p.space.PID
	p.pid, p.exit = p.space.PID, p.space.Ended()

	return nil
}

// visible returns an environment in which directories have the names under which the program sees them.
func visible(env []string, binds []snapshot.Bind) []string {
	out := make([]string, len(env))
	for i, text := range env {
		name, value, _ := strings.Cut(text, "=")
		for _, b := range binds {
			if rest, ok := strings.CutPrefix(value, b.From); ok && (rest == "" || rest[0] == '/') {
				value = filepath.Join(snapshot.Root, b.Name) + rest
			}
		}

		out[i] = name + "=" + value
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

	for _, d := range s.rec.Launch.Data {
		meta.Fixed = append(meta.Fixed, d.Path)
	}

	image := filepath.Join(s.checkpoints(), "snapshot-"+strconv.Itoa(s.rec.Epoch))
	done := make(chan error, 1)
	go func() { done <- p.space.Dump(context.Background(), image, s.kept(), meta) }()

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
