package yardmaster_test

import (
	"fmt"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// yard is a yard under test with a clock of its own.
type yard struct {
	*yardmaster.Yard
	t   testing.TB
	now time.Time

	stored int // checkpoints so far
}

// newYard returns a yard with the user alice, an admin, and a join token.
func newYard(t testing.TB) *yard {
	t.Helper()

	return newYardOf(t, yardmaster.Defaults(ordered.FIFO{}))
}

// newYardOf is newYard with a configuration.
func newYardOf(t testing.TB, cfg yardmaster.Config) *yard {
	t.Helper()

	y := &yard{Yard: yardmaster.New(cfg), t: t, now: start}
	y.ok(yardmaster.PutUser{User: "alice", Role: tenant.Admin, By: "test"})

	y.ok(
		yardmaster.AddToken{
			By: "test",
			Token: tenant.Token{
				ID:       "join",
				Kind:     tenant.JoinToken,
				Owner:    "alice",
				Class:    "local",
				UsesLeft: 1 << 20,
				Expires:  start.AddDate(10, 0, 0),
			},
		},
	)

	return y
}

// ok sends a message that must be accepted, and returns the answer.
func (y *yard) ok(m yardmaster.Message) any {
	y.t.Helper()
	reply, err := y.Step(y.now, m)
	if err != nil {
		y.t.Fatalf("%T: %v", m, err)
	}

	return reply
}

func (y *yard) node(name string, gpus int) {
	y.t.Helper()
	inv := fleet.Inventory{Address: name, CPUs: 64000, Memory: 256 << 30, Restores: true}
	for i := range gpus {
		inv.GPUs = append(
			inv.GPUs,
			fleet.GPU{Index: i, UUID: fmt.Sprint(name, i), Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30},
		)
	}

	y.ok(yardmaster.Join{Token: "join", Name: name, Inventory: inv})
}

func spec(gpus int) *job.Spec {
	return &job.Spec{Run: "true", Place: job.PlaceAny, Resources: job.Resources{
		GPUs: job.Range{Min: gpus, Max: gpus}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000,
	}}
}

func (y *yard) submit(owner id.User, s *job.Spec) id.Job {
	y.t.Helper()
	reply := y.ok(yardmaster.Submit{Owner: owner, Jobs: []yardmaster.NewJob{{Spec: s}}})
	return reply.(yardmaster.Submitted).Jobs[0]
}

// preview returns what would happen to a job if it were submitted now.
func (y *yard) preview(owner id.User, s *job.Spec) yardmaster.Preview {
	y.t.Helper()
	rehearsal, err := y.Rehearse(y.now, owner, []yardmaster.Candidate{{Spec: s}})
	if err != nil {
		y.t.Fatal(err)
	}

	return rehearsal.Previews(nil)[0]
}

func TestSubmittedJobRunsAndSucceeds(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)
	j := y.submit("alice", spec(2))
	y.Round(y.now)

	b := y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Node != "a" || len(b.Orders[0].Launch.GPUs) != 2 {
		t.Fatalf("orders = %+v, want one on node a with 2 GPUs", b.Orders)
	}

	run := id.NewRun(j, 1)
	report := func(r yardmaster.RankReport) {
		y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{r}})
	}
	report(yardmaster.RankReport{Run: run, State: job.RunRunning, Started: y.now})
	report(yardmaster.RankReport{Run: run, State: job.RunEnded, Started: y.now, Ended: y.now})

	b = y.Take()
	if got := b.Jobs[0].State; got != job.Succeeded {
		t.Errorf("state = %s, want succeeded", got)
	}

	if len(b.Closed) != 1 {
		t.Errorf("closed orders = %v, want one", b.Closed)
	}
}
