package sql

import (
	"strings"
	"testing"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// cached returns how many jobs are kept.
func (c *jobCache) cached() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return len(c.young) + len(c.old)
}

// TestListsShowWhatIsStored: jobs are kept after they were listed, and one that has changed since is read again.
func TestListsShowWhatIsStored(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := writer(t, t.url, "one")
		commit := func(jobs ...job.Job) {
			t.Helper()

			if err := s.Commit(t.Context(), &yardmaster.Batch{Jobs: jobs}); err != nil {
				t.Fatal(err)
			}
		}

		list := func(f store.JobFilter) []job.Job {
			t.Helper()
			f.Limit = 10
			jobs, err := s.Jobs(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}

			return jobs
		}

		for n := range uint64(3) {
			commit(job.Job{ID: id.NewJob(n + 1), Seq: 1, Owner: "ada", State: job.Pending, Spec: &job.Spec{Run: "true"}})
		}

		large := job.Job{ID: "j4", Seq: 1, Owner: "bob", State: job.Pending,
			Spec: &job.Spec{Run: strings.Repeat("true\n", maxCachedText/5)}}
		commit(large)

		for range 2 {
			jobs := list(store.JobFilter{})
			if len(jobs) != 4 || jobs[0].Spec.Run != large.Spec.Run || jobs[3].ID != "j1" || jobs[3].Spec.Run != "true" {
				t.Fatalf("got %+v", jobs)
			}

			if got := s.jobs.cached(); got != 3 {
				t.Errorf("%d jobs are kept, want all but the large one", got)
			}
		}

		commit(job.Job{ID: "j2", Seq: 2, Owner: "ada", State: job.Cancelled, Reason: "cancelled by ada",
			Spec: &job.Spec{Run: "true"}})

		if jobs := list(store.JobFilter{Owner: "ada"}); len(jobs) != 3 || jobs[1].State != job.Cancelled ||
			jobs[1].Reason != "cancelled by ada" || jobs[1].Seq != 2 {
			t.Errorf("after a change: %+v", jobs)
		}

		if jobs := list(store.JobFilter{Owner: "ada", States: []job.State{job.Pending}}); len(jobs) != 2 || jobs[0].ID != "j3" {
			t.Errorf("those that wait: %+v", jobs)
		}
	})
}

func TestFewJobsAreKept(t *testing.T) {
	t.Parallel()
	var c jobCache

	for n := range int64(10 * maxCached) {
		c.put(n, &job.Job{Seq: 1})
		c.put(7, &job.Job{Seq: 1}) // in use all the time

		if got := c.cached(); got > 2*maxCached+1 {
			t.Fatalf("%d jobs are kept", got)
		}
	}

	if _, known := c.get(jobVersion{7, 1}); !known {
		t.Error("the job that is in use is not kept")
	}

	if _, known := c.get(jobVersion{7, 2}); known {
		t.Error("a job counts that has changed")
	}

	if _, known := c.get(jobVersion{8, 1}); known {
		t.Error("a job is kept that nobody asks for")
	}
}
