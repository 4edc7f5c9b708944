package job

import "fmt"

// Verdict returns why a run ended, and the rank that decided it. If the yard ordered it to stop
// while the program was still running, that is the cause; otherwise the first failure is.
func (r *Run) Verdict() (Cause, *Rank) {
	first, signalled, failed := r.failedFirst(), false, CauseNone
	for i := range r.Ranks {
		k := &r.Ranks[i]
		signalled = signalled || k.Signalled

		if !k.Signalled && k.Cause != CauseNone && (failed == CauseNone || k.Cause == r.StopFor) {
			failed = k.Cause
		}
	}

	switch {
	case first != nil && first.Signalled && (r.StopFor == CauseNone || r.StopFor == failed):
		return failed, first // it was stopped because of those who lost it
	case first != nil && !first.Signalled && (r.StopFor == CauseNone || r.StopFor == failed):
		return first.Cause, first
	case r.StopFor != CauseNone && signalled:
		return r.StopFor, r.signalledRank()
	case first != nil && !first.Signalled:
		return first.Cause, first
	case r.StopFor != CauseNone && !r.allStarted():
		return r.StopFor, &r.Ranks[0] // stopped before it could start
	case signalled: // its agent stopped it without an order: no contact with the server, or a shutdown
		k := r.signalledRank()
		return k.StopCause(), k
	}

	return CauseNone, &r.Ranks[0]
}

// signalledRank returns a rank that was stopped, if possible one with the cause for which the
// run was stopped.
func (r *Run) signalledRank() *Rank {
	var found *Rank
	for i := range r.Ranks {
		if k := &r.Ranks[i]; k.Signalled && (found == nil || k.Cause == r.StopFor && found.Cause != r.StopFor) {
			found = k
		}
	}

	return found
}

// StopCause is why an agent stopped a rank without an order of the yard.
func (k *Rank) StopCause() Cause {
	if k.Cause == CauseNone {
		return CausePreempted
	}

	return k.Cause
}

func (r *Run) allStarted() bool {
	for i := range r.Ranks {
		if r.Ranks[i].Started.IsZero() {
			return false
		}
	}

	return true
}

// Describe says in a sentence why a run ended; k is the rank that decided it.
func (k *Rank) Describe(c Cause) string {
	if k.Reason != "" && k.Cause == c { // as its agent reported it
		return k.Reason
	}

	h, _ := HandlingOf(c)
	switch {
	case c == CauseUserCode && k.Signal != "":
		return fmt.Sprintf("the program was killed by %s on %s", k.Signal, k.Node)
	case c == CauseUserCode:
		return fmt.Sprintf("the program exited with code %d on %s", k.ExitCode, k.Node)
	case c == CauseNodeLost || c == CauseLaunchFailed:
		return h.Meaning + ": " + string(k.Node)
	}

	return h.Meaning
}
