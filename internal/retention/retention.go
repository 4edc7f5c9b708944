// Package retention decides how long the yard keeps what jobs leave behind: their files, their output, their
// checkpoints and the records of them. It removes nothing itself. What a job that has not ended needs is always
// kept, and so is what is pinned.
package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Limits say how long things are kept. A zero limit keeps them forever.
type Limits struct {
	Unused      time.Duration // blobs that nothing refers to, since they were stored
	Workdirs    time.Duration // working directories, since the end of the job
	Output      time.Duration // output of runs, since the end of the job
	Checkpoints time.Duration // checkpoints, since the end of the job
	Bytes       job.Bytes     // checkpoints of all jobs that have ended, together
	Jobs        time.Duration // all of a job, since its end
	UserOutput  job.Bytes     // output of all jobs of a user that have ended
	AllOutput   job.Bytes     // output of all jobs that have ended
	Files       time.Duration // output files, since the end of the job
	UserFiles   job.Bytes     // output files of all jobs of a user that have ended
	AllFiles    job.Bytes     // output files of all jobs that have ended
	Events      time.Duration // events, since they happened
	Postings    time.Duration // usage by job, run and hour; by day it stays
}

// Straggling is how long after its end a rank may begin to send its output. One of which nothing has come until then
// printed nothing, or what it printed was removed.
const Straggling = 24 * time.Hour

// PostingsSince returns the beginning of the first day, in UTC, of which postings are kept; the zero time for ever.
func (l Limits) PostingsSince(now time.Time) time.Time {
	if l.Postings == 0 {
		return time.Time{}
	}

	return now.Add(-l.Postings).UTC().Truncate(24 * time.Hour)
}

// KeepsWorkdir reports whether the working directory of a job is kept.
func (l Limits) KeepsWorkdir(now time.Time, j *job.Job) bool {
	return keeps(l.Workdirs, now, j) && l.KeepsJob(now, j)
}

// KeepsOutput reports whether the output of a job is kept.
func (l Limits) KeepsOutput(now time.Time, j *job.Job) bool {
	return keeps(l.Output, now, j) && l.KeepsJob(now, j)
}

// KeepsFiles reports whether the output files of a job are kept.
func (l Limits) KeepsFiles(now time.Time, j *job.Job) bool {
	return keeps(l.Files, now, j) && l.KeepsJob(now, j)
}

// FilesExpired says why output files are not kept whose time is over.
func (l Limits) FilesExpired() string {
	return fmt.Sprintf("its job ended more than %s ago", humanize.Duration(shortest(l.Files, l.Jobs)))
}

// KeepsJob reports whether anything of a job is kept.
func (l Limits) KeepsJob(now time.Time, j *job.Job) bool { return keeps(l.Jobs, now, j) }

// KeepsEvent reports whether an event that happened at a time is kept.
func (l Limits) KeepsEvent(now, at time.Time) bool { return l.Events == 0 || now.Sub(at) <= l.Events }

func keeps(limit time.Duration, now time.Time, j *job.Job) bool {
	return limit == 0 || !j.State.Final() || now.Sub(j.Ended) <= limit
}

// Saved is a checkpoint of a job that has ended.
type Saved struct {
	checkpoint.Checkpoint
	Owner id.User
	Ended time.Time // the job
}

// Removal is a checkpoint that is not kept.
type Removal struct {
	Checkpoint id.Checkpoint
	Owner      id.User
	Why        string // one sentence, for its owner
}

// Surplus returns which checkpoints of jobs that have ended are not kept. Of those that are too many the ones of the
// jobs that ended first go first. Pinned ones are kept. Those on shared file systems take no room in the blob store.
func (l Limits) Surplus(now time.Time, all []Saved) []Removal {
	var (
		removals []Removal
		rest     []*Saved
		total    job.Bytes
	)

	for i := range all {
		s := &all[i]
		if s.State == checkpoint.Removed {
			continue
		}

		age := now.Sub(s.Ended)
		switch {
		case s.Pinned:
			total += stored(&s.Checkpoint)
		case s.State == checkpoint.Partial && l.Unused > 0 && age > l.Unused:
			removals = append(removals, Removal{s.ID, s.Owner, "incomplete, and its job has ended"})
		case l.Checkpoints > 0 && age > l.Checkpoints, l.Jobs > 0 && age > l.Jobs:
			why := fmt.Sprintf("its job ended more than %s ago", humanize.Duration(shortest(l.Checkpoints, l.Jobs)))
			removals = append(removals, Removal{s.ID, s.Owner, why})
		case s.Shared() != "":
		default:
			total += s.Size
			rest = append(rest, s)
		}
	}

	if l.Bytes == 0 {
		return removals
	}

	slices.SortFunc(rest, func(a, b *Saved) int {
		return cmp.Or(a.Ended.Compare(b.Ended), cmp.Compare(a.Job, b.Job), checkpoint.Newer(&a.Checkpoint, &b.Checkpoint))
	})

	for _, s := range rest {
		if total <= l.Bytes {
			break
		}

		total -= s.Size
		why := fmt.Sprintf("checkpoints of ended jobs take more than %s", humanize.Size(l.Bytes))
		removals = append(removals, Removal{s.ID, s.Owner, why})
	}

	return removals
}

// shortest returns the shorter of two limits, of which 0 is none.
func shortest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}

	return a
}

// stored returns how much of the blob store a checkpoint takes.
func stored(c *checkpoint.Checkpoint) job.Bytes {
	if c.Shared() != "" {
		return 0
	}

	return c.Size
}

// Printed is the output of a job that has ended, or its output files.
type Printed struct {
	Job   id.Job
	Owner id.User
	Ended time.Time
	Bytes job.Bytes
}

// SurplusOutput returns the jobs whose output is not kept because there is too much, each with why, in one sentence for
// its owner. The output of the jobs that ended first goes first: of each user, and then of all.
func (l Limits) SurplusOutput(all []Printed) map[id.Job]string {
	return surplus(all, "the output", "takes", l.UserOutput, l.AllOutput)
}

// SurplusFiles is SurplusOutput for output files.
func (l Limits) SurplusFiles(all []Printed) map[id.Job]string {
	return surplus(all, "the output files", "take", l.UserFiles, l.AllFiles)
}

// surplus returns the jobs of which a thing is not kept because there is too much.
func surplus(all []Printed, thing, takes string, ofUser, ofAll job.Bytes) map[id.Job]string {
	oldest := slices.SortedFunc(slices.Values(all), func(a, b Printed) int {
		return cmp.Or(a.Ended.Compare(b.Ended), cmp.Compare(a.Job, b.Job))
	})

	var total job.Bytes
	users := map[id.User]job.Bytes{}
	for i := range oldest {
		total += oldest[i].Bytes
		users[oldest[i].Owner] += oldest[i].Bytes
	}

	surplus := map[id.Job]string{}
	for i := range oldest {
		p := &oldest[i]
		if ofUser > 0 && users[p.Owner] > ofUser {
			surplus[p.Job] = fmt.Sprintf("%s of ended jobs of %s %s more than %s", thing, p.Owner, takes,
				humanize.Size(ofUser))
			users[p.Owner] -= p.Bytes
			total -= p.Bytes
		}
	}

	for i := range oldest {
		p := &oldest[i]
		if _, gone := surplus[p.Job]; !gone && ofAll > 0 && total > ofAll {
			surplus[p.Job] = fmt.Sprintf("%s of all ended jobs %s more than %s", thing, takes, humanize.Size(ofAll))
			total -= p.Bytes
		}
	}

	return surplus
}
