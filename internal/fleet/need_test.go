package fleet_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// What the job file says about nodes by their names holds for nodes with room and for those without, and for offers,
// which have no names.
func TestNodesAreAllowedByName(t *testing.T) {
	t.Parallel()

	rooms := map[string]*fleet.Room{}
	for name, pool := range map[string]string{"a": "lab", "b": "lab", "gpu-1": "", "": ""} {
		n := fleet.Node{
			ID: id.Node(name), Pool: pool, Class: fleet.Local, Inventory: fleet.Inventory{CPUs: 8000, Memory: 1 << 30},
		}
		rooms[name] = &fleet.Room{Node: &n, Open: true, CPUs: 8000, Memory: 1 << 30, Kind: -1}
	}

	for name, tt := range map[string]struct {
		spec job.Spec
		want map[string]bool
	}{
		"anything":                     {job.Spec{}, map[string]bool{"a": true, "b": true, "gpu-1": true, "": true}},
		"a pool":                       {job.Spec{Pools: []string{"lab", "attic"}}, map[string]bool{"a": true, "b": true}},
		"nodes":                        {job.Spec{Nodes: []string{"gpu-1", "a"}}, map[string]bool{"a": true, "gpu-1": true}},
		"part of a name is not a name": {job.Spec{Nodes: []string{"gpu-11", "gpu"}}, map[string]bool{}},
		"avoid":                        {job.Spec{Avoid: []string{"a"}}, map[string]bool{"b": true, "gpu-1": true, "": true}},
		"all of it": {
			job.Spec{Pools: []string{"lab"}, Nodes: []string{"a", "b", "gpu-1"}, Avoid: []string{"b"}}, map[string]bool{"a": true},
		},
	} {
		tt.spec.Place = job.PlaceAny
		need := fleet.NeedOf(&tt.spec, job.Floor{}, nil)
		m := fleet.NewMatcher(need)

		if need.Particular() != (name != "anything") {
			t.Errorf("%s: nodes with the same hardware are alike: %t", name, !need.Particular())
		}

		for node, room := range rooms {
			if _, fits := m.Fits(room); fits != tt.want[node] || m.Eligible(room) != tt.want[node] {
				t.Errorf("%s: node %q fits: %t, is eligible: %t; want %t", name, node, fits, m.Eligible(room), tt.want[node])
			}
		}
	}
}

// TestRunsEndBeforeAReservation: lengths are rounded up, and by little; what is left before a reservation is compared
// with them exactly.
func TestRunsEndBeforeAReservation(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)

	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(0, int64(60*24*time.Hour)).Draw(t, "length"))
		rounded := time.Duration(fleet.RunLength(length))

		if over := rounded - length; over < 0 || over > length/8+2*time.Minute {
			t.Fatalf("%s is rounded to %s", length, rounded)
		}

		left := time.Duration(rapid.Int64Range(0, int64(60*24*time.Hour)).Draw(t, "left"))
		r := &fleet.Reservation{User: "ada", From: now.Add(left)}
		room := fleet.Room{Node: &fleet.Node{Upcoming: fleet.UpcomingAt(r, now)}}

		if got, want := room.ClosesBefore(job.Duration(rounded), "bob"), rounded > left; got != want {
			t.Fatalf("a run of %s is refused %s before a reservation: %v, want %v", rounded, left, got, want)
		}

		if room.ClosesBefore(job.Duration(rounded), "ada") {
			t.Fatal("a run of the user is refused")
		}

		if until := room.Node.Upcoming.Until(); until.Before(now) || until.After(r.From) {
			t.Fatalf("this holds until %s", until)
		}
	})
}
