package sql

import (
	"context"
	"sync"

	"trainyard/internal/job"
	"trainyard/internal/store"
)

// jobCache keeps jobs that were read for a list. Reading and decoding a job is most of what a list costs, and the same
// pages are read again and again. A job in it counts only if the store says that it has not changed since.
type jobCache struct {
	mu         sync.Mutex
	young, old map[int64]cachedJob // those in old have not been asked for since there were many younger ones
}

// cachedJob is a job as it was stored with a change.
type cachedJob struct {
	job job.Job
	seq uint64
}

const (
	maxCached     = 1024     // young ones, and as many old ones
	maxCachedText = 16 << 10 // of the spec of a job
)

// get returns a job as of a change.
func (c *jobCache) get(v jobVersion) (job.Job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	found, ok := c.young[v.num]
	if !ok {
		if found, ok = c.old[v.num]; ok && found.seq == v.seq {
			c.keep(v.num, found)
		}
	}

	return found.job, ok && found.seq == v.seq
}

// put adds a job.
func (c *jobCache) put(num int64, j *job.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.keep(num, cachedJob{*j, j.Seq})
}

// keep makes a job one of the young ones.
func (c *jobCache) keep(num int64, j cachedJob) {
	if c.young == nil || len(c.young) >= maxCached {
		c.young, c.old = make(map[int64]cachedJob, maxCached), c.young
	}

	c.young[num] = j
}

// jobVersion is a job with the number of its last change.
type jobVersion struct {
	num int64
	seq uint64
}

// versionTable has the columns of a jobVersion.
var versionTable = &table{name: "jobs", key: "num", columns: []string{"num", "seq"}}

func readJobVersion(row scanner) (jobVersion, error) {
	var v jobVersion
	err := row.Scan(&v.num, &v.seq)

	return v, err
}

// listJobs reads the jobs of a page: which they are and whether they have changed, and then those that are not in the
// cache as they are now.
func (s *Store) listJobs(ctx context.Context, f store.JobFilter) ([]job.Job, error) {
	page, err := readJobs(ctx, s, f, versionTable, readJobVersion)
	if err != nil {
		return nil, err
	}

	jobs := make([]job.Job, len(page))
	var missing []int

	for i := range page {
		var known bool
		if jobs[i], known = s.jobs.get(page[i]); !known {
			missing = append(missing, i)
		}
	}

	if len(missing) == 0 {
		return jobs, nil
	}

	nums := make([]any, len(missing))
	for k, i := range missing {
		nums[k] = page[i].num
	}

	var w where
	w.add("num IN ("+marks(len(nums))+")", nums...)

	stored, err := collect(ctx, s.read, "job", jobTable.selects()+w.conditions(), w.args, scanJob)
	if err != nil {
		return nil, err
	}

	read, err := s.decodeJobs(ctx, s.read, stored)
	if err != nil {
		return nil, err
	}

	byNum := make(map[int64]*job.Job, len(read))
	for i := range read {
		num, err := jobNumber(read[i].ID)
		if err != nil {
			return nil, err
		}

		byNum[num] = &read[i]
		if len(stored[i].spec) <= maxCachedText {
			s.jobs.put(num, &read[i])
		}
	}

	for _, i := range missing {
		j := byNum[page[i].num]
		if j == nil { // it was removed between the two queries
			return s.readWhole(ctx, f)
		}

		jobs[i] = *j
	}

	return jobs, nil
}
