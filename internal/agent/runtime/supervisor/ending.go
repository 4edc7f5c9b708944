package supervisor

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/job"
)

// result is how a script ended.
type result struct {
	status    syscall.WaitStatus
	signalled bool // it was running when the stop was requested
	forced    bool // some of its processes had to be killed
	saved     bool // by a snapshot
	oomKills  int64
}

// ok reports whether the script succeeded without being stopped.
func (r result) ok() bool { return !r.signalled && r.status.Exited() && r.status.ExitStatus() == 0 }

// exitOf describes a wait status in words and as an exit code, as shells do.
func exitOf(status syscall.WaitStatus) (code int, signal, words string) {
	if status.Signaled() {
		name := unix.SignalName(status.Signal())
		return 128 + int(status.Signal()), name, "killed by " + name
	}

	return status.ExitStatus(), "", fmt.Sprintf("exit code %d", status.ExitStatus())
}

// classify determines why the command ended.
func (s *supervisor) classify(r result) rundir.Ending {
	code, signal, words := exitOf(r.status)
	e := rundir.Ending{Code: code, Signal: signal}
	if code != 0 || r.signalled {
		e.Error = s.gangError()
	}

	switch {
	case r.signalled:
		e.Cause, e.Reason, e.Signalled = s.stop.cause, s.stopReason(r, words), true
	case code == 0:
	case r.oomKills > 0:
		e.Cause, e.Reason = job.CauseHostOOM, s.memoryReason(words)
	default:
		e.Cause, e.Reason = job.CauseUserCode, words+rundir.QuoteLastLine(s.out.lastLine())
		if e.Error != "" {
			e.Reason = words + "; " + e.Error
		}

		s.classifyMemory(&e)
	}

	return e
}

// classifyMemory finds out whether a program that failed had run out of memory: the SDK in it says so, or its output.
func (s *supervisor) classifyMemory(e *rundir.Ending) {
	gpus := len(s.rec.Spec.DeviceNames()) > 0
	report, reported := s.memoryReport()
	refused, short := s.refusal()

	if reported && (report.Device != deviceGPU || !gpus) {
		e.Cause, e.Reason, e.Needed = job.CauseHostOOM, "out of memory: "+report.line(), report.needed()
		return
	}

	if reported {
		e.Cause, e.Reason, e.Needed = job.CauseGPUOOM, "out of GPU memory: "+report.line(), report.needed()
		e.Needed = cmp.Or(e.Needed, refused.needed())

		return
	}

	if line, text, found := s.out.find(gpuMemoryMarks); found && gpus {
		e.Cause, e.Reason, e.Needed = job.CauseGPUOOM, "out of GPU memory: "+line, memoryNeeded(text)
		e.Needed = cmp.Or(e.Needed, refused.needed())

		return
	}

	if line, text, found := s.out.find(hostMemoryMarks); found {
		e.Cause, e.Reason, e.Needed = job.CauseHostOOM, "out of memory: "+line, memoryNeeded(text)
		return
	}

	if line := s.out.lastLine(); strings.HasPrefix(line, "MemoryError") { // as Python ends a traceback
		e.Cause, e.Reason = job.CauseHostOOM, "out of memory: "+line
		return
	}

	if short && !namesError(s.out.lastLine()) {
		e.Cause, e.Reason, e.Needed = job.CauseGPUOOM, "out of GPU memory: "+refused.line(), refused.needed()
	}
}

// stopReason describes how the program reacted to the stop.
func (s *supervisor) stopReason(r result, words string) string {
	switch {
	case r.saved:
		return s.stop.reason + ": saved by a snapshot"
	case s.stop.mode == job.StopKill:
		return s.stop.reason + ": killed at once"
	case r.forced:
		return fmt.Sprintf(
			"%s: still running %v after SIGTERM, killed",
			s.stop.reason,
			job.Duration(s.stop.grace(s.rec.Launch.Grace)),
		)
	}

	return s.stop.reason + ": exited after SIGTERM with " + words
}

func (s *supervisor) memoryReason(words string) string {
	if s.group != nil && s.group.Limit > 0 {
		return fmt.Sprintf("exceeded its memory limit of %v and was killed by the kernel (%s)", s.group.Limit, words)
	}

	return fmt.Sprintf(
		"the machine ran out of memory and the kernel killed the job (%s); the job had no memory limit",
		words,
	)
}

// classifySetup determines why a set-up failed.
func (s *supervisor) classifySetup(r result) rundir.Ending {
	e := s.classify(r)
	if !r.signalled && e.Cause == job.CauseUserCode {
		_, _, words := exitOf(r.status)
		e.Cause, e.Reason = job.CauseSetupFailed, "set-up failed with "+words+rundir.QuoteLastLine(s.out.lastLine())
	}

	return e
}

// oomKills counts the out-of-memory kills that could concern this rank: those in its cgroup or,
// without one, those of the whole machine.
func (s *supervisor) oomKills() int64 {
	if s.group != nil {
		return s.group.OOMKills()
	}

	n, _ := process.ReadCounter("/proc/vmstat", "oom_kill")

	return n
}
