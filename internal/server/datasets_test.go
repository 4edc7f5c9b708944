package server

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
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
