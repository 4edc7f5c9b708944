package sim

import (
	"fmt"
	"strings"

	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// write adds decisions to the log, one a line: when, who, what became of it, why.
func (s *simulation) write(events []yardmaster.Event) {
	for i := range events {
		e := &events[i]
		who := s.subject(e)
		if who == "" {
			continue
		}

		s.logLine = fmt.Appendf(
			s.logLine[:0],
			"%14s  %-14s %-22s (%s)\n",
			job.Duration(e.At.Sub(s.epoch)),
			who,
			turn(e),
			e.Reason,
		)

		if _, err := s.cfg.Log.Write(s.logLine); err != nil && s.failed == nil {
			s.failed = fmt.Errorf("write the log of decisions: %w", err)
		}
	}
}

// subject names what an event is about: a job by its name, a node, the plan. It
// is "" for what the log leaves out: people and tokens, of which a simulation has
// its own, checkpoints, and the end of a run, which its job's next line tells.
func (s *simulation) subject(e *yardmaster.Event) string {
	kind, what, _ := strings.Cut(e.Kind, ".")
	switch {
	case kind == "user" || kind == "token" || kind == "checkpoint" || kind == "run" && what == "ended":
		return ""
	case kind == "lease":
		return "lease " + string(e.Lease)
	case e.Job != "":
		if l, alive := s.jobs[e.Job]; alive {
			return label(l)
		}

		return string(e.Job)
	case e.Node != "":
		return "node " + string(e.Node)
	}

	return kind
}

// turn says what an event changed: the states before and after, or else what happened.
func turn(e *yardmaster.Event) string {
	kind, what, _ := strings.Cut(e.Kind, ".")
	switch {
	case e.From != "":
		return e.From + " -> " + e.To
	case kind == "job" && (what == "held" || what == "slow"):
		return what
	case kind == "job" || kind == "lease" && what == e.To:
		return "-> " + e.To
	}

	return what
}
