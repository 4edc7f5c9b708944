package yardmaster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// saves is a yard with two nodes that restore checkpoints and a job on one of them.
type saves struct {
	*yard
	job    id.Job
	orders map[id.Run]yardmaster.Order // opened, rank 0
	kept   map[id.Checkpoint]checkpoint.Checkpoint
	events []yardmaster.Event
}

func newSaves(t *testing.T, change ...func(*job.Spec)) *saves {
	t.Helper()
	y := &saves{
		yard: newYard(t), orders: map[id.Run]yardmaster.Order{}, kept: map[id.Checkpoint]checkpoint.Checkpoint{},
	}
	for _, n := range []id.Node{"a", "b"} {
		y.yard.node(string(n), 1)
		y.ok(yardmaster.NodeReport{Node: n, Restores: true})
	}

	s := spec(1)
	s.Checkpoint = &job.Checkpoint{Dir: "ckpt"}
	for _, c := range change {
		c(s)
	}

	y.job = y.submit("alice", s)
	y.round()

	return y
}

// round lets the yard plan and keeps what it stores.
func (y *saves) round() {
	y.t.Helper()
	y.Round(y.now)

	b := y.Take()
	for i := range b.Orders {
		if b.Orders[i].Rank == 0 {
			y.orders[b.Orders[i].Run] = b.Orders[i]
		}
	}

	for _, c := range b.Checkpoints {
		y.kept[c.ID] = c
	}

	y.events = append(y.events, b.Events...)
}

func (y *saves) run(epoch int) id.Run { return id.NewRun(y.job, epoch) }

// restore returns what a run was ordered to restore, "" if it begins anew.
func (y *saves) restore(epoch int) id.Checkpoint {
	y.t.Helper()
	o, ok := y.orders[y.run(epoch)]
	if !ok {
		y.t.Fatalf("run %d was not ordered", epoch)
	}

	if o.Launch.Restore == nil {
		return ""
	}

	return o.Launch.Restore.Checkpoint
}

// report reports rank 0 of a run.
func (y *saves) report(epoch int, r yardmaster.RankReport) {
	y.t.Helper()
	r.Run = y.run(epoch)
	y.ok(yardmaster.NodeReport{Node: y.orders[r.Run].Node, Restores: true, Ranks: []yardmaster.RankReport{r}})
	y.round()
}

func (y *saves) starts(epoch int) {
	y.t.Helper()
	y.report(epoch, yardmaster.RankReport{State: job.RunRunning, Started: y.now})
}

// preempted ends a run so that its job is queued again and its next run is ordered.
func (y *saves) preempted(epoch int) {
	y.t.Helper()
	y.report(epoch, yardmaster.RankReport{State: job.RunEnded, Started: y.now, Ended: y.now, Signalled: true})
}

// checkpointOf is one that rank 0 of a run has uploaded.
func (y *saves) checkpointOf(epoch int, step int64) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		Run: y.run(epoch), Name: "ckpt", Step: step, Found: checkpoint.ByRename, Ranks: 1, Written: y.now,
		Parts: []checkpoint.Part{{Node: "a", Manifest: "m", Size: 1 << 20}},
	}
}

// add adds a checkpoint and returns its entry.
func (y *saves) add(c checkpoint.Checkpoint) (checkpoint.Checkpoint, error) {
	y.t.Helper()
	reply, err := y.Step(y.now, yardmaster.AddCheckpoint{Checkpoint: c})
	y.round()
	entry, _ := reply.(checkpoint.Checkpoint)

	return entry, err
}

// saved adds a checkpoint of a run, which must be taken, a moment later than the one before.
func (y *saves) saved(epoch int, step int64) id.Checkpoint {
	y.t.Helper()
	y.now = y.now.Add(time.Second)

	entry, err := y.add(y.checkpointOf(epoch, step))
	if err != nil || entry.State != checkpoint.Stored {
		y.t.Fatalf("added as %+v, error %v", entry, err)
	}

	return entry.ID
}

func (y *saves) reasons(kind string) []string {
	var list []string
	for i := range y.events {
		if y.events[i].Kind == kind {
			list = append(list, y.events[i].Reason)
		}
	}

	return list
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("error = %v, want %s", err, code)
	}
}

func TestARunContinuesFromTheNewestCheckpoint(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	if got := y.restore(1); got != "" {
		t.Errorf("the first run restores %s", got)
	}

	y.starts(1)
	y.saved(1, 10)
	newest := y.saved(1, 20)
	y.preempted(1)

	o := y.orders[y.run(2)]
	want := &job.Restore{
		Checkpoint: newest, Name: "ckpt", Step: 20, Size: 1 << 20, Parts: []job.RestorePart{{Manifest: "m"}},
	}
	if diff := cmp.Diff(want, o.Launch.Restore); diff != "" {
		t.Errorf("restore (-want +got):\n%s", diff)
	}

	saved := y.View(y.now).Running[0].Outlook.Saved
	if !saved.Travels || saved.Step != 20 || saved.Size != 1<<20 || !saved.At.Equal(y.kept[newest].Written) {
		t.Errorf("policies see %+v", saved)
	}
}

// The catalogue may lose what a run was restored from while the agent still has to fetch it again.
func TestWhatARunRestoresIsListedUntilItEnds(t *testing.T) {
	t.Parallel()
	y := newSaves(t, func(s *job.Spec) { s.Checkpoint.Keep.Last = 1 })
	y.starts(1)

	c := y.checkpointOf(1, 10)
	c.Parts[0].Manifest = "restored"
	entry, err := y.add(c)
	if err != nil || len(y.RestoredManifests()) != 0 {
		t.Fatalf("added: %v; a run that began anew restores %v", err, y.RestoredManifests())
	}

	y.preempted(1)
	y.starts(2)
	y.saved(2, 20)

	if got := y.RestoredManifests(); y.kept[entry.ID].State != checkpoint.Removed || !slices.Equal(got, []string{"restored"}) {
		t.Errorf("%s is %s, and runs restore %v", entry.ID, y.kept[entry.ID].State, got)
	}

	y.report(2, yardmaster.RankReport{State: job.RunEnded, Started: y.now, Ended: y.now})

	if got := y.RestoredManifests(); len(got) != 0 {
		t.Errorf("after the end %v are restored", got)
	}
}

func TestAnAgentThatCannotRestoreGetsNothingToRestore(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)
	y.saved(1, 10)

	for _, n := range []id.Node{"a", "b"} {
		y.ok(yardmaster.NodeReport{Node: n})
	}

	y.round()
	run := y.run(1)
	y.ok(yardmaster.NodeReport{Node: y.orders[run].Node, Ranks: []yardmaster.RankReport{
		{Run: run, State: job.RunEnded, Started: y.now, Ended: y.now, Signalled: true},
	}})
	y.round()

	if got := y.restore(2); got != "" {
		t.Errorf("an agent of an earlier version is to restore %s", got)
	}
}

func TestOnlyTheNewestRunAddsCheckpoints(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)
	first := y.saved(1, 10)
	y.preempted(1)
	y.starts(2)

	_, err := y.add(y.checkpointOf(1, 99))
	wantCode(t, err, "stale_epoch")

	other := y.checkpointOf(2, 99)
	other.UID = "of another history"
	_, err = y.add(other)
	wantCode(t, err, "stale_epoch")

	stranger := y.checkpointOf(1, 99)
	stranger.Run = "j99.1"
	_, err = y.add(stranger)
	wantCode(t, err, "stale_epoch")

	if refused := y.reasons("checkpoint.refused"); len(refused) != 2 || !strings.Contains(refused[0], "not the newest") {
		t.Errorf("refused for %q", refused)
	}

	if len(y.kept) != 1 || y.kept[first].State != checkpoint.Stored {
		t.Errorf("catalogue = %+v", y.kept)
	}

	// The newest run may add its last one although it has just ended, also when the job has.
	y.report(2, yardmaster.RankReport{State: job.RunEnded, Started: y.now, Ended: y.now})
	y.saved(2, 30)
}

func TestAddingACheckpointAgainChangesNothing(t *testing.T) {
	t.Parallel()
	y := newSaves(t, func(s *job.Spec) { s.Checkpoint.Keep.Last = 1 })
	y.starts(1)

	first := y.checkpointOf(1, 10)
	entry, err := y.add(first)
	if err != nil {
		t.Fatal(err)
	}

	second := y.saved(1, 20)

	for range 2 { // the first was removed by the rule meanwhile
		again, err := y.add(first)
		if err != nil || again.ID != entry.ID || again.State != checkpoint.Removed {
			t.Errorf("added again as %+v, error %v, want %s", again, err, entry.ID)
		}
	}

	if len(y.kept) != 2 || y.kept[second].State != checkpoint.Stored {
		t.Errorf("catalogue = %+v", y.kept)
	}

	// The same content, saved again later, is another checkpoint.
	if third := y.saved(1, 20); third == second || y.kept[third].Number != 3 {
		t.Errorf("saved again as %s", third)
	}
}

func TestWhatTheRuleDoesNotKeepIsRemoved(t *testing.T) {
	t.Parallel()
	y := newSaves(t, func(s *job.Spec) { s.Checkpoint.Keep = job.Keep{Last: 1, Best: 1, Metric: "acc", Mode: job.KeepMax} })
	y.starts(1)

	save := func(step int64, acc float64) id.Checkpoint {
		y.now = y.now.Add(time.Second)
		c := y.checkpointOf(1, step)
		c.Metric, c.Value = "acc", acc
		entry, err := y.add(c)
		if err != nil {
			t.Fatal(err)
		}

		return entry.ID
	}

	best := save(10, 0.9)
	pinned := save(20, 0.1)
	y.ok(yardmaster.PinCheckpoint{Checkpoint: pinned, Owner: "alice", By: "alice", On: true})
	gone := save(30, 0.2)
	newest := save(40, 0.3)

	want := map[id.Checkpoint]checkpoint.State{
		best: checkpoint.Stored, pinned: checkpoint.Stored, gone: checkpoint.Removed, newest: checkpoint.Stored,
	}
	got := map[id.Checkpoint]checkpoint.State{}
	for c := range y.kept {
		got[c] = y.kept[c].State
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}

	if why := y.reasons("checkpoint.removed"); len(why) != 1 || !strings.Contains(why[0], "not among the last 1 and the best 1") {
		t.Errorf("removed for %q", why)
	}
}

func TestWhatAJobNeedsIsNotRemoved(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)
	old := y.saved(1, 10)
	newest := y.saved(1, 20)

	remove := func(c id.Checkpoint) error {
		_, err := y.Step(y.now, yardmaster.RemoveCheckpoint{Checkpoint: c, Owner: "alice", By: "alice", Why: "removed by alice"})
		y.round()

		return err
	}

	wantCode(t, remove(newest), "checkpoint_needed")
	y.ok(yardmaster.PinCheckpoint{Checkpoint: old, Owner: "alice", By: "alice", On: true})
	wantCode(t, remove(old), "checkpoint_pinned")
	y.ok(yardmaster.PinCheckpoint{Checkpoint: old, Owner: "alice", By: "alice"})

	if err := remove(old); err != nil {
		t.Error(err)
	}

	wantCode(t, remove(old), "checkpoint_not_found")

	y.report(1, yardmaster.RankReport{State: job.RunEnded, Started: y.now, Ended: y.now})

	if err := remove(newest); err != nil {
		t.Errorf("the job has ended: %v", err)
	}
}

func TestACheckpointOfSeveralRanksIsStoredWithItsLastPart(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)

	part := func(rank int, step int64) checkpoint.Checkpoint {
		c := y.checkpointOf(1, step)
		c.Ranks = 2
		c.Parts[0].Rank = rank
		c.Parts[0].Manifest = strings.Repeat("m", 1+rank) + string(rune('a'+step))

		return c
	}

	first, err := y.add(part(1, 10))
	if err != nil || first.State != checkpoint.Partial {
		t.Fatalf("the first part is %+v, error %v", first, err)
	}

	ahead, err := y.add(part(1, 20)) // one rank is ahead of the other
	if err != nil || ahead.ID == first.ID {
		t.Fatalf("the next checkpoint is %+v, error %v", ahead, err)
	}

	if again, _ := y.add(part(1, 10)); again.ID != first.ID {
		t.Errorf("the same part again is %+v", again)
	}

	whole, err := y.add(part(0, 10))
	if err != nil || whole.ID != first.ID || whole.State != checkpoint.Stored || whole.Size != 2<<20 ||
		whole.Parts[0].Manifest != "mk" {
		t.Errorf("the last part makes %+v, error %v", whole, err)
	}

	// Without a step nobody knows which parts of a name belong together.
	for rank := range 2 {
		if _, err := y.add(part(rank, -1)); err != nil {
			t.Fatal(err)
		}
	}

	torn := part(0, -1)
	torn.Parts[0].Manifest = "another"
	_, err = y.add(torn)
	wantCode(t, err, "ambiguous_part")

	// What is not complete when the next run begins never will be.
	y.preempted(1)

	if got := y.kept[ahead.ID]; got.State != checkpoint.Removed {
		t.Errorf("the incomplete checkpoint of an earlier run is %+v", got)
	}
}

func TestACorruptCheckpointIsNeverRestoredAgain(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)
	before := y.saved(1, 10)
	bad := y.saved(1, 20)
	y.preempted(1)

	fails := func(epoch int, c id.Checkpoint, corrupt bool) {
		y.report(epoch, yardmaster.RankReport{
			State: job.RunEnded, Ended: y.now, Cause: job.CauseRestoreFailed, Reason: "chunk 12 has another digest",
			Restore: &job.RestoreFailure{Checkpoint: c, Corrupt: corrupt},
		})
	}

	fails(2, bad, true)

	if got := y.kept[bad]; got.State != checkpoint.Corrupt || got.Reason != "chunk 12 has another digest" {
		t.Errorf("the corrupt one is %+v", got)
	}

	if got := y.restore(3); got != before {
		t.Errorf("after a corrupt checkpoint %q is restored, want %s", got, before)
	}

	if j, _ := yardmaster.JobOf(y.Yard, y.job); j.Tried[job.CauseRestoreFailed] != 0 {
		t.Errorf("tries counted: %v", j.Tried)
	}

	if why := y.reasons("checkpoint.corrupt"); len(why) != 1 || !strings.Contains(why[0], "continues from "+string(before)) {
		t.Errorf("corrupt for %q", why)
	}

	// One that cannot be reached is not corrupt, whatever else a report says; it is tried again later.
	fails(3, "j1.c1000", true)

	j, _ := yardmaster.JobOf(y.Yard, y.job)
	if j.State != job.Recovering || !j.NotBefore.After(y.now) || j.Tried[job.CauseRestoreFailed] != 1 {
		t.Errorf("job = %+v, want it to wait", j)
	}

	y.now = j.NotBefore
	y.ok(yardmaster.Tick{})
	y.round()

	if got := y.restore(4); got != before {
		t.Errorf("restores %q, want %s again", got, before)
	}

	fails(4, before, true)

	if got := y.restore(5); got != "" {
		t.Errorf("without a good checkpoint %q is restored", got)
	}
}

func TestWhatIsBeingRestoredIsKept(t *testing.T) {
	t.Parallel()
	y := newSaves(t, func(s *job.Spec) {
		s.Checkpoint.Keep.Last = 1
		s.Resources.Nodes = job.Range{Min: 2, Max: 2}
	})
	for rank := range 2 {
		y.ok(yardmaster.NodeReport{Node: []id.Node{"a", "b"}[rank], Restores: true, Ranks: []yardmaster.RankReport{
			{Run: y.run(1), Rank: rank, State: job.RunRunning, Started: y.now},
		}})
	}

	used := y.saved(1, 10)
	for rank := range 2 {
		y.ok(yardmaster.NodeReport{Node: []id.Node{"a", "b"}[rank], Restores: true, Ranks: []yardmaster.RankReport{
			{Run: y.run(1), Rank: rank, State: job.RunEnded, Started: y.now, Ended: y.now, Signalled: true},
		}})
	}

	y.round()
	y.starts(2) // its first rank alone
	y.saved(2, 20)

	if got := y.kept[used]; got.State != checkpoint.Stored {
		t.Errorf("a rank is still restoring what is %s: %s", got.State, got.Reason)
	}

	_, err := y.Step(y.now, yardmaster.RemoveCheckpoint{Checkpoint: used, Owner: "alice", By: "alice"})
	wantCode(t, err, "checkpoint_needed")
}

func TestTheCatalogueIsLoaded(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)

	for step := range int64(5) {
		y.saved(1, step)
	}

	b := yardmaster.State{Users: nil, LastJob: 1}
	for _, c := range y.kept {
		b.Checkpoints = append(b.Checkpoints, c)
	}

	j, _ := yardmaster.JobOf(y.Yard, y.job)
	b.Jobs = []job.Job{j}
	b.Runs = []job.Run{{ID: y.run(1), Job: y.job, Epoch: 1, State: job.RunRunning, Ranks: []job.Rank{{Node: "a"}}}}
	b.Nodes = []fleet.Node{{ID: "a", State: fleet.Ready}}

	again := &saves{
		yard: &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now},
		job:  y.job, kept: map[id.Checkpoint]checkpoint.Checkpoint{}, orders: map[id.Run]yardmaster.Order{},
	}
	again.Load(y.now, b)

	if got := again.View(y.now).Running[0].Outlook.Saved; got.Step != 4 || !got.Travels {
		t.Errorf("policies see %+v", got)
	}

	if got := again.saved(1, 6); got != "j1.c6" {
		t.Errorf("the next is %s, want j1.c6", got)
	}

	var removed []int
	for _, c := range again.kept {
		if c.State == checkpoint.Removed {
			removed = append(removed, c.Number)
		}
	}

	if !slices.Equal(removed, []int{3}) {
		t.Errorf("removed %v, want the oldest that was stored", removed)
	}
}

func TestAProgramIsSavedByASnapshotOnlyIfItContinuesLater(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stop func(y *yard, j id.Job)
		want bool
	}{
		"paused":    {func(y *yard, j id.Job) { y.ok(yardmaster.Pause{Job: j, By: "alice"}) }, true},
		"cancelled": {func(y *yard, j id.Job) { y.ok(yardmaster.Cancel{Job: j, By: "alice"}) }, false},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.node("unable", 1)
			y.ok(yardmaster.Join{Token: "join", Name: "able", Inventory: fleet.Inventory{
				Address: "able", CPUs: 64000, Memory: 256 << 30,
				Snapshots: &fleet.Snapshots{Process: fleet.Ability{OK: true}},
			}})

			s := spec(0)
			s.Checkpoint = &job.Checkpoint{Snapshot: true}
			j := y.submit("alice", s)
			y.Round(y.now)

			started := y.Take().Orders
			if len(started) != 1 || started[0].Node != "able" || !started[0].Launch.Snapshot {
				t.Fatalf("the orders are %+v", started)
			}

			tt.stop(y, j)

			stopped := y.Take().Orders
			if len(stopped) != 1 || stopped[0].Stop != job.StopTerm || stopped[0].Dump != tt.want {
				t.Errorf("the orders are %+v, want dump %v", stopped, tt.want)
			}
		})
	}
}

func TestAListShowsHowFarAnUploadIs(t *testing.T) {
	t.Parallel()
	y := newSaves(t)
	y.starts(1)

	const doing = "uploading checkpoint ckpt: 1GB of 2GB, 400MB/s"
	y.report(1, yardmaster.RankReport{State: job.RunRunning, Started: y.now, Reason: doing})

	if got := y.Briefs(y.now, []id.Job{y.job})[0].Doing; got != doing {
		t.Errorf("the list says %q", got)
	}

	y.preempted(1)

	if got := y.Briefs(y.now, []id.Job{y.job})[0].Doing; got != "" {
		t.Errorf("after the end of the run the list says %q", got)
	}
}
