package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

func TestSchedulesAreListedAndStopped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()
	file := api.SubmitRequest{File: "name: nightly\nrun: a\nevery: \"0 3 * * *\"\n---\nname: report\nrun: b\nneeds: nightly"}

	first, err := ada.Submit(t.Context(), file, "key")
	y.must(err)

	again, err := ada.Submit(t.Context(), file, "key")
	y.must(err)

	if len(first.Jobs) > 0 || first.Schedule == nil || again.Schedule == nil || again.Schedule.ID != first.Schedule.ID {
		t.Fatalf("submitted %+v, and again %+v: want one schedule and no job", first, again)
	}

	if s := first.Schedule; s.Name != "nightly" || s.Jobs != 2 || s.Next == nil || s.Overlap != "skip" {
		t.Errorf("schedule %+v", s)
	}

	_, err = bob.Submit(t.Context(), api.SubmitRequest{File: "run: a\nevery: 2h\noverlap: allow"}, "")
	y.must(err)

	list := func(c *api.Client, f api.ScheduleFilter) []id.Schedule {
		page, err := c.Schedules(t.Context(), f)
		y.must(err)

		ids := []id.Schedule{}
		for i := range page.Schedules {
			ids = append(ids, page.Schedules[i].ID)
		}

		return ids
	}

	_, err = ada.StopSchedule(t.Context(), "s2")
	wantFault(t, err, fault.NotFound, "schedule_not_found") // of others nothing is known

	stopped, err := ada.StopSchedule(t.Context(), "s1")
	y.must(err)

	if stopped.Next != nil || stopped.StoppedBy != "ada" {
		t.Errorf("stopped %+v", stopped)
	}

	for name, tt := range map[string]struct{ got, want []id.Schedule }{
		"own":              {list(ada, api.ScheduleFilter{}), []id.Schedule{}},
		"own, all":         {list(ada, api.ScheduleFilter{All: true}), []id.Schedule{"s1"}},
		"of everybody":     {list(root, api.ScheduleFilter{All: true}), []id.Schedule{"s1", "s2"}},
		"of one":           {list(root, api.ScheduleFilter{Owner: "bob"}), []id.Schedule{"s2"}},
		"the first":        {list(root, api.ScheduleFilter{All: true, Page: api.Page{Limit: 1}}), []id.Schedule{"s1"}},
		"behind the first": {list(root, api.ScheduleFilter{All: true, Page: api.Page{Cursor: "s1"}}), []id.Schedule{"s2"}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	for file, code := range map[string]string{
		"run: a\nevery: 10s":                                     "bad_value",
		"run: a\nevery: \"61 * * * *\"":                          "bad_value",
		"run: a\noverlap: allow":                                 "missing_value",
		"run: a\nevery: 6h\ndeadline: 2099-01-01T09:00":          "conflict",
		"run: a\nevery: 6h\nneeds: j1":                           "conflict",
		"name: a\nrun: a\n---\nname: b\nrun: b\nevery: 6h":       "conflict",
		"run: a\nevery: 6h\nresources: {gpus: 1}\npriority: 101": "bad_value",
	} {
		_, err := ada.Submit(t.Context(), api.SubmitRequest{File: file}, "")
		wantFault(t, err, fault.Invalid, code)
	}
}
