// Package contact holds the arithmetic of contact leases: how long the runs of a node may
// continue without the server, and how long the server waits before it declares a silent
// node lost and starts its jobs elsewhere.
//
// Agent and server count with different clocks and see different messages. A job never
// runs twice because of four rules, of which docs/adr/0020-contact-leases.md has the proof
// and model_test.go a model that is searched exhaustively:
//
//   - a lease counts from before the question that it answers (Grant.From), the server's
//     patience from when it handled that question;
//   - lease, grace period and the time that a kill takes are shorter than the patience,
//     also if the node's clock is slow (Settings.Check);
//   - an expired lease is renewed only when nothing runs under it any more, and only by an
//     answer of the server (Renewal.Allowed); without such an answer a valid lease is
//     extended only where the server is known to count it (Yard.Extends);
//   - a run is started only if the assignments are as new as the last grant (Grants.Covers).
//
// Nothing else in the code computes such times. All functions are pure: times are arguments.
package contact

import "time"

// Drift bounds by which part the rates of two clocks differ: NTP changes the rate of the clock of
// each machine by at most 0.05 %, and clock.Steady, by which the server counts, adds as much. The
// rest is for quartz clocks that nobody corrects, which are off by less than 0.02 %.
const Drift = 0.002

// MaxReportTimeout is the longest time that an agent waits for the answer to a report.
const MaxReportTimeout = 10 * time.Second

// Grant is what the answer to a report grants.
type Grant struct {
	Lease time.Duration // how long runs may continue, from before the report was sent
	Grace time.Duration // between SIGTERM and SIGKILL when the lease has expired
}

// Granted returns the grant of an answer. Servers of version 0.1 do not send a grace period;
// they count with a tenth of the lease.
func Granted(lease, grace time.Duration) Grant {
	if grace <= 0 {
		grace = lease / 10
	}

	return Grant{Lease: lease, Grace: grace}
}

// ReportTimeout is how long an agent waits for the answer to a report before it asks again.
// Within a lease two reports may fail in this way after the interval between two reports,
// which Settings.Check limits to half of the lease.
func (g Grant) ReportTimeout() time.Duration {
	if g.Lease <= 0 {
		return MaxReportTimeout
	}

	return min(MaxReportTimeout, g.Lease/reportTries)
}

// reportTries is how many report timeouts fit into a lease.
const reportTries = 4

// Moment is a point in time by a clock that nobody can set and that advances while the
// machine is suspended: the time since its boot.
type Moment struct {
	Boot  string // identifies the boot
	Since time.Duration
}

// Lease is until when the runs of a machine may continue without the server.
type Lease struct {
	Boot  string        `json:"boot"`            // of the boot it counts from
	Until time.Duration `json:"until"`           // since boot
	Valid time.Duration `json:"valid"`           // how long it was granted for
	Grace time.Duration `json:"grace,omitempty"` // between SIGTERM and SIGKILL after it has expired
}

// From returns the lease that a grant gives when the question was sent at this moment. The
// server handled the question later, so its patience ends later, however long the answer
// was under way.
func (g Grant) From(sent Moment) Lease {
	return Lease{Boot: sent.Boot, Until: sent.Since + g.Lease, Valid: g.Lease, Grace: g.Grace}
}

// Left returns the time until a lease expires; it is not positive once it has. A lease from
// before a reboot has expired.
func (l Lease) Left(now Moment) time.Duration {
	if l.Boot != now.Boot {
		return -1
	}

	return l.Until - now.Since
}

// KillAfter returns how long after this moment nothing of a run may be left, with the time
// that is left of its lease. A supervisor that notices the expiry late, because the machine
// was suspended, has that much less.
func (l Lease) KillAfter(left time.Duration) time.Duration {
	grace := Granted(l.Valid, l.Grace).Grace
	return max(left+grace, time.Millisecond)
}

// Renewal is a lease that is to replace another.
type Renewal struct {
	Old      Lease
	Exists   bool // there is an old one
	Answered bool // by a grant of the server, not by the lack of an answer
	Live     bool // runs of this machine have not ended
}

// Allowed reports whether the old lease may be replaced now. While it is valid it may. Once
// it has expired the server may have started the runs elsewhere: those here must end first,
// and only an answer of the server, which says what is assigned now, begins a new lease.
func (r Renewal) Allowed(now Moment) bool {
	switch {
	case r.Exists && r.Old.Left(now) > 0:
		return true
	case !r.Exists: // nothing was ever started here, or the runs are those of an earlier version
		return r.Answered
	}

	return r.Answered && !r.Live
}

// Failure is how a report failed.
type Failure int

// How a report fails.
const (
	Unknown Failure = iota // no answer, or one that says nothing about the server's patience
	Refused                // the machine refused the connection: no server runs there
	Heard                  // the server cannot store anything now, but counts the report as a sign of life
)

// Yard is what a node knows about the servers of its yard.
type Yard struct {
	Known   bool // the server has said whether there is a standby; those of version 0.1 do not
	Standby bool // another server may take over
}

// Extends reports whether a failed report extends a valid lease as an answer would. One that was
// heard does: the server counts its patience from then. So does a refused connection, where the
// yard has said that it has no standby: a server that does not run declares no node lost, and
// gives all nodes its full patience when it starts.
func (y Yard) Extends(f Failure) bool {
	return f == Heard || f == Refused && y.Known && !y.Standby
}

// Generation identifies assignments: the start of the server that made them, and their
// number within it. Servers of version 0.1 do not name their start in answers to reports.
type Generation struct {
	Server string
	Number uint64
}

// Covers reports whether assignments of generation g may be started under a lease that was
// granted with generation granted. Older ones may name a run that the server has since
// declared lost and started elsewhere.
func (g Generation) Covers(granted Generation) bool {
	return (granted.Server == "" || granted.Server == g.Server) && g.Number >= granted.Number
}
