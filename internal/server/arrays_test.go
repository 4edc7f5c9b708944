package server

import (
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// 10,000 elements are one request, one job file and one stored array; one call cancels them, and the same key submits
// them once. How long it takes is measured in BenchmarkSubmitArray.
func TestTenThousandElementsAreOneRequest(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	y.submit(ada, "name: before\nrun: a")

	file := api.SubmitRequest{File: "name: sweep\nrun: train {{array.value}}\narray: 0..9999%10\n"}
	reply, err := ada.Submit(t.Context(), file, "key")
	y.must(err)

	if len(reply.Jobs) != 0 || len(reply.Arrays) != 1 {
		t.Fatalf("submitted %d jobs and %+v", len(reply.Jobs), reply.Arrays)
	}

	array := reply.Arrays[0]
	if array.ID != "a2" || array.Size != 10_000 || array.Limit != 10 || array.First != "j2" || array.Last != "j10001" ||
		array.Values != "0..9999%10" || array.Count(job.StatusPending) != 10_000 {
		t.Errorf("the array is %+v", array)
	}

	again, err := ada.Submit(t.Context(), file, "key")
	y.must(err)

	if !again.Replay || len(again.Arrays) != 1 || again.Arrays[0].ID != "a2" || again.Arrays[0].Size != 10_000 {
		t.Errorf("submitted again: %+v", again)
	}

	element, err := ada.Job(t.Context(), "j4001")
	y.must(err)

	if element.Array != "a2" || element.Index == nil || *element.Index != 3999 || element.Value != "3999" ||
		element.Name != "sweep" || element.State != job.Pending {
		t.Errorf("an element is %+v", element.Job)
	}
	if want := "at most 10 elements of a2 run at the same time: 0 running, 10 queued; 3,989 elements before it"; element.
		Why == nil || element.Why.Sentence != want {
		t.Errorf("it waits because of %+v", element.Why)
	}

	single, err := ada.Jobs(t.Context(), api.JobFilter{Single: true})
	y.must(err)

	if len(single.Jobs) != 1 || single.Jobs[0].ID != "j1" {
		t.Errorf("jobs outside of arrays: %v", ids(single.Jobs))
	}

	done, err := ada.ChangeArray(t.Context(), "a2", "cancel")
	y.must(err)

	if done.Changed != 10_000 || done.Refused != 0 || done.Array.Ended == nil ||
		done.Array.Count(job.StatusCancelled) != 10_000 {
		t.Errorf("cancelled: %+v", done)
	}

	done, err = ada.ChangeArray(t.Context(), "a2", "kill")
	y.must(err)

	if done.Changed != 0 {
		t.Errorf("killed after the end: %+v", done)
	}
}

func TestArraysAreListedWithTheirElements(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()

	submit := func(c *api.Client, file string) api.Array {
		t.Helper()
		reply, err := c.Submit(t.Context(), api.SubmitRequest{File: file}, "")
		y.must(err)

		return reply.Arrays[0]
	}

	first := submit(ada, "name: first\nrun: a\narray: [x, y, z]")
	second := submit(ada, "name: second\nrun: a\narray: 1..2")
	others := submit(bob, "name: other\nrun: a\narray: 1..2")

	_, err := ada.ChangeArray(t.Context(), first.ID, "cancel")
	y.must(err)

	list := func(c *api.Client, f api.ArrayFilter) string {
		t.Helper()
		page, err := c.Arrays(t.Context(), f)
		y.must(err)

		text := ""
		for _, a := range page.Arrays {
			text += fmt.Sprint(a.ID, " ")
		}

		return text + page.Next
	}

	for _, tt := range []struct {
		name   string
		client *api.Client
		filter api.ArrayFilter
		want   string
	}{
		{"all of one's own", ada, api.ArrayFilter{}, "a4 a1 "},
		{"all", root, api.ArrayFilter{}, "a6 a4 a1 "},
		{"those that have not ended", ada, api.ArrayFilter{Active: true}, "a4 "},
		{"by name", root, api.ArrayFilter{Name: "O"}, "a6 a4 "},
		{"a page", root, api.ArrayFilter{Page: api.Page{Limit: 2}}, "a6 a4 a4"},
		{"the next page", root, api.ArrayFilter{Page: api.Page{Limit: 2, Cursor: "a4"}}, "a1 "},
		{"of a user", root, api.ArrayFilter{Owner: "bob"}, "a6 "},
	} {
		if got := list(tt.client, tt.filter); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}

	page, err := ada.Jobs(t.Context(), api.JobFilter{Array: first.ID, Oldest: true, Counts: true})
	y.must(err)

	if len(page.Jobs) != 3 || page.Jobs[1].Value != "y" || len(page.Counts) != 1 || page.Counts[0].Jobs != 3 {
		t.Errorf("the elements of %s are %v, %v", first.ID, ids(page.Jobs), page.Counts)
	}

	// Of somebody else nothing is known, and nothing is changed.
	_, err = ada.Array(t.Context(), others.ID)
	wantFault(t, err, fault.NotFound, "array_not_found")
	_, err = ada.ChangeArray(t.Context(), others.ID, "cancel")
	wantFault(t, err, fault.NotFound, "array_not_found")
	_, err = ada.Array(t.Context(), "a2")
	wantFault(t, err, fault.NotFound, "array_not_found")

	changed, err := root.ChangeArray(t.Context(), second.ID, "pause")
	y.must(err)

	if changed.Changed != 2 || changed.Array.Count(job.StatusPaused) != 2 {
		t.Errorf("paused: %+v", changed)
	}
}

func TestParametersComeWithTheRequest(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")

	file := api.SubmitRequest{File: "run: train {{lr}}\nparams: {lr: 0.1}\narray: [a, b]"}
	file.Params = map[string]string{"lr": "0.3"}
	reply, err := ada.Submit(t.Context(), file, "")
	y.must(err)

	detail, err := ada.Job(t.Context(), reply.Arrays[0].Last)
	y.must(err)

	if want := `"params":{"lr":0.3}`; !strings.Contains(string(detail.Spec), want) {
		t.Errorf("the job file is %s, want %s", detail.Spec, want)
	}

	file.Params = map[string]string{"rate": "1"}
	_, err = ada.Submit(t.Context(), file, "")
	wantFault(t, err, fault.Invalid, "unknown_param")

	file.Params, file.DryRun = nil, true
	plan, err := ada.Submit(t.Context(), file, "")
	y.must(err)

	if len(plan.Plan) != 1 || plan.Plan[0].Elements != 2 {
		t.Errorf("the plan is %+v", plan.Plan)
	}
}

// BenchmarkSubmitArray measures one request of 10,000 elements to a server on SQLite: from the call to the answer,
// which is given when they are stored.
func BenchmarkSubmitArray(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		y := newYard(b)
		ada := y.researcher("ada")
		b.StartTimer()

		reply, err := ada.Submit(b.Context(), api.SubmitRequest{File: "run: train {{array.value}}\narray: 0..9999%10"}, "key")
		if err != nil || reply.Arrays[0].First != id.Job("j1") {
			b.Fatal(reply, err)
		}
	}
}
