package supervisor

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/job"
)

// RunSeries is Run for several ranks, one after the other: to start a process takes longer than many a short program
// runs. The names of the others come from agent, a socket. After each rank, if it may have another one, the process
// writes an empty line there. It exits when the agent closes the socket, and after a rank that was not an ordinary one.
func RunSeries(ctx context.Context, dir string, agent io.ReadWriter, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	names := bufio.NewReader(agent)

	kids, err := newChildren(ctx)
	for err == nil {
		var spent bool

		spent, err = supervise(ctx, dir, kids, log)
		if err != nil || !spent {
			break
		}

		if err = os.Chdir("/"); err != nil {
			break
		}
		if _, gone := io.WriteString(agent, "\n"); gone != nil {
			break
		}

		name, gone := names.ReadString('\n')
		if gone != nil {
			break
		}

		dir = filepath.Join(filepath.Dir(dir), strings.TrimSuffix(name, "\n"))
		err = moveTo(dir)
	}

	if err != nil {
		log.Error("supervisor failed", "error", err)
		return 1
	}

	return 0
}

// moveTo makes a run directory the working directory of this process, and its log the one that the process writes.
func moveTo(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}

	log, err := os.OpenFile(rundir.SupervisorLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	defer func() { _ = log.Close() }()

	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(log.Fd()), fd, 0); err != nil {
			return err
		}
	}

	return nil
}

// spent reports whether the rank has left nothing in this process that another rank could meet. That is so of one that
// ended by itself, without an error, and had no visitors: they may still be on their way out.
func (s *supervisor) spent() bool {
	return s.stop.mode == job.StopNone && !s.troubled.Load() && s.guests.none() && s.kids.reap()
}
