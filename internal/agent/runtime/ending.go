package runtime

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/job"
)

// gpuMemoryMarks are what frameworks print when a GPU's memory runs out.
var gpuMemoryMarks = []string{
	"CUDA out of memory", "HIP out of memory", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError",
	"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
	"RESOURCE_EXHAUSTED: Out of memory",
}

// result is how a script ended.
type result struct {
	status    syscall.WaitStatus
	signalled bool // it ran when it was told to stop
	forced    bool // and something of it had to be killed
	oomKills  int64
}

// ok reports whether it ended well and by itself.
func (r result) ok() bool { return !r.signalled && r.status.Exited() && r.status.ExitStatus() == 0 }

// ending is what the end of a rank is due to.
type ending struct {
	code      int
	signal    string
	cause     job.Cause
	reason    string
	signalled bool
}

// exitOf puts a wait status into words and, as shells do, a number.
func exitOf(status syscall.WaitStatus) (code int, signal, words string) {
	if status.Signaled() {
		name := unix.SignalName(status.Signal())
		return 128 + int(status.Signal()), name, "killed by " + name
	}
	return status.ExitStatus(), "", fmt.Sprintf("exit code %d", status.ExitStatus())
}

// judge says why the command ended as it did.
func (s *supervisor) judge(r result) ending {
	code, signal, words := exitOf(r.status)
	e := ending{code: code, signal: signal}
	switch {
	case r.signalled:
		e.cause, e.reason, e.signalled = s.stop.cause, s.stopReason(r, words), true
	case code == 0:
	case r.oomKills > 0:
		e.cause, e.reason = job.CauseHostOOM, s.memoryReason(words)
	default:
		e.cause, e.reason = job.CauseUserCode, words+quoted(s.out.lastLine())
		if line, found := s.out.find(gpuMemoryMarks); found && len(devices(s.rec.Spec)) > 0 {
			e.cause, e.reason = job.CauseGPUOOM, "the GPU's memory ran out: "+line
		}
	}
	return e
}

// stopReason says how the program answered to the stop.
func (s *supervisor) stopReason(r result, words string) string {
	switch {
	case s.stop.mode == job.StopKill:
		return s.stop.reason + ": killed at once"
	case r.forced:
		return fmt.Sprintf("%s: not gone %v after SIGTERM, so killed", s.stop.reason, job.Duration(s.stop.grace(s.rec.Launch.Grace)))
	}
	return s.stop.reason + ": ended after SIGTERM with " + words
}

func (s *supervisor) memoryReason(words string) string {
	if s.group != nil && s.group.Limit > 0 {
		return fmt.Sprintf("used more than its memory limit of %v and was killed by the kernel (%s)", s.group.Limit, words)
	}
	return fmt.Sprintf("the machine's memory ran out and the kernel killed it (%s); it had no memory limit of its own", words)
}

// judgeSetup says why a set-up that did not succeed ended so.
func (s *supervisor) judgeSetup(r result) ending {
	e := s.judge(r)
	if !r.signalled && e.cause == job.CauseUserCode {
		_, _, words := exitOf(r.status)
		e.cause, e.reason = job.CauseSetupFailed, "set-up failed with "+words+quoted(s.out.lastLine())
	}
	return e
}

// quoted is the last line of the output as the end of a reason.
func quoted(line string) string {
	if line == "" {
		return ""
	}
	return fmt.Sprintf("; its last line: %s", line)
}

// oomKills counts the kernel's kills for memory that could concern this rank:
// those in its cgroup or, without one, those of the whole machine.
func (s *supervisor) oomKills() int64 {
	if s.group != nil {
		return s.group.OOMKills()
	}
	n, _ := process.ReadCounter("/proc/vmstat", "oom_kill")
	return n
}
