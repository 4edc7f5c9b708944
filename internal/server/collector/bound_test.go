package collector

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/retention"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// old is a store of a yard with much that is not kept.
type old struct {
	records
	events   []yardmaster.Event
	postings int
	savings  int
	most     int // that was asked to be deleted at a time
}

func (o *old) ForgetJobs(_ context.Context, ids ...id.Job) error {
	o.most = max(o.most, len(ids))
	o.w.jobs = slices.DeleteFunc(o.w.jobs, func(j job.Job) bool { return slices.Contains(ids, j.ID) })

	return nil
}

func (o *old) Events(_ context.Context, f store.EventFilter) ([]yardmaster.Event, error) {
	return o.events[:min(len(o.events), f.Limit)], nil
}

func (o *old) ForgetEvents(_ context.Context, numbers ...uint64) error {
	o.most = max(o.most, len(numbers))
	o.events = slices.DeleteFunc(o.events, func(e yardmaster.Event) bool { return slices.Contains(numbers, e.Seq) })

	return nil
}

func (o *old) ForgetPostings(_ context.Context, _ time.Time, limit int) (int, error) {
	n := min(o.postings, limit)
	o.most = max(o.most, n)
	o.postings -= n

	return n, nil
}

func (o *old) ForgetSavings(_ context.Context, _ time.Time, limit int) (int, error) {
	n := min(o.savings, limit)
	o.most = max(o.most, n)
	o.savings -= n

	return n, nil
}

// A pass over a yard whose limits were just set ends, whatever has piled up, and passes get on.
func TestAPassRemovesABoundedNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(nil)
	o := &old{records: records{w: w}, postings: 10, savings: 10}
	dir := t.TempDir()

	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	logs, err := archive.Open(filepath.Join(dir, "logs"), blobs, clock.Wall{})
	if err != nil {
		t.Fatal(err)
	}

	for n := uint64(1); n <= 11; n++ { // the newest of each stays
		w.jobs = append(w.jobs, job.Job{ID: id.NewJob(n), State: job.Succeeded, Ended: w.now})
		o.events = append(o.events, yardmaster.Event{Seq: n, At: w.now})
	}

	// Output of a job that stays, as earlier versions have archived it.
	w.jobs[10].State, w.jobs[10].Ended = job.Running, time.Time{}
	for rank := range 10 {
		name := fmt.Sprintf("logs/j11/j11.1/%d/%015d-%015d.gz", rank, 0, 1)
		if err := blobs.Put(t.Context(), name, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}

	c := w.collector
	c.Store, c.Logs, c.perPass, c.movesPerPass = o, logs, 4, 4
	c.Limits = retention.Limits{Unused: time.Hour, Jobs: time.Hour, Events: time.Hour, Postings: 24 * time.Hour}
	w.now = w.now.Add(100 * time.Hour)

	for pass, left := range []int{6, 2, 0} {
		report, err := c.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		former := 0
		for l, err := range logs.Complete(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if l.Former {
				former++
			}
		}

		if report.Jobs > 4 || report.Events > 4 || report.Postings > 2*4 || o.most > 4 {
			t.Errorf("pass %d: %+v, at most %d at a time", pass, report, o.most)
		}

		if len(w.jobs) != left+1 || len(o.events) != left+1 || o.postings != left || o.savings != left ||
			former != left {
			t.Errorf("pass %d: %d jobs, %d events, %d postings, %d savings and %d logs of earlier versions are left, want %d",
				pass, len(w.jobs), len(o.events), o.postings, o.savings, former, left)
		}

		if w.jobs[0].ID != id.NewJob(uint64(11-left)) || o.events[0].Seq != uint64(11-left) {
			t.Errorf("pass %d: the oldest that is left is %s, %d", pass, w.jobs[0].ID, o.events[0].Seq)
		}
	}
}
