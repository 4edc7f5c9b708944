package datasets_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/datasets"
)

var now = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

var (
	here  = &fleet.Node{ID: "here", Class: fleet.Local}
	there = &fleet.Node{ID: "there", Class: fleet.OnDemand}
)

// member says that only dan is in the project vision.
func member(u id.User, p id.Project) bool { return u == "dan" && p == "vision" }

func shelf(t *testing.T, sets ...dataset.Dataset) *datasets.Datasets {
	t.Helper()
	d := datasets.New(dataset.DefaultNetwork(), &batch.Feed{}, member)
	for _, set := range sets {
		if _, _, err := d.Put(now, set, "ada"); err != nil {
			t.Fatal(err)
		}
	}

	d.Take(&batch.Batch{})

	return d
}

func TestARuleIsSaidWhenItIsAnotherOne(t *testing.T) {
	t.Parallel()
	d := shelf(t)
	for _, step := range []struct {
		name string
		set  dataset.Dataset
		want string
	}{
		{"new", dataset.Dataset{ID: "mri", Rule: job.PlaceLocal}, "registered by ada"},
		{"another size", dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Size: 1}, ""},
		{"another rule", dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Size: 1},
			"changed by ada: place changed from local to any"},
		{"another source", dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Source: "https://a:b@nas/x?c"}, ""},
		{"readers", dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Readers: []dataset.Reader{"bob"}},
			"changed by ada: readers " +
				"changed from everybody to bob; source changed from https://REDACTED@nas/x?REDACTED to none"},
		{"removed", dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Removed: true}, "removed by ada"},
	} {
		put, changes, err := d.Put(now, step.set, "ada")
		ruled := ""
		if len(changes) > 0 {
			ruled = changes[0].Words
		}

		if err != nil || ruled != step.want || len(changes) > 1 {
			t.Errorf("%s: %q, want %q: %v", step.name, ruled, step.want, err)
		}

		if put.Owner != "ada" || !put.Created.Equal(now) {
			t.Errorf("%s: put as %+v", step.name, put)
		}
	}

	if _, _, err := d.Put(now, dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Removed: true}, "ada"); err == nil {
		t.Error("removed twice")
	}

	var b batch.Batch
	d.Take(&b)
	if n := len(b.Datasets); n != 6 || b.Datasets[5].Seq != 6 {
		t.Errorf("%d changes are to be stored: %+v", n, b.Datasets)
	}
}

func TestWhereAJobMayRunByTheRulesOfItsData(t *testing.T) {
	t.Parallel()
	d := shelf(
		t,
		dataset.Dataset{ID: "mri", Rule: job.PlaceLocal},
		dataset.Dataset{ID: "web", Rule: job.PlaceAny},
		dataset.Dataset{ID: "lake", Rule: job.PlaceCloud},
	)

	for _, c := range []struct {
		name string
		job  job.Job
		want job.Place
		rule bool // one is named that binds
	}{
		{"no data", job.Job{Spec: &job.Spec{Place: job.PlaceAny}}, job.PlaceAny, false},
		{"data that may be anywhere", job.Job{Spec: &job.Spec{Place: job.PlaceCloud, Data: []string{"web"}}},
			job.PlaceCloud, false},
		{"data that stays", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"web", "mri"}}},
			job.PlaceLocal, true},
		{"data that cannot meet", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"lake", "mri"}}},
			job.PlaceNowhere, true},
		{"data that is gone", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"old"}}}, job.PlaceNowhere, true},
		{"overridden", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"mri"}},
			Override: job.Override{Place: job.PlaceCloud}}, job.PlaceCloud, false},
	} {
		if got, rule := d.Place(&c.job), d.Rule(&c.job); got != c.want || (rule != "") != c.rule {
			t.Errorf("%s: %s by %q, want %s", c.name, got, rule, c.want)
		}
	}
}

func TestAnOverrideIsInTheAuditOnlyWhereItWasNeeded(t *testing.T) {
	t.Parallel()
	d := shelf(t, dataset.Dataset{ID: "mri", Rule: job.PlaceLocal})

	j := &job.Job{
		ID:       "j1",
		Owner:    "ada",
		Spec:     &job.Spec{},
		Override: job.Override{Place: job.PlaceAny, By: "root", Why: "it is urgent"},
	}

	d.RecordUse(now, j, "mri", "j1.1", here)
	d.RecordUse(now, j, "mri", "j1.2", there)
	var b batch.Batch
	d.Take(&b)

	want := []dataset.Use{
		{Dataset: "mri", Run: "j1.1", Job: "j1", Owner: "ada", Node: "here", At: now},
		{
			Dataset:  "mri",
			Run:      "j1.2",
			Job:      "j1",
			Owner:    "ada",
			Node:     "there",
			Cloud:    true,
			At:       now,
			Override: "root: it is urgent",
		},
	}

	if diff := cmp.Diff(want, b.Uses); diff != "" {
		t.Errorf("uses:\n%s", diff)
	}

	set, _ := d.Get("mri")
	if !d.Allows(set, j, there) || d.Allows(set, &job.Job{}, there) ||
		!d.Allows(set, &job.Job{}, here) {
		t.Error("who may use it where is wrong")
	}
}

func TestWhatANodeKeepsIsNewsOnce(t *testing.T) {
	t.Parallel()
	const source = "https://example.org/mri.tar"
	d := shelf(t, dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Source: source})
	kept := []job.DataCopy{{Name: "mri", Source: source, Path: "/data/mri"}}

	has := func() bool {
		set, _ := d.Get("mri")
		return set.Has(place.SpotOf(here))
	}

	if d.SetCopies(now, here.ID, nil) {
		t.Error("that it keeps nothing is news")
	}

	if !d.SetCopies(now, here.ID, kept) || d.SetCopies(now, here.ID, kept) || !has() {
		t.Errorf("that it keeps one is news once; it has it: %v", has())
	}

	if got := d.Misplaced(here, kept); len(got) != 0 {
		t.Errorf("misplaced on a local node: %v", got)
	}

	if got := d.Misplaced(there, kept); len(got) != 1 {
		t.Errorf("misplaced on a provisioned node: %v", got)
	}

	if !d.ForgetCopies(now, here.ID) || has() {
		t.Errorf("that it is lost is news; it has it: %v", has())
	}

	if !d.SetCopies(now, here.ID, kept) || !has() {
		t.Errorf("when it is heard again that is news; it has it: %v", has())
	}
}

// A name belongs to who registered it first: its record of uses is kept under it, and jobs may still have it.
func TestANameBelongsToItsOwnerAlsoAfterItWasRemoved(t *testing.T) {
	t.Parallel()
	d := shelf(t, dataset.Dataset{ID: "mri", Rule: job.PlaceLocal})
	if _, _, err := d.Put(now, dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Removed: true}, "ada"); err != nil {
		t.Fatal(err)
	}

	var b batch.Batch
	d.Take(&b)

	again := datasets.New(dataset.DefaultNetwork(), &batch.Feed{}, member)
	again.Load(&batch.State{Datasets: b.Datasets})

	for name, d := range map[string]*datasets.Datasets{"at once": d, "after a restart": again} {
		if owner := d.Owner("mri"); owner != "ada" {
			t.Errorf("%s it belongs to %q", name, owner)
		}

		put, _, err := d.Put(now, dataset.Dataset{ID: "mri", Rule: job.PlaceAny}, "root")
		if err != nil || put.Owner != "ada" || put.Seq != 3 {
			t.Errorf("%s registered as %+v (%v)", name, put, err)
		}
	}

	if owner := d.Owner("other"); owner != "" {
		t.Errorf("a free name belongs to %q", owner)
	}
}

// The rule is about the data, so that another name for the same data does not lead around it.
func TestAChangedRuleIsThatOfAllNamesOfTheData(t *testing.T) {
	t.Parallel()
	d := shelf(
		t,
		dataset.Dataset{ID: "loot", Rule: job.PlaceAny, Source: "file:///data/mri/2026"},
		dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Source: "/data/mri"},
		dataset.Dataset{ID: "other", Rule: job.PlaceAny, Source: "/data/mri2"},
	)
	set := dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Source: "/data/mri"}

	_, changes, err := d.Put(now, set, "ada")
	if err != nil || len(changes) != 2 || changes[1].Dataset.ID != "loot" ||
		changes[1].Words != "dataset mri, which has the same data, changed by ada: place changed from any to local" {
		t.Errorf("changes %+v (%v)", changes, err)
	}

	j := &job.Job{Owner: "bob", Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"loot"}}}
	loot, _ := d.Get("loot")

	if got := d.Place(j); got != job.PlaceLocal || d.Allows(loot, j, there) || !d.Allows(loot, j, here) {
		t.Errorf("the job may run on %s nodes", got)
	}

	want := "dataset loot may only be used on local nodes, by the rule of dataset mri, which has the same data"
	if got := d.Rule(j); got != want {
		t.Errorf("told %q, want %q", got, want)
	}

	if got := d.Misplaced(there, []job.DataCopy{{Name: "loot", Source: loot.Source}}); len(got) != 1 {
		t.Error("a copy may stay where the data must not be")
	}
}

func TestOnlyReadersUseADataset(t *testing.T) {
	t.Parallel()
	d := shelf(t, dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Readers: []dataset.Reader{"bob", "project/vision"}})

	for user, want := range map[id.User]job.Place{
		"ada": job.PlaceAny, "bob": job.PlaceAny, "dan": job.PlaceAny, "eve": job.PlaceNowhere, "vision": job.PlaceNowhere,
	} {
		j := &job.Job{Owner: user, Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"mri"}}}
		j.Override.Place = job.PlaceAny

		if got := d.Place(j); got != want {
			t.Errorf("the job of %s may run on %s nodes, want %s", user, got, want)
		}

		if err := d.CheckReaders(user, j.Spec.Data); (err == nil) != (want == job.PlaceAny) {
			t.Errorf("%s submits: %v", user, err)
		}
	}
}
