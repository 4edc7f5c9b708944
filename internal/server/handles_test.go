package server

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Newcomer (c) 8: a job is found by its name, by name@last and by @last wherever its id is taken.
func TestJobsAreFoundByTheirNames(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()

	big := "\nrun: a\nresources: {memory: 900GB}"
	y.submit(ada, "name: prep"+big)  // j1
	y.submit(ada, "name: prep"+big)  // j2
	y.submit(ada, "name: train"+big) // j3
	y.submit(bob, "name: train"+big) // j4
	y.submit(bob, "name: j1"+big)    // j5
	y.submit(bob, "name: only"+big)  // j6

	cancel := func(c *api.Client, handle id.Job) {
		t.Helper()
		_, err := c.CancelJob(t.Context(), handle)
		y.must(err)
	}
	find := func(c *api.Client, handle string) string {
		t.Helper()
		found, err := c.FindJob(t.Context(), handle)
		if err != nil {
			return err.Error()
		}

		return string(found)
	}
	check := func(c *api.Client, handle, want string) {
		t.Helper()

		if got := find(c, handle); !strings.Contains(got, want) {
			t.Errorf("%s is %q, want %q", handle, got, want)
		}
	}

	check(ada, "prep@last", "j2")
	check(ada, "prep", "several active jobs are called prep: j2 (ada, PENDING), j1 (ada, PENDING)")
	check(ada, "@last", "j3")
	check(bob, "@last", "j6")
	check(ada, "train", "j3")        // her own, though bob has one too
	check(bob, "train", "j4")        //
	check(root, "train", "j4 (bob")  // and who has none is asked which
	check(root, "train@last", "j4")  //
	check(root, "only", "j6")        //
	check(bob, "j1@last", "j5")      // what looks like an id is one
	check(ada, "only", "not found")  // of others nothing is known
	check(root, "@last", "you have") // submitted nothing
	check(ada, "nobody@last", "not found")

	cancel(ada, "prep@last")
	check(ada, "prep", "j1") // the only one that has not ended
	cancel(ada, "prep")
	check(ada, "prep", "j2") // the newest, if all have

	// All calls about a job take them, and so do lists.
	detail, err := ada.Job(t.Context(), "train")
	y.must(err)

	logs, err := ada.Logs(t.Context(), "train@last", api.LogFilter{})
	y.must(err)

	if detail.ID != "j3" || len(logs.Lines) > 0 {
		t.Errorf("train is %s with %d lines of output", detail.ID, len(logs.Lines))
	}

	_, err = ada.Metrics(t.Context(), "@last")
	y.must(err)

	events, err := ada.Events(t.Context(), api.EventFilter{Job: "prep@last"})
	y.must(err)

	for _, e := range events.Events {
		if e.Job != "j2" {
			t.Errorf("an event of %s is listed for the newest job called prep, which is j2", e.Job)
		}
	}

	if len(events.Events) < 2 {
		t.Errorf("%d events of a job that was submitted and cancelled", len(events.Events))
	}

	_, err = ada.Job(t.Context(), "Not A Name")
	wantFault(t, err, fault.NotFound, "job_not_found")

	for range 11 {
		y.submit(bob, "name: many"+big)
	}

	check(bob, "many", "j8 (bob, PENDING), and more") // of the newest ten
}

// Newcomer 22: --state takes every word that STATUS shows; and jobs are counted by it.
func TestJobsAreChosenAndCountedByTheirStatus(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")

	y.submit(ada, "name: a\nrun: a\nresources: {memory: 900GB}\n---\nname: b\nrun: b\nneeds: [a]") // j1, j2
	y.submit(ada, "run: c\nresources: {memory: 900GB}")                                            // j3
	_, err := ada.CancelJob(t.Context(), "j1")
	y.must(err)

	for word, want := range map[string][]id.Job{
		"cancelled": {"j2", "j1"},
		"CANCELLED": {"j2", "j1"},
		"failed":    {},
		"timeout":   {},
		"pending":   {"j3"},
	} {
		page, err := ada.Jobs(t.Context(), api.JobFilter{States: []job.State{job.State(word)}})
		y.must(err)

		if diff := cmp.Diff(want, ids(page.Jobs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", word, diff)
		}

		if page.Counts != nil {
			t.Errorf("%s: counted without being asked", word)
		}
	}

	page, err := ada.Jobs(t.Context(), api.JobFilter{Counts: true, Page: api.Page{Limit: 1, Cursor: "j2"}})
	y.must(err)

	want := []api.JobCount{{Status: job.StatusPending, Jobs: 1}, {Status: job.StatusCancelled, Jobs: 2}}
	if diff := cmp.Diff(want, page.Counts); diff != "" {
		t.Errorf("counts, whatever the page (-want +got):\n%s", diff)
	}

	_, err = ada.Jobs(t.Context(), api.JobFilter{States: []job.State{"asleep"}})
	wantFault(t, err, fault.Invalid, "unknown_state")
}

// Newcomer (c) 11: what a job file calls a job of another file is looked up when it is submitted.
func TestNeedsAreLookedUpAtSubmission(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")

	big := "\nrun: a\nresources: {memory: 900GB}"
	y.submit(ada, "name: prep"+big) // j1
	y.submit(ada, "name: prep"+big) // j2

	jobs := y.submit(ada, "name: one\nrun: b\nneeds: [prep@last, j1]\n---\nname: two\nrun: c\nneeds: [one, j2]\nafter: any")
	if diff := cmp.Diff([][]id.Job{{"j2", "j1"}, {"j3", "j2"}}, [][]id.Job{jobs[0].Needs, jobs[1].Needs}); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}

	plan, err := ada.Submit(t.Context(), api.SubmitRequest{File: "run: a\nneeds: prep@last", DryRun: true}, "")
	y.must(err)

	if why := plan.Plan[0].Why; why.Blocker != "needs" || why.Sentence != "waiting for required job j2" {
		t.Errorf("dry run: %+v", why)
	}

	_, err = ada.CancelJob(t.Context(), "j2")
	y.must(err)

	for file, code := range map[string]string{
		"run: a\nneeds: nobody@last": "unknown_need",
		"run: a\nneeds: j99":         "unknown_need",
		"run: a\nneeds: prep":        "unknown_need", // a plain name is of the same file
		"run: a\nneeds: j2":          "need_failed",
		"run: a\nafter: any":         "missing_value",
	} {
		_, err := ada.Submit(t.Context(), api.SubmitRequest{File: file}, "")
		wantFault(t, err, fault.Invalid, code)

		_, err = ada.Submit(t.Context(), api.SubmitRequest{File: file, DryRun: true}, "")
		wantFault(t, err, fault.Invalid, code)
	}

	_, err = bob.Submit(t.Context(), api.SubmitRequest{File: "run: a\nneeds: j1"}, "") // he may not see it
	wantFault(t, err, fault.Invalid, "unknown_need")

	if jobs := y.submit(ada, "run: a\nneeds: j2\nafter: any"); len(jobs[0].Needs) > 0 {
		t.Errorf("waits for %v, which have ended", jobs[0].Needs)
	}
}
