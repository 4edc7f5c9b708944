package yardmaster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// reserved adds a reserved node, which is in the cloud.
func (y *yard) reserved(name string, gpus int) {
	y.t.Helper()
	y.ok(
		yardmaster.AddToken{
			By: "test",
			Token: tenant.Token{
				ID:       id.Token("cloud-" + name),
				Kind:     tenant.JoinToken,
				Owner:    "alice",
				Class:    string(fleet.Reserved),
				UsesLeft: 1 << 20,
				Expires:  start.AddDate(10, 0, 0),
			},
		},
	)

	inv := fleet.Inventory{Address: name, CPUs: 64000, Memory: 256 << 30, Restores: true}
	for i := range gpus {
		inv.GPUs = append(
			inv.GPUs,
			fleet.GPU{Index: i, UUID: name + string(rune('0'+i)), Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30},
		)
	}

	y.ok(yardmaster.Join{Token: id.Token("cloud-" + name), Name: name, Inventory: inv})
}

// rule registers a dataset or changes where it may be.
func (y *yard) rule(name id.Dataset, p job.Place) {
	y.t.Helper()
	y.ok(
		yardmaster.PutDataset{
			By:      "alice",
			Dataset: dataset.Dataset{ID: name, Rule: p, Size: 1 << 30, Source: "https://h/" + string(name)},
		},
	)
}

// using is a job that reads datasets and saves itself.
func using(names ...string) *job.Spec {
	s := elastic()
	s.Data = names
	return s
}

// nodeOf returns where the newest run of a job is ordered to be, "" if it is not.
func (y *yard) nodeOf(j id.Job) id.Node {
	for _, o := range y.Orders() {
		if o.Job == j {
			return o.Node
		}
	}

	return ""
}

func codeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}

	return ""
}

// uses lists where data was used, as the audit will.
func uses(b *yardmaster.Batch) []string {
	var list []string
	for _, u := range b.Uses {
		text := string(u.Dataset) + " by " + string(u.Run) + " of " + string(u.Owner) + " on " + string(u.Node)
		if u.Cloud {
			text += " outside"
		}

		if u.Override != "" {
			text += ", let by " + u.Override
		}

		list = append(list, text)
	}

	return list
}

// hybrid is a yard with a local node a and a reserved node c, which is preferred by nobody.
func hybrid(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.node("a", 4)
	y.reserved("c", 4)

	return y
}

func TestDataKeepsJobsWhereItMayBe(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		rules map[id.Dataset]job.Place
		place job.Place
		want  id.Node
		fault string
	}{
		"local data":               {rules: map[id.Dataset]job.Place{"d": job.PlaceLocal}, place: job.PlaceAny, want: "a"},
		"cloud data":               {rules: map[id.Dataset]job.Place{"d": job.PlaceCloud}, place: job.PlaceAny, want: "c"},
		"local data, local job":    {rules: map[id.Dataset]job.Place{"d": job.PlaceLocal}, place: job.PlaceLocal, want: "a"},
		"free data, cloud job":     {rules: map[id.Dataset]job.Place{"d": job.PlaceAny}, place: job.PlaceCloud, want: "c"},
		"local data, cloud job":    {rules: map[id.Dataset]job.Place{"d": job.PlaceLocal}, place: job.PlaceCloud, fault: "place_conflict"},
		"two that cannot be":       {rules: map[id.Dataset]job.Place{"d": job.PlaceLocal, "e": job.PlaceCloud}, place: job.PlaceAny, fault: "place_conflict"},
		"data that is not there":   {rules: map[id.Dataset]job.Place{}, place: job.PlaceAny, fault: "no_dataset"},
		"one bound, one not bound": {rules: map[id.Dataset]job.Place{"d": job.PlaceAny, "e": job.PlaceCloud}, place: job.PlaceAny, want: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := hybrid(t)
			s := using("d")
			s.Place = tc.place

			for d, p := range tc.rules {
				y.rule(d, p)
			}

			if _, two := tc.rules["e"]; two {
				s.Data = append(s.Data, "e")
			}

			reply, err := y.Step(y.now, yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: s}}})
			if tc.fault != "" {
				if codeOf(err) != tc.fault {
					t.Errorf("submitted with %v, want %s", err, tc.fault)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}

			y.Take()
			y.round()
			b := y.Take()

			j := reply.(yardmaster.Submitted).Jobs[0]
			if got := y.nodeOf(j); got != tc.want {
				t.Errorf("it runs on %q, want %q", got, tc.want)
			}

			if len(b.Uses) != len(s.Data) {
				t.Errorf("uses %v, want one of each of %v", uses(b), s.Data)
			}

			want := job.DataRef{Name: "d", Size: 1 << 30, Source: "https://h/d"}
			if got := b.Orders[0].Launch.Data; len(got) != len(s.Data) || got[0] != want {
				t.Errorf("the node is told %+v, want %+v", got, want)
			}
		})
	}
}

func TestDataKeepsARetryWhereItMayBe(t *testing.T) {
	t.Parallel()
	y := hybrid(t)
	y.rule("mri", job.PlaceLocal)
	j := y.submit("alice", using("mri"))
	y.round()
	y.running(j, 0)
	y.Take()
	y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "the power went"})
	y.pass(time.Minute, "c")

	if n := y.nodeOf(j); n != "" {
		t.Fatalf("after its node was lost it runs on %s", n)
	}

	why, _ := y.Why(y.now, j)
	if why.Blocker != place.BlockClosed ||
		!strings.HasSuffix(why.Sentence, "; c has room, but dataset mri may only be used on local nodes") {
		t.Errorf("it waits for %q: %s", why.Blocker, why.Sentence)
	}

	y.node("b", 4)
	y.pass(10*time.Second, "b", "c")

	if n := y.nodeOf(j); n != "b" {
		t.Errorf("it runs on %q, want b", n)
	}

	if diff := cmp.Diff([]string{"mri by j1.2 of alice on b"}, uses(y.Take())); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
}

func TestDataThatCannotBeHadLetsTheJobTryElsewhere(t *testing.T) {
	t.Parallel()
	y := hybrid(t)
	y.rule("mri", job.PlaceAny)
	j := y.submit("alice", using("mri"))
	y.round()
	first := y.nodeOf(j)
	y.report(j, 0, yardmaster.RankReport{State: job.RunPreparing, Reason: "fetching dataset mri: 1GB of 2GB"})
	y.report(j, 0, yardmaster.RankReport{State: job.RunPreparing, Reason: "fetching dataset mri: 2GB of 2GB"})

	if runs := y.Take().Runs; len(runs) == 0 || runs[len(runs)-1].Ranks[0].Reason != "fetching dataset mri: 2GB of 2GB" {
		t.Errorf("runs %+v, want them to say how far the data is", runs)
	}

	y.report(
		j,
		0,
		yardmaster.RankReport{
			State:  job.RunEnded,
			Cause:  job.CauseDataFailed,
			Reason: "cannot stage dataset mri on this node: 404",
			Ended:  y.now,
		},
	)

	got := y.job(j)
	if got.State != job.Recovering || got.Cause != job.CauseDataFailed ||
		!strings.HasPrefix(got.Reason, "cannot stage dataset mri on this node: 404; retry in") {
		t.Errorf("the job is %s because of %s: %s", got.State, got.Cause, got.Reason)
	}

	y.pass(10*time.Second, "a", "c")

	if n := y.nodeOf(j); n == first || n == "" {
		t.Errorf("it runs on %q again", n)
	}

	for range 2 {
		y.report(j, 0, yardmaster.RankReport{State: job.RunEnded, Cause: job.CauseDataFailed, Reason: "no", Ended: y.now})
		y.pass(time.Minute, "a", "c")
	}

	if got := y.job(j); got.State != job.Paused || got.Cause != job.CauseDataFailed || len(y.open()) != 1 {
		t.Errorf("after three failures the job is %s, asked %+v", got.State, y.open())
	}
}

func TestAPlanCannotMoveDataWhereItMayNotBe(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		change func(y *yard)
		moves  bool
	}{
		"by the rule it began with": {func(*yard) {}, false},
		"by a rule that came later": {func(y *yard) {
			y.rule("mri", job.PlaceAny)
			y.rule("mri", job.PlaceLocal)
		}, false},
		"but where it is let": {func(y *yard) { y.rule("mri", job.PlaceAny) }, true},
		"nor if it is not registered": {func(y *yard) {
			y.ok(yardmaster.PutDataset{By: "alice", Dataset: dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Removed: true}})
		}, false},
		"but with an override": {func(y *yard) {
			y.ok(yardmaster.Override{Job: "j1", Place: job.PlaceAny, By: "alice", Why: "it is public now"})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, p := scripted(t)
			y.reserved("c", 4)
			y.rule("mri", job.PlaceLocal)
			y.submit("alice", using("mri"))
			y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
			y.runs("a", "j1.1")
			tc.change(y)
			y.Take()

			b := y.plan(p, func(v *place.View) place.Plan {
				r := v.Running[0]
				return place.Plan{Stops: []place.Stop{{Running: r, Reason: "moves"}},
					Starts: []place.Start{{Item: r.Item, Allocations: []place.Allocation{{Node: "c", GPUs: 1}}, Reason: "moves"}}}
			})

			y.check()

			stopped := len(b.Orders) == 1 && b.Orders[0].Stop == job.StopTerm
			if stopped != tc.moves {
				t.Fatalf("orders %+v, events %+v", b.Orders, b.Events)
			}

			if !tc.moves {
				dropped := slices.ContainsFunc(b.Events, func(e yardmaster.Event) bool {
					return e.Kind == "plan.dropped" && strings.Contains(e.Reason, "does not fit on node c")
				})
				if !dropped || y.nodeOf("j1") != "a" {
					t.Errorf("events %+v, want the plan to be dropped", b.Events)
				}

				return
			}

			y.stops("a", "j1.1")

			if n := y.nodeOf("j1"); n != "c" {
				t.Errorf("it is on %q, want c", n)
			}
		})
	}
}

func TestAPromiseIsNotKeptAgainstANewRule(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.reserved("c", 4)
	y.rule("mri", job.PlaceAny)
	y.submit("alice", using("mri"))
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")

	y.plan(p, func(v *place.View) place.Plan {
		r := v.Running[0]
		return place.Plan{Stops: []place.Stop{{Running: r, Reason: "moves"}},
			Starts: []place.Start{{Item: r.Item, Allocations: []place.Allocation{{Node: "c", GPUs: 1}}, Reason: "moves"}}}
	})

	y.rule("mri", job.PlaceLocal)
	y.stops("a", "j1.1")
	y.check()

	if n := y.nodeOf("j1"); n != "" || yardmaster.PromiseCount(y.Yard) > 0 {
		t.Errorf("it is on %q with %d promises, want it to wait", n, yardmaster.PromiseCount(y.Yard))
	}

	if b := y.plan(p, func(v *place.View) place.Plan { return startOn(v, "c", 1) }); len(b.Orders) > 0 {
		t.Errorf("a plan put it onto c: %+v", b.Orders)
	}

	if b := y.plan(p, func(v *place.View) place.Plan { return startOn(v, "b", 1) }); len(b.Orders) != 1 {
		t.Errorf("a plan could not put it onto b: %+v", b.Events)
	}
}

func TestARuleThatChangesWhileJobsWait(t *testing.T) {
	t.Parallel()
	y := hybrid(t)
	y.rule("mri", job.PlaceLocal)
	blocker := spec(4)
	blocker.Place = job.PlaceLocal
	y.submit("alice", blocker)
	y.round()
	j := y.submit("alice", using("mri"))
	y.round()

	why, _ := y.Why(y.now, j)
	if want := "1 GPU and 1 CPU needed, not free on a, the only suitable node; next in the queue, a is reserved for it; c has room, but dataset mri may only be used on local nodes"; why.Sentence != want {
		t.Errorf("told %q, want %q", why.Sentence, want)
	}

	if brief := y.Briefs(y.now, []id.Job{j})[0].WaitReason; !strings.Contains(
		brief,
		"dataset mri may only be used on local nodes",
	) {
		t.Errorf("a list says %q", brief)
	}

	y.rule("mri", job.PlaceCloud)
	y.round()

	if n := y.nodeOf(j); n != "c" {
		t.Errorf("it is on %q, want c", n)
	}

	y.check()
}

func TestARuleThatChangesWhileJobsRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.reserved("c", 9)
	y.rule("mri", job.PlaceAny)
	j := y.submit("alice", using("mri"))
	let := y.submit("alice", using("mri"))
	other := y.submit("alice", spec(1))
	y.ok(yardmaster.Override{Job: let, Place: job.PlaceAny, By: "alice", Why: "the owner agreed"})
	y.round()

	for _, r := range []id.Job{j, let, other} {
		y.running(r, 0)
	}

	y.Take()
	y.rule("mri", job.PlaceLocal)
	y.check()

	b := y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Job != j || b.Orders[0].Stop != job.StopTerm {
		t.Fatalf("orders %+v, want the stop of %s alone", b.Orders, j)
	}

	want := "dataset mri may only be used on local nodes (changed by alice: place changed from any to local); c is a reserved node"
	if !slices.ContainsFunc(
		b.Events,
		func(e yardmaster.Event) bool { return e.Kind == "run.stopping" && e.Job == j && e.Reason == want },
	) {
		t.Errorf("events %+v, want one that says %q", b.Events, want)
	}

	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, ExitCode: 143, Signalled: true})

	if got := y.job(j); got.State != job.Recovering || got.Reason != want+"; requeued" {
		t.Errorf("the job is %s: %s", got.State, got.Reason)
	}

	y.round()

	why, _ := y.Why(y.now, j)
	if why.Blocker != place.BlockData ||
		!strings.HasPrefix(why.Sentence, "dataset mri may only be used on local nodes, and the yard has no local node") {
		t.Errorf("it waits for %q: %s", why.Blocker, why.Sentence)
	}

	y.node("a", 4)
	y.round()

	if n := y.nodeOf(j); n != "a" {
		t.Errorf("it is on %q, want a", n)
	}

	// That it is not registered any more stops nobody, and lets nobody begin.
	y.Take()
	y.ok(yardmaster.PutDataset{By: "alice", Dataset: dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Removed: true}})

	if b := y.Take(); len(b.Orders) > 0 {
		t.Errorf("orders %+v", b.Orders)
	}

	y.ok(yardmaster.Pause{Job: j, By: "alice"})
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})
	y.ok(yardmaster.Resume{Job: j, By: "alice"})
	y.round()

	why, _ = y.Why(y.now, j)
	if why.Blocker != place.BlockData || !strings.HasPrefix(why.Sentence, "dataset mri is no longer registered") {
		t.Errorf("it waits for %q: %s", why.Blocker, why.Sentence)
	}

	y.rule("mri", job.PlaceAny)
	y.round()

	if n := y.nodeOf(j); n != "a" {
		t.Errorf("it is on %q when the data is registered again, want a", n)
	}
}

func TestAnOverrideIsWrittenDown(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.reserved("c", 4)
	y.rule("mri", job.PlaceLocal)
	y.rule("free", job.PlaceAny)
	j := y.submit("alice", using("mri", "free"))
	y.round()

	if n := y.nodeOf(j); n != "" {
		t.Fatalf("it is on %s", n)
	}

	y.Take()

	if _, err := y.Step(y.now, yardmaster.Override{Job: j, Place: job.PlaceAny, By: "alice"}); codeOf(err) != "no_reason" {
		t.Errorf("an override without a reason: %v", err)
	}

	y.ok(yardmaster.Override{Job: j, Place: job.PlaceAny, By: "alice", Why: "the owner agreed"})
	y.round()
	b := y.Take()

	if n := y.nodeOf(j); n != "c" {
		t.Fatalf("it is on %q, want c", n)
	}

	if got := y.job(j).Override; got != (job.Override{Place: job.PlaceAny, By: "alice", Why: "the owner agreed",
		At: y.now}) {
		t.Errorf("kept as %+v", got)
	}

	if !slices.ContainsFunc(b.Events, func(e yardmaster.Event) bool { return e.Kind == "data.override" && e.Job == j }) {
		t.Errorf("events %+v", b.Events)
	}

	want := []string{
		"mri by j1.1 of alice on c outside, let by alice: the owner agreed",
		"free by j1.1 of alice on c outside",
	}

	if diff := cmp.Diff(want, uses(b)); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
}

func TestCopiesThatNodesKeepAreKnown(t *testing.T) {
	t.Parallel()
	y := hybrid(t)
	y.rule("mri", job.PlaceAny)
	kept := []job.DataCopy{{Name: "mri", Source: "https://h/mri", Path: "/cache/mri"}}

	on := func() (nodes []id.Node) {
		for _, c := range y.Datasets()[0].Copies {
			nodes = append(nodes, c.Node)
		}

		return nodes
	}

	y.Take()
	y.ok(yardmaster.NodeReport{Node: "a", Data: kept})
	y.ok(yardmaster.NodeReport{Node: "c", Data: kept})

	b := y.Take()
	if !slices.Equal(on(), []id.Node{"a", "c"}) || len(b.Datasets) != 2 || !b.Datasets[1].Copies[1].Staged {
		t.Fatalf("copies on %v, stored %+v", on(), b.Datasets)
	}

	y.ok(yardmaster.NodeReport{Node: "a", Data: kept})

	if b := y.Take(); len(b.Datasets) > 0 || len(b.Events) > 0 {
		t.Errorf("the same again is news: %+v", b)
	}

	y.rule("mri", job.PlaceLocal) // people describe it anew and know nothing of copies

	if !slices.Equal(on(), []id.Node{"a", "c"}) {
		t.Errorf("copies on %v after it was described anew", on())
	}

	y.ok(yardmaster.NodeReport{Node: "c"})

	if !slices.Equal(on(), []id.Node{"a"}) {
		t.Errorf("copies on %v, want none on c", on())
	}

	y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "the power went"})

	if len(on()) > 0 {
		t.Errorf("copies on %v, which is lost", on())
	}

	y.ok(yardmaster.NodeReport{Node: "a", Data: kept})

	if !slices.Equal(on(), []id.Node{"a"}) {
		t.Errorf("copies on %v when a is back", on())
	}

	// A server that starts anew is told, and notices what has gone meanwhile.
	sets := y.Datasets()
	next := newYard(t)
	next.node("a", 4)
	state := next.Take()
	next.Yard = yardmaster.New(yardmaster.Defaults(nil))
	next.Load(next.now, yardmaster.State{Users: state.Users, Tokens: state.Tokens, Nodes: state.Nodes, Datasets: sets})
	next.ok(yardmaster.NodeReport{Node: "a"})

	if copies := next.Datasets()[0].Copies; len(copies) > 0 {
		t.Errorf("a server that starts anew believes in %+v", copies)
	}
}

// Who is no longer a reader of a dataset loses the runs that use it, and their jobs wait.
func TestReadersThatChangeWhileJobsRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 9)

	put := func(readers ...dataset.Reader) {
		y.ok(yardmaster.PutDataset{
			By: "alice", Dataset: dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Source: "/data/mri", Readers: readers},
		})
	}

	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})
	put("bob")

	mine, his := y.submit("alice", using("mri")), y.submit("bob", using("mri"))
	y.round()
	y.running(mine, 0)
	y.running(his, 0)
	y.Take()
	put("carol")
	y.check()

	b := y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Job != his || b.Orders[0].Stop != job.StopTerm {
		t.Fatalf("orders %+v, want the stop of %s alone", b.Orders, his)
	}

	y.ends(his, 0, yardmaster.RankReport{Cause: job.CauseCancelled, ExitCode: 143, Signalled: true})
	y.round()

	want := "dataset mri may no longer be used by bob (changed by alice: readers changed from bob to carol); requeued"
	if got := y.job(his); got.State != job.Recovering || got.Reason != want {
		t.Errorf("the job is %s: %s", got.State, got.Reason)
	}

	why, _ := y.Why(y.now, his)
	if why.Blocker != place.BlockData || why.Sentence != "dataset mri may no longer be used by bob" {
		t.Errorf("it waits for %q: %s", why.Blocker, why.Sentence)
	}

	// An override is about places, not about people.
	y.ok(yardmaster.Override{Job: his, Place: job.PlaceAny, By: "root", Why: "he asked"})
	y.round()

	if n := y.nodeOf(his); n != "" {
		t.Errorf("it runs on %s", n)
	}

	put("bob")
	y.round()

	if n := y.nodeOf(his); n != "a" {
		t.Errorf("it is on %q, want a", n)
	}
}

// The rule of a dataset is that of its data: jobs that use it under another name are stopped, too.
func TestARuleThatChangesUnderAnotherName(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.reserved("c", 9)
	y.rule("mri", job.PlaceAny)
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})
	y.ok(yardmaster.PutDataset{
		By: "bob", Dataset: dataset.Dataset{ID: "loot", Rule: job.PlaceAny, Source: "http://svc:pw@h/mri?x=y"},
	})

	j := y.submit("bob", using("loot"))
	y.round()
	y.running(j, 0)
	y.Take()
	y.rule("mri", job.PlaceLocal)
	y.check()

	b := y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Job != j || b.Orders[0].Stop != job.StopTerm {
		t.Fatalf("orders %+v, want the stop of %s", b.Orders, j)
	}

	want := "dataset loot may only be used on local nodes (dataset mri, which has the same data, changed by alice: " +
		"place changed from any to local); c is a reserved node"
	if !slices.ContainsFunc(b.Events, func(e yardmaster.Event) bool { return e.Job == j && e.Reason == want }) {
		t.Errorf("events %+v, want one that says %q", b.Events, want)
	}
}
