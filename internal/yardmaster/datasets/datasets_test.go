package datasets_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
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

func shelf(t *testing.T, sets ...dataset.Dataset) *datasets.Datasets {
	t.Helper()
	d := datasets.New(dataset.DefaultNetwork(), &batch.Feed{})
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
		{"another rule", dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Size: 1}, "changed by ada: place changed from local to any"},
		{"removed", dataset.Dataset{ID: "mri", Rule: job.PlaceAny, Removed: true}, "removed by ada"},
	} {
		put, ruled, err := d.Put(now, step.set, "ada")
		if err != nil || ruled != step.want {
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
	if n := len(b.Datasets); n != 4 || b.Datasets[3].Seq != 4 {
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
		{"data that may be anywhere", job.Job{Spec: &job.Spec{Place: job.PlaceCloud, Data: []string{"web"}}}, job.PlaceCloud, false},
		{"data that stays", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"web", "mri"}}}, job.PlaceLocal, true},
		{"data that cannot meet", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"lake", "mri"}}}, job.PlaceNowhere, true},
		{"data that is gone", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"old"}}}, job.PlaceNowhere, true},
		{"overridden", job.Job{Spec: &job.Spec{Place: job.PlaceAny, Data: []string{"mri"}}, Override: job.Override{Place: job.PlaceCloud}}, job.PlaceCloud, false},
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
	if !datasets.Allows(set, j, there) || datasets.Allows(set, &job.Job{}, there) ||
		!datasets.Allows(set, &job.Job{}, here) {
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
