package sql

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
)

// Whether few jobs are sorted or the index of the column is followed makes no difference to a list.
func TestSortedListsAreTheSameEitherWay(t *testing.T) {
	t.Parallel()

	filters := []store.JobFilter{
		{Owner: "u3"},
		{Owner: "u3", Projects: []id.Project{"p1"}},
		{Project: "p1", States: []job.State{job.Succeeded}},
		{Statuses: []job.Status{job.StatusOutOfMemory, job.StatusFailed}},
		{States: []job.State{job.Pending, job.Failed}},
		{Name: "TRAIN-1"},
		{Called: "rare-name"},
		{Node: "n7"},
		{Node: "n7", Owner: "u7", Name: "train"},
		{Since: planStart.Add(2500 * time.Minute)},
	}

	onEngines(t, func(t engineTest) {
		s, _ := openSpied(t)
		if _, err := s.Lead(t.Context(), candidate("server", time.Minute)); err != nil {
			t.Fatal(err)
		}

		fillForPlans(t, s)

		for i, f := range filters {
			for _, by := range []store.JobSort{store.SortName, store.SortCost, store.SortEnded} {
				for _, ascending := range []bool{false, true} {
					f.Sort, f.Oldest, f.Limit = by, ascending, 30
					f.Last = &store.JobPlace{Number: 1234, Name: "train-14", Ended: planStart.Add(1234 * time.Minute)}

					var lists [2][]job.Job

					for k, most := range []int{0, planJobs} {
						var err error

						s.sorts = most
						if lists[k], err = s.Jobs(t.Context(), f); err != nil {
							t.Fatal(err)
						}
					}

					name := fmt.Sprintf("filter %d by %s, ascending %t", i, by, ascending)
					if diff := cmp.Diff(numbersOf(lists[0]), numbersOf(lists[1])); diff != "" {
						t.Errorf("%s (-walked +sorted):\n%s", name, diff)
					}
				}
			}
		}
	})
}

func numbersOf(jobs []job.Job) []id.Job {
	list := make([]id.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].ID
	}

	return list
}
