package yardmaster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func fifo() yardmaster.Config { return yardmaster.Defaults(ordered.FIFO{}) }

// commandOf is a job with one GPU that runs a command.
func commandOf(command string) *job.Spec {
	s := spec(1)
	s.Run = command

	return s
}

const hungry = "python train.py --batch 64 --seed 1"

// learned is a yard with a small and a large node in which j1 ran out of the memory of the small one, and which was
// restarted since.
func learned(t *testing.T) *storedYard {
	t.Helper()
	y := newStoredYard(t, fifo)
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "alice"})
	y.smallNode("small")

	j := y.submit("alice", commandOf(hungry))
	y.round()
	y.running(j, 0)
	y.gpuMemoryNode("large", 48<<30, 4)
	y.ends(j, 0, gpuOOM)
	y.round()
	y.restart()

	return y
}

// A job like one that ran out of memory starts where there is more, and people are told why; one that needs another
// amount of memory does not.
func TestJobsLikeOneOutOfMemoryStartWithMore(t *testing.T) {
	t.Parallel()

	const note = "needs more than 24 GB of GPU memory: j1 like it ran out there"

	batch := commandOf(hungry)
	batch.Env = map[string]string{"BATCH": "8"}
	params := commandOf(hungry)
	params.Params = map[string]any{"batch_size": 8}
	named := commandOf(hungry)
	named.Name, named.Env, named.Params = "other", map[string]string{"SEED": "7"}, map[string]any{"lr": 0.1}
	more := commandOf(hungry)
	more.Resources.GPUs.Max = 2
	asks := commandOf(hungry)
	asks.Resources.GPUMemory.Min = 20 << 30

	for name, tc := range map[string]struct {
		owner id.User
		spec  *job.Spec
		alike bool
	}{
		"the same":          {"alice", commandOf(hungry), true},
		"another seed":      {"alice", commandOf("python train.py --batch 64 --seed 2"), true},
		"another name":      {"alice", named, true},
		"asks for memory":   {"alice", asks, true},
		"another batch":     {"alice", commandOf("python train.py --batch 32 --seed 1"), false},
		"another variable":  {"alice", batch, false},
		"another parameter": {"alice", params, false},
		"more GPUs":         {"alice", more, false},
		"another owner":     {"bob", commandOf(hungry), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := learned(t)

			preview := y.preview(tc.owner, tc.spec)
			if got := strings.Contains(preview.Why.Sentence, note); got != tc.alike {
				t.Errorf("the dry run says %q", preview.Why.Sentence)
			}

			j := y.submit(tc.owner, tc.spec)
			want, node := "queued", id.Node("small")
			if tc.alike {
				want, node = "queued; "+note, "large"
			}

			if got := y.job(j); got.Reason != want {
				t.Errorf("the reason is %q, want %q", got.Reason, want)
			}

			if why, _ := y.Why(y.now, j); strings.Contains(why.Sentence, note) != tc.alike {
				t.Errorf("it is explained by %q", why.Sentence)
			}

			y.round()

			if got := yardmaster.NodeOf(y.Yard, j); got != node {
				t.Errorf("it runs on %q, want %s", got, node)
			}
		})
	}
}

// What is learned applies to jobs that are queued already, and no more once one of them has succeeded with less.
func TestQueuedJobsLearnToo(t *testing.T) {
	t.Parallel()
	y := newStoredYard(t, fifo)
	y.smallNode("small")

	first, second := y.submit("alice", commandOf(hungry)), y.submit("alice", commandOf(hungry))
	y.round()
	y.running(first, 0)
	y.gpuMemoryNode("large", 48<<30, 1)
	y.commit()
	y.ends(first, 0, gpuOOM)

	if got := y.job(second); got.Floor.GPUMemory != 24<<30 || got.FloorOf != first {
		t.Fatalf("the floor is %+v of %q, want what %s needs", got.Floor, got.FloorOf, first)
	}

	if said := said(y.Take(), "job.memory"); said != "needs more than 24 GB of GPU memory: j1 like it ran out there" {
		t.Errorf("the event says %q", said)
	}

	y.round() // the first one has the large node

	bounded := commandOf(hungry)
	bounded.Resources.GPUMemory.Max = 24 << 30
	third := y.submit("alice", bounded)

	want := "queued; j1 like it ran out of memory, and no node that this one may use has more than 24 GB of GPU memory"
	if got := y.job(third); got.Reason != want || got.Floor != (job.Floor{}) {
		t.Errorf("the reason is %q with the floor %+v", got.Reason, got.Floor)
	}

	y.round()

	if a, b := y.job(second), y.job(third); a.State != job.Pending || b.State != job.Starting {
		t.Fatalf("%s is %s and %s is %s, want the second on small", second, a.State, third, b.State)
	}

	y.Take()
	y.running(third, 0)
	y.ends(third, 0, yardmaster.RankReport{})

	if got := y.job(second); got.Floor != (job.Floor{}) || got.FloorOf != "" {
		t.Errorf("the floor is still %+v of %q", got.Floor, got.FloorOf)
	}

	b := y.Take()
	if said := said(b, "job.memory"); said != "needs no more memory: j3 like it succeeded with less" ||
		len(b.ShortagesForgotten) != 1 {
		t.Errorf("the event says %q, and %v is forgotten", said, b.ShortagesForgotten)
	}

	y.round()

	if got := yardmaster.NodeOf(y.Yard, second); got != "small" {
		t.Errorf("%s runs on %q, want small", second, got)
	}
}

// What a queued job needs is decided when it is queued and when one like it ends, and not by a restart.
func TestARestartDoesNotDecideAnew(t *testing.T) {
	t.Parallel()
	y := newStoredYard(t, fifo)
	y.smallNode("small")

	first, second := y.submit("alice", commandOf(hungry)), y.submit("alice", commandOf(hungry))
	y.round()
	y.running(first, 0)
	y.ends(first, 0, gpuOOM) // no node has more
	y.gpuMemoryNode("large", 48<<30, 1)
	y.restart()

	if b := y.Take(); !b.Empty() || y.job(second).Floor != (job.Floor{}) {
		t.Errorf("the floor is %+v, and the restart changed %+v", y.job(second).Floor, b)
	}
}

// said returns the reasons of the events of a kind.
func said(b *yardmaster.Batch, kind string) string {
	var all []string
	for i := range b.Events {
		if b.Events[i].Kind == kind {
			all = append(all, b.Events[i].Reason)
		}
	}

	return strings.Join(all, "\n")
}

// On the host the next job gets twice what the other had, unless it asks for more than that had. A job without a limit
// says nothing: others may have used the memory of its node.
func TestHostMemoryIsLearned(t *testing.T) {
	t.Parallel()

	const gib = job.Bytes(1 << 30)

	for name, tc := range map[string]struct{ had, asks, want job.Bytes }{
		"as much":       {10 * gib, 10 * gib, 20 * gib},
		"less":          {10 * gib, 5 * gib, 20 * gib},
		"more":          {10 * gib, 15 * gib, 0},
		"without limit": {0, 0, 0},
		"not to be had": {200 * gib, 200 * gib, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newStoredYard(t, fifo)
			y.smallNode("node")

			s := commandOf(hungry)
			s.Resources.Memory = tc.had
			j := y.submit("alice", s)
			y.round()
			y.running(j, 0)
			y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseHostOOM, ExitCode: 137, Reason: "out of memory"})
			y.restart()

			like := *s
			like.Resources.Memory = tc.asks

			if got := y.job(y.submit("alice", &like)); got.Floor.Memory != tc.want {
				t.Errorf("the floor is %+v, want %v: %s", got.Floor, tc.want, got.Reason)
			}
		})
	}
}

// What was learned is not kept for ever, and not without bound.
func TestShortagesAreForgotten(t *testing.T) {
	t.Parallel()
	y := learned(t)
	y.now = y.now.AddDate(0, 1, 1)

	if got := y.job(y.submit("alice", commandOf(hungry))); got.Floor != (job.Floor{}) {
		t.Errorf("after a month the floor is %+v", got.Floor)
	}

	var state yardmaster.State
	for i := range 1100 {
		state.Shortages = append(state.Shortages, job.Shortage{
			Key: fmt.Sprint(i), Floor: job.Floor{GPUMemory: 1}, Job: "j1", At: start.Add(time.Duration(i) * time.Second),
		})
	}

	many := yardmaster.New(fifo())
	many.Load(start.Add(time.Hour), state)

	forgotten := map[string]bool{}
	for _, key := range many.Take().ShortagesForgotten {
		forgotten[key] = true
	}

	if len(forgotten) != 100 || !forgotten["0"] || !forgotten["99"] {
		t.Errorf("forgotten are %d: %v", len(forgotten), forgotten)
	}
}

// A question after the last attempt knows where that one ran out of memory.
func TestTheLastAttemptCounts(t *testing.T) {
	t.Parallel()
	y := newYardOf(t, fifo())
	y.smallNode("small")

	j := y.submit("alice", spec(1))
	y.round()
	y.gpuMemoryNode("middle", 48<<30, 1)
	y.oomAgain(j, gpuOOM)
	y.gpuMemoryNode("large", 80<<30, 1)
	y.oomAgain(j, gpuOOM)

	if got := y.oomAgain(j, gpuOOM); got.State != job.Paused || got.Lacked.GPUMemory != 80<<30 {
		t.Fatalf("job is %s, lacked %+v", got.State, got.Lacked)
	}

	if q := y.question(inbox.OutOfMemory); optionIDs(q) != "wait retry cancel" {
		t.Errorf("options are %s: no node has more than it had", optionIDs(q))
	}
}
