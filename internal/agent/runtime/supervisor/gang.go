package supervisor

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/job"
)

// readyReason is shown of a rank that waits for the others.
const readyReason = "ready, waiting for the other ranks"

// awaitGang waits until all ranks of the run are ready, and gives the program the addresses at which they reach each
// other. It reports false if the run is to stop before.
func (s *supervisor) awaitGang() bool {
	if !s.rec.Launch.Barrier {
		s.joinGang(rundir.GangStart{GangStart: job.GangStart{Nodes: s.rec.Launch.Nodes}})
		return true
	}

	s.state.Ready, s.state.State, s.state.Reason, s.state.PID, s.state.Begun = true, job.RunPreparing, readyReason, 0, 0
	s.record()

	for {
		start, ok, err := rundir.ReadStart(s.dir)
		if err != nil {
			s.logError(err)
		}

		if s.stop.mode != job.StopNone {
			return false
		}

		if ok && err == nil {
			s.state.Ready, s.state.Reason = false, ""
			s.joinGang(start)

			return true
		}

		s.accept(<-s.orders)
	}
}

// joinGang gives the program the addresses of the other ranks.
func (s *supervisor) joinGang(start rundir.GangStart) {
	env := map[string]string{}
	for _, entry := range s.rec.Env {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}

	maps.Copy(env, s.rec.DistributedEnv(start.Nodes))

	for name, value := range rundir.InterfaceEnv(start.Interface) {
		if _, set := env[name]; !set { // the job or the machine may know better
			env[name] = value
		}
	}

	s.rec.Env = s.rec.Env[:0]
	for _, name := range slices.Sorted(maps.Keys(env)) {
		s.rec.Env = append(s.rec.Env, name+"="+env[name])
	}

	if err := s.rec.WriteHostFile(s.dir, start.Nodes); err != nil {
		s.logError(err)
		s.out.remark("the host file could not be written: %v", err)
	}

	if start.Remark != "" {
		s.out.remark("%s", start.Remark)
	}
}

// requestedStart returns the order to start the program, if there is one.
func (s *supervisor) requestedStart() (order, bool) {
	_, ok, err := rundir.ReadStart(s.dir)
	if err != nil {
		s.logError(err)
	}

	return order{start: true}, ok && err == nil && s.rec.Launch.Barrier
}

// tracebackMark is how Python begins to say why a program fails.
const tracebackMark = "Traceback (most recent call last):"

// firstError returns the last line of the first traceback in the output, clipped for a reason; "" if there is none. Of
// several the first says what failed: those that follow are of who started the program, as torchrun.
func firstError(output []byte) string {
	before, rest, found := bytes.Cut(output, []byte(tracebackMark))
	if !found {
		return ""
	}

	// Who passes on the output of several processes may say before each line of which one it is.
	label := before[bytes.LastIndexByte(before, '\n')+1:]

	_, rest, _ = bytes.Cut(rest, []byte("\n"))
	for line := range bytes.Lines(rest) {
		text, ours := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), label)
		if ours && len(text) > 0 && text[0] != ' ' && text[0] != '\t' {
			return rundir.Clip(string(text))
		}
	}

	return ""
}

// gangError returns what the output of a rank of a run on several nodes says of its failure.
func (s *supervisor) gangError() string {
	if len(s.rec.Launch.Nodes) < 2 {
		return ""
	}

	s.out.mu.Lock()
	defer s.out.mu.Unlock()

	text := firstError(s.out.tail)
	for _, end := range []string{"SignalException", "KeyboardInterrupt", "SystemExit"} {
		if strings.Contains(text, end) {
			return "" // that is how it was stopped
		}
	}

	return text
}
