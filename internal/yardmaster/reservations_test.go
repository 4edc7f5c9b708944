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
}

func TestReservationsSurviveRestartsAndEnd(t *testing.T) {
	t.Parallel()
	y := reservingYard(t)
	b := y.Take()

	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: start.Add(70 * time.Minute)}
	next.Load(next.now, yardmaster.State{Users: b.Users, Nodes: b.Nodes, Reservations: b.Reservations})
	next.ok(yardmaster.Tick{})
	next.ok(yardmaster.NodeReport{Node: "a"})

	his := next.submit("bob", plain(1))
	next.round()

	if next.job(his).State != job.Pending {
		t.Errorf("after a restart bob's job is %s", next.job(his).State)
	}

	ended := next.ok(yardmaster.RemoveReservation{Reservation: "r1", By: "alice"}).(fleet.Reservation)
	if ended.Ended.IsZero() {
		t.Errorf("removed %+v", ended)
	}

	next.round()

	if next.job(his).State != job.Starting {
		t.Errorf("after the reservation was removed bob's job is %s", next.job(his).State)
	}
}

func TestReservationsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	y := reservingYard(t)

	good := fleet.Reservation{
		User: "bob", Nodes: []id.Node{"a"}, From: start.Add(3 * time.Hour), Until: start.Add(4 * time.Hour), By: "alice",
	}

	for code, change := range map[string]func(*fleet.Reservation){
		"user_not_found":   func(r *fleet.Reservation) { r.User = "nobody" },
		"node_not_found":   func(r *fleet.Reservation) { r.Nodes = []id.Node{"b"} },
		"no_nodes":         func(r *fleet.Reservation) { r.Nodes = nil },
		"bad_period":       func(r *fleet.Reservation) { r.Until = r.From },
		"already_reserved": func(r *fleet.Reservation) { r.From = start.Add(90 * time.Minute) },
	} {
		r := good
		change(&r)

		if _, err := y.Step(y.now, yardmaster.AddReservation{Reservation: r}); codeOf(err) != code {
			t.Errorf("%+v: %v, want %s", r, err, code)
		}
	}

	y.ok(yardmaster.AddReservation{Reservation: good})

	if list := y.Reservations(); len(list) != 2 || list[1].ID != "r2" {
		t.Errorf("reservations %+v", list)
	}
}
