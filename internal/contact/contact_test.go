package contact_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/contact"
)

const minute = time.Minute

func TestALeaseCountsFromBeforeTheQuestion(t *testing.T) {
	t.Parallel()

	sent := contact.Moment{Boot: "b1", Since: 10 * minute}
	lease := contact.Grant{Lease: 4 * minute, Grace: 30 * time.Second}.From(sent)

	for _, c := range []struct {
		name string
		now  contact.Moment
		want time.Duration
	}{
		{"when it was sent", sent, 4 * minute},
		{"the answer took three minutes", contact.Moment{Boot: "b1", Since: 13 * minute}, minute},
		{"the answer took five minutes", contact.Moment{Boot: "b1", Since: 15 * minute}, -minute},
		{"the machine was booted since", contact.Moment{Boot: "b2", Since: minute}, -1},
	} {
		if got := lease.Left(c.now); got != c.want {
			t.Errorf("%s: %v left, want %v", c.name, got, c.want)
		}
	}
}

func TestAGracePeriodIsOverAtTheSameTimeHoweverLateTheExpiryIsNoticed(t *testing.T) {
	t.Parallel()

	lease := contact.Lease{Valid: 4 * minute, Grace: 30 * time.Second}
	old := contact.Lease{Valid: 5 * minute} // of a server that sends no grace period

	for _, c := range []struct {
		name  string
		lease contact.Lease
		left  time.Duration
		want  time.Duration
	}{
		{"at once", lease, 0, 30 * time.Second},
		{"ten seconds late", lease, -10 * time.Second, 20 * time.Second},
		{"an hour late", lease, -time.Hour, time.Millisecond},
		{"without a grace period", old, 0, 30 * time.Second},
	} {
		if got := c.lease.KillAfter(c.left); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWhenALeaseMayBeRenewed(t *testing.T) {
	t.Parallel()

	valid := contact.Lease{Boot: "b", Until: 2 * minute}
	expired := contact.Lease{Boot: "b", Until: minute}
	now := contact.Moment{Boot: "b", Since: minute}

	for _, c := range []struct {
		name    string
		renewal contact.Renewal
		want    bool
	}{
		{"the first, by an answer", contact.Renewal{Answered: true}, true},
		{"the first, without an answer", contact.Renewal{}, false},
		{"the first, under runs without a lease", contact.Renewal{Answered: true, Live: true}, true},
		{"a valid one, by an answer", contact.Renewal{Old: valid, Exists: true, Answered: true, Live: true}, true},
		{"a valid one, without an answer", contact.Renewal{Old: valid, Exists: true, Live: true}, true},
		{"an expired one, by an answer", contact.Renewal{Old: expired, Exists: true, Answered: true}, true},
		{"an expired one, under runs", contact.Renewal{Old: expired, Exists: true, Answered: true, Live: true}, false},
		{"an expired one, without an answer", contact.Renewal{Old: expired, Exists: true}, false},
	} {
		if got := c.renewal.Allowed(now); got != c.want {
			t.Errorf("%s: allowed = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWhatExtendsALeaseWithoutAnAnswer(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		yard    contact.Yard
		failure contact.Failure
		want    bool
	}{
		{"refused, no standby", contact.Yard{Known: true}, contact.Refused, true},
		{"heard, no standby", contact.Yard{Known: true}, contact.Heard, true},
		{"heard, standby", contact.Yard{Known: true, Standby: true}, contact.Heard, true},
		{"no answer, no standby", contact.Yard{Known: true}, contact.Unknown, false},
		{"refused, standby", contact.Yard{Known: true, Standby: true}, contact.Refused, false},
		{"refused, the yard has not said", contact.Yard{}, contact.Refused, false},
	} {
		if got := c.yard.Extends(c.failure); got != c.want {
			t.Errorf("%s: extends = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAssignmentsMustBeAsNewAsTheGrant(t *testing.T) {
	t.Parallel()

	have := contact.Generation{Server: "s1", Number: 5}

	for _, c := range []struct {
		name    string
		granted contact.Generation
		want    bool
	}{
		{"the same", have, true},
		{"older than ours", contact.Generation{Server: "s1", Number: 4}, true},
		{"newer", contact.Generation{Server: "s1", Number: 6}, false},
		{"another start of the server", contact.Generation{Server: "s2", Number: 1}, false},
		{"a server that does not name its start", contact.Generation{Number: 5}, true},
	} {
		if got := have.Covers(c.granted); got != c.want {
			t.Errorf("%s: covers = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSettingsThatConflictAreRefused(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name                                string
		report, suspect, lost, lease, grace time.Duration
		want                                string // "" if they are allowed
	}{
		{"the defaults", 5 * time.Second, 30 * time.Second, 5 * minute, 0, 0, ""},
		{"the shortest", 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 0, 0, ""},
		{"suspect late", 5 * time.Second, 299 * time.Second, 5 * minute, 0, 0, ""},
		{
			"lost before suspect", 5 * time.Second, 30 * time.Second, 30 * time.Second, 0, 0,
			"lost-after: must be longer than suspect-after (30s)",
		},
		{
			"suspect between reports", 30 * time.Second, 30 * time.Second, 5 * minute, 0, 0,
			"suspect-after: must be longer than report-every (30s)",
		},
		{
			"few reports", 2 * time.Second, 3 * time.Second, 4 * time.Second, 0, 0,
			"report-every: must be at most half of contact-lease (3s200ms)",
		},
		{
			"a long lease", 5 * time.Second, 30 * time.Second, 5 * minute, 5 * minute, 0,
			"contact-lease: must be at most 4m14s401ms with contact-grace (30s) and lost-after (5m)",
		},
		{
			"a long grace period", 5 * time.Second, 30 * time.Second, 5 * minute, 0, 2 * minute,
			"contact-lease: must be at most 2m44s401ms with contact-grace (2m) and lost-after (5m)",
		},
		{"a long grace period and a short lease", 5 * time.Second, 30 * time.Second, 5 * minute, 2 * minute, 2 * minute, ""},
	} {
		err := contact.NewSettings(c.report, c.suspect, c.lost, c.lease, c.grace).Check()

		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// The arithmetic of the proof in docs/adr/0020-contact-leases.md, for all settings that are allowed.
func TestAllowedSettingsKeepRunsApart(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		span := func(name string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, name))
		}

		lost := time.Second + span("lost", 48*time.Hour)
		lease := span("lease", lost)
		s := contact.NewSettings(span("report", lease/2), span("suspect", lost), lost, lease, span("grace", lost-lease))

		if s.Check() != nil {
			t.Skip("refused")
		}

		// The question is sent at 0 by the node's clock and handled at once, and the node's clock
		// runs slow: by the server's clock the last process ends this late.
		last := float64(s.Lease+s.Grace+s.StopTime()) * (1 + contact.Drift)
		if last > float64(s.LostAfter) {
			t.Fatalf("%+v: the run ends %v after the node is lost", s, time.Duration(last)-s.LostAfter)
		}

		if two := s.ReportEvery + 2*s.Grant().ReportTimeout(); two > s.Lease {
			t.Fatalf("%+v: an answer that is lost ends the lease", s)
		}
	})
}

func TestPatience(t *testing.T) {
	t.Parallel()

	p := contact.NewSettings(5*time.Second, 30*time.Second, 5*minute, 0, 0).Patience()

	if p.Suspects(29*time.Second) || !p.Suspects(30*time.Second) || p.GivesUp(299*time.Second) || !p.GivesUp(5*minute) {
		t.Error("suspect or lost at the wrong silence")
	}

	if p.Stalled(15*time.Second) || !p.Stalled(16*time.Second) || (contact.Patience{}).Stalled(time.Hour) {
		t.Error("stalled at the wrong gap")
	}

	if got := p.NextCheck(290*time.Second, true); got != 5*minute {
		t.Errorf("a suspect node is checked at %v", got)
	}
}
