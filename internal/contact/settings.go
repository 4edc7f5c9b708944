package contact

import (
	"math"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// Settings are the times that an operator can set, and the drift that they must tolerate.
type Settings struct {
	ReportEvery  time.Duration // between two reports of an agent
	SuspectAfter time.Duration // silence after which nothing new is placed on a node
	LostAfter    time.Duration // silence after which the runs of a node are declared lost
	Lease        time.Duration // how long an agent's runs continue without contact
	Grace        time.Duration // between SIGTERM and SIGKILL when the lease has expired
	Drift        float64
}

// NewSettings returns settings in which what is 0 is derived from lostAfter: a lease of four
// fifths of it and a grace period of a tenth.
func NewSettings(reportEvery, suspectAfter, lostAfter, lease, grace time.Duration) Settings {
	if lease == 0 {
		lease = lostAfter * 4 / 5
	}

	if grace == 0 {
		grace = lostAfter / 10
	}

	return Settings{
		ReportEvery: reportEvery, SuspectAfter: suspectAfter, LostAfter: lostAfter,
		Lease: lease, Grace: grace, Drift: Drift,
	}
}

// Grant returns what an answer to a report grants.
func (s Settings) Grant() Grant { return Grant{Lease: s.Lease, Grace: s.Grace} }

// Patience returns how long the server waits for a silent node.
func (s Settings) Patience() Patience {
	return Patience{SuspectAfter: s.SuspectAfter, LostAfter: s.LostAfter}
}

// StopTime is how long a supervisor may take, beyond the grace period, to notice that a
// lease has expired and to kill what does not exit.
func (s Settings) StopTime() time.Duration { return s.LostAfter / 20 }

// longest returns how long the server's clock may take for what a node's clock measures as d.
func (s Settings) longest(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(float64(d) * (1 + s.Drift)))
}

// separate reports whether a run has ended before the server declares it lost.
func (s Settings) separate() bool {
	return s.longest(s.Lease+s.Grace+s.StopTime()) <= s.LostAfter
}

// Conflicts lists why settings are refused: a job could run twice at the same time, or nodes in
// good health would become suspect or stop their runs. Each fault names the setting to change
// and the one it conflicts with. A setting that is 0 is not known and conflicts with nothing.
func (s Settings) Conflicts() fault.List {
	var faults fault.List
	refuse := func(field, format string, args ...any) {
		faults = append(faults, fault.New(fault.Invalid, "bad_setting", format, args...).WithField(field))
	}

	if s.LostAfter == 0 {
		return nil
	}

	if s.LostAfter <= s.SuspectAfter {
		refuse("lost-after", "must be longer than suspect-after (%s)", job.Duration(s.SuspectAfter))
	}

	if s.SuspectAfter > 0 && s.SuspectAfter <= s.ReportEvery {
		refuse("suspect-after", "must be longer than report-every (%s), or every node is suspect between two reports",
			job.Duration(s.ReportEvery))
	}

	if s.ReportEvery > s.Lease/2 {
		refuse("report-every", "must be at most half of contact-lease (%s), or a lost report stops the jobs of a node",
			job.Duration(s.Lease))
	}

	if !s.separate() {
		refuse("contact-lease",
			"must be at most %s with contact-grace (%s) and lost-after (%s), or a job could be restarted elsewhere "+
				"while it still runs; shorten contact-lease or contact-grace, or raise lost-after",
			job.Duration(max(s.room(), 0)), job.Duration(s.Grace), job.Duration(s.LostAfter))
	}

	return faults
}

// Check refuses settings that conflict.
func (s Settings) Check() error { return s.Conflicts().OrNil() }

// room returns how long the lease may be with the other settings, in whole milliseconds.
func (s Settings) room() time.Duration {
	all := time.Duration(math.Floor(float64(s.LostAfter) / (1 + s.Drift)))
	return (all - s.StopTime() - s.Grace).Truncate(time.Millisecond)
}

// Patience is how long the server waits for a silent node.
type Patience struct {
	SuspectAfter time.Duration // until nothing new is placed there; 0 if silence is ignored
	LostAfter    time.Duration // until its runs are declared lost
}

// Ignored reports whether silence means nothing, as in simulations.
func (p Patience) Ignored() bool { return p.SuspectAfter == 0 }

// Suspects reports whether a node is suspect after this silence.
func (p Patience) Suspects(silent time.Duration) bool { return silent >= p.SuspectAfter }

// GivesUp reports whether a node is lost after this silence.
func (p Patience) GivesUp(silent time.Duration) bool { return silent >= p.LostAfter }

// Stalled reports whether a server that let no time pass for this long must have been
// suspended: then the silence of its nodes says nothing.
func (p Patience) Stalled(gap time.Duration) bool { return !p.Ignored() && gap > p.SuspectAfter/2 }

// TickDue reports whether time must pass now so that the gap is not taken for a suspension.
func (p Patience) TickDue(gap time.Duration) bool { return gap > p.SuspectAfter/8 }

// NextCheck returns the silence at which a node is checked next, if it is silent now for this long.
func (p Patience) NextCheck(silent time.Duration, suspect bool) time.Duration {
	if suspect { // it may report before it is lost and fall silent again
		return min(p.LostAfter, silent+p.SuspectAfter)
	}

	return p.SuspectAfter
}
