package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

func TestWhatANodeKeepsIsShownWithTheDataset(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	const source = "https://data.example.org/cats.tar"
	_, err := ada.PutDataset(t.Context(), "cats", api.DatasetRequest{Place: job.PlaceLocal, Size: 1 << 30, Source: source})
	y.must(err)
	n := y.join("box1")
	n.listen()
	n.awaitRun(y.using("ada", "cats"), 1)

	report := func(kept ...job.DataCopy) error {
		_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Data: kept})
		return err
	}

	copies := func() []api.Copy {
		d, err := ada.Dataset(t.Context(), "cats")
		y.must(err)
		return d.Copies
	}

	y.must(report(job.DataCopy{Name: "cats", Source: source, Path: "/cache/cats.tar"}))

	if diff := cmp.Diff([]api.Copy{{Node: "box1", Path: "/cache/cats.tar"}}, copies()); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}

	// Who changes the rule of a dataset does not make the nodes forget it.
	_, err = ada.PutDataset(t.Context(), "cats", api.DatasetRequest{Place: job.PlaceAny, Size: 1 << 30, Source: source})
	y.must(err)

	if len(copies()) != 1 {
		t.Errorf("copies %+v after a change", copies())
	}

	// One whose data may be elsewhere only is told to remove it, and so is one that has what nobody knows.
	_, err = ada.PutDataset(t.Context(), "cats", api.DatasetRequest{Place: job.PlaceCloud, Size: 1 << 30, Source: source})
	y.must(err)

	cats, old := job.DataCopy{
		Name:   "cats",
		Source: source,
		Path:   "/c",
	}, job.DataCopy{
		Name:   "old",
		Source: source,
		Path:   "/o",
	}

	reply, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Data: []job.DataCopy{cats, old}})
	y.must(err)

	if diff := cmp.Diff([]job.DataCopy{cats, old}, reply.Purge); diff != "" {
		t.Errorf("to be removed (-want +got):\n%s", diff)
	}

	_, err = ada.PutDataset(t.Context(), "cats", api.DatasetRequest{Place: job.PlaceLocal, Size: 1 << 30, Source: source})
	y.must(err)

	reply, err = n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Data: []job.DataCopy{cats}})
	if err != nil || len(reply.Purge) > 0 {
		t.Errorf("told to remove %v (%v)", reply.Purge, err)
	}

	y.must(report())

	if len(copies()) > 0 {
		t.Errorf("copies %+v, and the node keeps none", copies())
	}

	wantFault(
		t,
		report(job.DataCopy{Name: strings.Repeat("x", 64), Source: source, Path: "/x"}),
		fault.Invalid,
		"bad_request",
	)

	_, err = ada.PutDataset(t.Context(), "dogs", api.DatasetRequest{Place: job.PlaceAny, Source: "s3://bucket/dogs"})
	wantFault(t, err, fault.Invalid, "dataset_source")
}

func TestAJobFileMayNameDataAndABudget(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	_, err := ada.PutDataset(t.Context(), "cats", api.DatasetRequest{Place: job.PlaceCloud, Source: "/data/cats"})
	y.must(err)
	y.join("box1")
	j := y.submit(ada, "run: a\ndata: [cats]\nbudget: $40")[0].ID
	full, err := ada.Job(t.Context(), j)
	y.must(err)

	if full.Why == nil || full.Why.Blocker != "data" ||
		full.Why.Sentence != "dataset cats may only be used on cloud nodes, and the yard has no cloud node" {
		t.Errorf("it waits because of %+v", full.Why)
	}

	if full.Budget != 40_000_000 {
		t.Errorf("its budget is %v", full.Budget)
	}

	_, err = ada.Submit(t.Context(), api.SubmitRequest{File: "run: a\ndata: [dogs]"}, "")
	wantFault(t, err, fault.Invalid, "no_dataset")
}

func TestCredentialsOfASourceAreShownToThoseWhoMayChangeIt(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()

	const source = "https://svc:s3cr3t@nas.example/mri.tar?X-Amz-Signature=abc"
	const redacted = "https://REDACTED@nas.example/mri.tar?REDACTED"

	put, err := ada.PutDataset(t.Context(), "mri", api.DatasetRequest{Place: job.PlaceLocal, Source: source})
	y.must(err)

	if put.Source != source {
		t.Errorf("ada has registered %s", put.Source)
	}

	for c, want := range map[*api.Client]string{ada: source, root: source, bob: redacted} {
		d, err := c.Dataset(t.Context(), "mri")
		y.must(err)

		list, err := c.Datasets(t.Context(), api.Page{})
		y.must(err)

		if d.Source != want || len(list.Datasets) != 1 || list.Datasets[0].Source != want {
			t.Errorf("shown %s and %+v, want %s", d.Source, list.Datasets, want)
		}
	}
}

func TestADatasetWithReadersIsThereForThemAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, eve, root := y.researcher("ada"), y.researcher("bob"), y.researcher("eve"), y.admin()
	_, err := ada.PutDataset(t.Context(), "mri",
		api.DatasetRequest{Place: job.PlaceAny, Source: "/data/mri", Readers: []dataset.Reader{"bob"}})
	y.must(err)

	for c, there := range map[*api.Client]bool{ada: true, bob: true, root: true, eve: false} {
		list, err := c.Datasets(t.Context(), api.Page{})
		y.must(err)

		if (len(list.Datasets) == 1) != there {
			t.Errorf("listed %+v, want it there: %v", list.Datasets, there)
		}

		if _, err := c.Dataset(t.Context(), "mri"); (err == nil) != there {
			t.Errorf("shown: %v, want it there: %v", err, there)
		}
	}

	for c, may := range map[*api.Client]bool{ada: true, bob: true, root: false, eve: false} {
		for _, dry := range []bool{true, false} {
			_, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a\ndata: [mri]", DryRun: dry}, "")
			if (err == nil) != may {
				t.Errorf("submitted (dry run %v): %v, want it accepted: %v", dry, err, may)
			}
		}
	}

	_, err = eve.Submit(t.Context(), api.SubmitRequest{File: "run: a\ndata: [mri]"}, "")
	_, absent := eve.Submit(t.Context(), api.SubmitRequest{File: "run: a\ndata: [mrx]"}, "")

	if err == nil || strings.ReplaceAll(err.Error(), "mri", "mrx") != absent.Error() {
		t.Errorf("mri: %v; one that is not registered: %v", err, absent)
	}

	// A client that knows of no readers changes none.
	d, err := ada.PutDataset(t.Context(), "mri", api.DatasetRequest{Place: job.PlaceAny, Source: "/data/mri"})
	if err != nil || !slices.Equal(d.Readers, []dataset.Reader{"bob"}) {
		t.Errorf("readers %v (%v) after a change of something else", d.Readers, err)
	}

	// And it can be opened to everybody.
	_, err = ada.PutDataset(t.Context(), "mri",
		api.DatasetRequest{Place: job.PlaceAny, Source: "/data/mri", Readers: []dataset.Reader{api.Everybody}})
	y.must(err)
	y.submit(eve, "run: a\ndata: [mri]")
}

func TestTheNameOfARemovedDatasetCannotBeTaken(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n := y.join("box1")
	n.listen()

	_, err := ada.PutDataset(t.Context(), "mri", api.DatasetRequest{Place: job.PlaceLocal, Source: "/data/mri"})
	y.must(err)
	n.awaitRun(y.using("ada", "mri"), 1)
	y.must(ada.RemoveDataset(t.Context(), "mri"))

	_, err = bob.PutDataset(t.Context(), "mri", api.DatasetRequest{Place: job.PlaceAny, Source: "https://evil.example/x"})
	wantFault(t, err, fault.Denied, "not_allowed")
	_, err = bob.AuditDataset(t.Context(), "mri", 0)
	wantFault(t, err, fault.Denied, "not_allowed")

	audit, err := ada.AuditDataset(t.Context(), "mri", 0)
	if err != nil || len(audit.Uses) != 1 {
		t.Errorf("ada's audit of what she has removed: %+v (%v)", audit, err)
	}

	_, err = ada.PutDataset(t.Context(), "mri", api.DatasetRequest{Place: job.PlaceLocal, Source: "/data/mri"})
	y.must(err)
}
