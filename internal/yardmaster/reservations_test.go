package yardmaster_test

import (
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// reservingYard has the users ada and bob and the node a with 4 GPUs, which is reserved for ada from an hour after the
// start on, for an hour, with a notice of ten minutes.
func reservingYard(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.node("a", 4)

	for _, u := range []id.User{"ada", "bob"} {
		y.ok(yardmaster.PutUser{User: u, Role: tenant.Researcher, By: "alice"})
	}

	y.ok(yardmaster.AddReservation{Reservation: fleet.Reservation{
		User: "ada", Nodes: []id.Node{"a"}, From: start.Add(time.Hour), Until: start.Add(2 * time.Hour),
		Notice: job.Duration(10 * time.Minute), By: "alice",
	}})

	return y
}

// Newcomer (c) 17: a node is set aside for a person and a time: no job of others starts there, and those that run
// when it begins are requeued.
func TestANodeIsReserved(t *testing.T) {
	t.Parallel()
	y := reservingYard(t)

	long := y.submit("bob", plain(1))
	y.round()

	if y.job(long).State != job.Starting {
		t.Fatalf("bob's job does not start long before the reservation: %+v", y.job(long))
	}

	y.report(long, 0, yardmaster.RankReport{State: job.RunRunning, Started: y.now})
	y.pass(55*time.Minute, "a") // within the notice

	late := y.submit("bob", plain(1))
	hers := y.submit("ada", plain(1))
	y.round()

	if y.job(late).State != job.Pending || y.job(hers).State != job.Starting || y.job(long).State != job.Running {
		t.Fatalf("within the notice: bob's new job %s, ada's %s, bob's first %s", y.job(late).State, y.job(hers).State,
			y.job(long).State)
	}

	why, _ := y.Why(y.now, late)
	if why.Blocker != place.BlockReserved || why.Sentence != "a is reserved for ada until 2026-11-15 11:00 UTC" {
		t.Errorf("bob's job waits because: %s, %s", why.Blocker, why.Sentence)
	}

	y.pass(6*time.Minute, "a") // it has begun

	orders := y.Orders()
	at := slices.IndexFunc(orders, func(o yardmaster.Order) bool { return o.Job == long })
	if at < 0 || orders[at].Stop != job.StopTerm {
		t.Errorf("bob's first job was not stopped: %+v", orders)
	}

	y.pass(time.Hour, "a") // it is over
	y.round()

	if y.job(late).State != job.Starting {
		why, _ := y.Why(y.now, late)
		t.Errorf("after the reservation bob's job is %s: %s", y.job(late).State, why.Sentence)
	}

	if at := slices.IndexFunc(orders, func(o yardmaster.Order) bool { return o.Job == hers }); orders[at].Stop != "" {
		t.Errorf("ada's job was stopped by her reservation: %+v", orders[at])
	}
}

// lasting is a job on one GPU that takes so long.
func lasting(d time.Duration) *job.Spec {
	s := plain(1)
	s.Expect = job.Duration(d)

	return s
}

// TestNoJobStartsThatWouldNotEndBeforeAReservation: it would be stopped when the reservation begins, an hour after the
// start. One that continues elsewhere from a checkpoint loses nothing.
func TestNoJobStartsThatWouldNotEndBeforeAReservation(t *testing.T) {
	t.Parallel()

	resumes := lasting(2 * time.Hour)
	resumes.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(time.Minute)}

	for name, tt := range map[string]struct {
		spec   *job.Spec
		owner  id.User
		after  time.Duration
		starts bool
	}{
		"a longer one":                  {spec: lasting(61 * time.Minute), owner: "bob"},
		"one that takes until then":     {spec: lasting(time.Hour), owner: "bob", starts: true},
		"one that ends before":          {spec: lasting(30 * time.Minute), owner: "bob", starts: true},
		"the same, later":               {spec: lasting(30 * time.Minute), owner: "bob", after: 35 * time.Minute},
		"a shorter one, later":          {spec: lasting(20 * time.Minute), owner: "bob", after: 35 * time.Minute, starts: true},
		"of the user of the node":       {spec: lasting(2 * time.Hour), owner: "ada", starts: true},
		"one that continues elsewhere":  {spec: resumes, owner: "bob", starts: true},
		"one of which nothing is known": {spec: plain(1), owner: "bob", starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := reservingYard(t)
			y.pass(tt.after, "a")
			j := y.submit(tt.owner, tt.spec)
			y.round()

			if started := y.job(j).State == job.Starting; started != tt.starts {
				t.Fatalf("it is %s, want a start: %v", y.job(j).State, tt.starts)
			}

			if tt.starts {
				return
			}

			const want = "a is reserved for ada until 2026-11-15 11:00 UTC, from 2026-11-15 10:00 UTC on, before the job " +
				"would have ended"
			if why, _ := y.Why(y.now, j); why.Blocker != place.BlockReserved || why.Sentence != want {
				t.Errorf("it waits because: %s, %s", why.Blocker, why.Sentence)
			}

			y.ok(yardmaster.RemoveReservation{Reservation: "r1", By: "alice"})
			y.round()

			if y.job(j).State != job.Starting {
				t.Errorf("after the reservation was removed it is %s", y.job(j).State)
			}
		})
	}
}

// TestLengthsAreComparedFromTwoWeeksBeforeOn: until then jobs of different users are the same to a policy.
func TestLengthsAreComparedFromTwoWeeksBeforeOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.ok(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "alice"})
	y.ok(yardmaster.AddReservation{Reservation: fleet.Reservation{
		User: "ada", Nodes: []id.Node{"a"}, From: start.Add(15 * 24 * time.Hour), Until: start.Add(16 * 24 * time.Hour),
		By: "alice",
	}})

	// Another one of the node changes nothing about that.
	other := y.ok(yardmaster.AddReservation{Reservation: fleet.Reservation{
		User: "ada", Nodes: []id.Node{"a"}, From: start.Add(time.Hour), Until: start.Add(2 * time.Hour), By: "alice",
	}}).(fleet.Reservation)
	y.ok(yardmaster.RemoveReservation{Reservation: other.ID, By: "alice"})

	long := lasting(20 * 24 * time.Hour)
	first := y.submit("alice", long)
	y.round()

	if y.job(first).State != job.Starting {
		t.Errorf("15 days before the reservation the job is %s", y.job(first).State)
	}

	y.ok(yardmaster.Cancel{Job: first, By: "alice"})
	y.now = y.now.Add(25 * time.Hour)
	y.ok(yardmaster.Tick{})
	y.ok(yardmaster.NodeReport{Node: "a"})

	second := y.submit("alice", long)
	y.round()

	if y.job(second).State != job.Pending {
		t.Errorf("within two weeks before the reservation the job is %s", y.job(second).State)
	}
}

func TestReservationsSurviveRestartsAndEnd(t *testing.T) {
	t.Parallel()
	y := reservingYard(t)
	b := y.Take()

	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: start.Add(70 * time.Minute)}
	next.Load(next.now, yardmaster.State{Users: b.Users, Nodes: b.Nodes, Reservations: b.Reservations})
	next.ok(yardmaster.Tick{})
	next.ok(yardmaster.NodeReport{Node: "a"})

	soon := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: start.Add(time.Minute)}
	soon.Load(soon.now, yardmaster.State{Users: b.Users, Nodes: b.Nodes, Reservations: b.Reservations})
	soon.ok(yardmaster.Tick{})
	soon.ok(yardmaster.NodeReport{Node: "a"})

	long := soon.submit("bob", lasting(2*time.Hour))
	soon.round()

	if soon.job(long).State != job.Pending {
		t.Errorf("after a restart before the reservation bob's long job is %s", soon.job(long).State)
	}

	his := next.submit("bob", plain(1))
	next.round()

	if next.job(his).State != job.Pending {
		t.Errorf("after a restart bob's job is %s", next.job(his).State)
	}

	// The next one has a number of its own.
	added := next.ok(yardmaster.AddReservation{Reservation: fleet.Reservation{
		User: "bob", Nodes: []id.Node{"a"}, From: start.Add(5 * time.Hour), Until: start.Add(6 * time.Hour), By: "alice",
	}}).(fleet.Reservation)
	if added.ID != "r2" {
		t.Errorf("added %s after r1", added.ID)
	}

	next.Take()

	ended := next.ok(yardmaster.RemoveReservation{Reservation: "r1", By: "alice"}).(fleet.Reservation)
	if ended.Ended.IsZero() {
		t.Errorf("removed %+v", ended)
	}

	if e := next.Take().Events; len(e) != 1 || e[0].Kind != "reservation.ended" || e[0].Actor != "alice" ||
		e[0].Reason != "reservation r1 of node a for ada: removed by alice" {
		t.Errorf("events %+v, want that it has ended", e)
	}

	next.round()

	if next.job(his).State != job.Starting {
		t.Errorf("after the reservation was removed bob's job is %s", next.job(his).State)
	}
}

// TestAReservationGoesOnAfterARestart: the server that starts again while it lasts stops the runs of others, and ends
// it at its time.
func TestAReservationGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	y := reservingYard(t)
	his := y.submit("bob", plain(1))
	y.round()
	y.report(his, 0, yardmaster.RankReport{State: job.RunRunning, Started: y.now})
	b := y.Take()

	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: start.Add(70 * time.Minute)}
	next.Load(next.now, yardmaster.State{
		Users: b.Users, Nodes: b.Nodes, Jobs: b.Jobs, Runs: b.Runs, Orders: b.Orders, Reservations: b.Reservations,
		LastJob: 1,
	})
	next.ok(yardmaster.Tick{})

	if orders := next.Orders(); len(orders) != 1 || orders[0].Job != his || orders[0].Stop != job.StopTerm {
		t.Errorf("orders %+v, want that bob's job is stopped", orders)
	}

	next.pass(49*time.Minute, "a")

	if list := next.Reservations(); !list[0].Ended.IsZero() {
		t.Errorf("a minute before its end: %+v", list)
	}

	next.pass(time.Minute, "a")

	if list := next.Reservations(); list[0].Ended.IsZero() {
		t.Errorf("at its end: %+v", list)
	}
}

func TestReservationsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	y := reservingYard(t)

	good := fleet.Reservation{
		User: "bob", Nodes: []id.Node{"a"}, From: start.Add(3 * time.Hour), Until: start.Add(4 * time.Hour), By: "alice",
	}

	y.ok(yardmaster.AddToken{By: "test", Token: tenant.Token{
		ID: "cloud", Kind: tenant.JoinToken, Owner: "alice", Class: string(fleet.OnDemand), UsesLeft: 1,
		Expires: start.AddDate(1, 0, 0),
	}})
	y.ok(yardmaster.Join{Token: "cloud", Name: "c", Inventory: fleet.Inventory{Address: "c", CPUs: 1000, Memory: 1 << 30}})

	for name, tt := range map[string]struct {
		change func(*fleet.Reservation)
		code   string
	}{
		"nobody":      {func(r *fleet.Reservation) { r.User = "nobody" }, "user_not_found"},
		"no node":     {func(r *fleet.Reservation) { r.Nodes = []id.Node{"b"} }, "node_not_found"},
		"nothing":     {func(r *fleet.Reservation) { r.Nodes = nil }, "no_nodes"},
		"no time":     {func(r *fleet.Reservation) { r.Until = r.From }, "bad_period"},
		"the past":    {func(r *fleet.Reservation) { r.From, r.Until = start.Add(-2*time.Hour), start }, "bad_period"},
		"too long":    {func(r *fleet.Reservation) { r.Until = r.From.AddDate(0, 0, 91) }, "bad_period"},
		"overlapping": {func(r *fleet.Reservation) { r.From = start.Add(90 * time.Minute) }, "already_reserved"},
		"closed to others before the end of another": {
			func(r *fleet.Reservation) { r.Notice = job.Duration(61 * time.Minute) }, "already_reserved",
		},
		"provisioned": {func(r *fleet.Reservation) { r.Nodes = []id.Node{"c"} }, "node_not_reservable"},
	} {
		r := good
		tt.change(&r)

		if _, err := y.Step(y.now, yardmaster.AddReservation{Reservation: r}); codeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}

	y.ok(yardmaster.AddReservation{Reservation: good})

	if list := y.Reservations(); len(list) != 2 || list[1].ID != "r2" {
		t.Errorf("reservations %+v", list)
	}

	// One that was removed is in nobody's way, and is removed once.
	y.ok(yardmaster.RemoveReservation{Reservation: "r2", By: "alice"})
	y.Take()
	y.ok(yardmaster.RemoveReservation{Reservation: "r2", By: "alice"})

	if b := y.Take(); len(b.Reservations)+len(b.Events) > 0 {
		t.Errorf("removed again: %+v, %+v", b.Reservations, b.Events)
	}

	y.ok(yardmaster.AddReservation{Reservation: good})
}
