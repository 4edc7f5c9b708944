// Package collector removes blobs that nobody needs: files and chunks that nothing refers to, and what jobs that have
// ended leave behind when package retention does not keep it.
//
// It marks and sweeps. First it reads from the store what jobs, the catalogue of checkpoints and runs that are being
// restored refer to; then it lists all blobs and removes the others. A reference that is added meanwhile is to blobs
// that the server was asked for just before, which the Guard remembers. Only the leader collects, and a blob that is
// younger than a limit is never removed, so that an upload has time to become a job or a checkpoint. In doubt
// everything stays.
package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/checkpoint"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/retention"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/outputs"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Interval is how often blobs are collected, and soon how long after the start for the first time.
const (
	Interval = time.Hour
	soon     = 5 * time.Minute
)

// afterRestore is how long nothing is collected after the database was restored from a backup: it may have been the
// wrong one, and what only the right one refers to must still be there.
const afterRestore = 7 * 24 * time.Hour

// ownerBlob names the yard that a blob store belongs to.
const ownerBlob = "yard"

// page is how many jobs or checkpoints are read at a time.
const page = 500

// Loop is what the collector needs of the loop of the server that leads.
type Loop interface {
	Do(ctx context.Context, m yardmaster.Message) (any, error)
	Query(ctx context.Context, fn func(*yardmaster.Yard)) error
	Held() error // fails as soon as this server may not lead any more
}

// Deps is what a collector works with.
type Deps struct {
	Guard  *Guard
	Store  store.Store
	Logs   *archive.Archive
	Loop   Loop
	Yard   string // names the yard; nothing is removed from the blobs of another
	Limits retention.Limits
	Clock  clock.Clock
	Log    *slog.Logger
}

// Collector removes blobs that nobody needs.
type Collector struct {
	Deps
	files *outputs.Catalogue
	lists map[string][]key // what manifests list, by their blob; it never changes
	last  lastStock

	perPass, movesPerPass int // how much is removed or moved in a pass at most
}

// New returns a collector.
func New(d Deps) *Collector {
	files := outputs.New(d.Store, d.Guard.blobs, d.Clock, d.Limits.UserFiles)

	return &Collector{
		Deps: d, files: files, lists: map[string][]key{}, perPass: perPass, movesPerPass: movesPerPass,
	}
}

// Run collects every hour until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	for wait := soon; clock.Sleep(ctx, wait); wait = Interval {
		report, err := c.Collect(ctx)
		if err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "collecting blobs failed; trying again in an hour", "error", err,
				"cause", errors.Unwrap(err))
		}

		if err := c.record(ctx, &report); err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "recording what was removed failed", "removed", report.String(), "error", err)
		}
	}
}

// Report is what was removed.
type Report struct {
	Checkpoints int // from the catalogue
	Outputs     int // of ranks
	OutputFiles int // sets, of ranks
	Files       int // of working directories
	Chunks      int // of checkpoints
	Uploads     int // that were never finished
	Jobs        int
	Events      int
	Postings    int       // of the ledger, totals of hours, and savings
	Bytes       job.Bytes // of all but jobs, events and postings
}

// String says what was removed, "" if that is nothing.
func (r *Report) String() string {
	var parts []string
	add := func(n int, thing string) {
		if n > 0 {
			parts = append(parts, humanize.Count(n, thing))
		}
	}

	add(r.Checkpoints, "checkpoint of ended jobs")
	add(r.Outputs, "output of ended jobs")
	add(r.OutputFiles, "output file set")
	add(r.Files, "unused file")
	add(r.Chunks, "unused chunk")
	add(r.Uploads, "unfinished upload")
	add(r.Jobs, "old job")
	add(r.Events, "old event")
	add(r.Postings, "old usage record")

	if len(parts) == 0 {
		return ""
	}

	return fmt.Sprintf("removed %s, %s in total", humanize.List(parts...), humanize.Size(r.Bytes))
}

func (c *Collector) record(ctx context.Context, r *Report) error {
	text := r.String()
	if text == "" {
		return nil
	}

	_, err := c.Loop.Do(ctx, yardmaster.RecordCleanup{Summary: text})

	return err
}

// Collect removes what is not needed now, and reports what it has removed even if it fails.
func (c *Collector) Collect(ctx context.Context) (Report, error) {
	stock := Stock{At: c.Clock.Now()}

	err := c.collect(ctx, &stock)
	if err != nil {
		stock.Failure = err.Error()
	}

	c.last.set(stock)

	return stock.Removed, err
}

func (c *Collector) collect(ctx context.Context, stock *Stock) error {
	ok, err := c.may(ctx)
	if !ok || err != nil {
		return err
	}

	now, report := stock.At, &stock.Removed
	if err := c.retire(ctx, now, stock); err != nil {
		return err
	}
	if err := c.retireFiles(ctx, now, stock); err != nil {
		return fmt.Errorf("remove output files: %w", err)
	}

	c.Guard.beginSweep(now, c.Limits.Unused)

	output, err := c.outputs(ctx)
	if err != nil {
		return fmt.Errorf("list output: %w", err)
	}

	m, err := c.mark(ctx, now, output, stock)
	if err != nil {
		return fmt.Errorf("find out which blobs are needed: %w", err)
	}
	if err := c.surplusOutput(ctx, now, output, stock); err != nil {
		return fmt.Errorf("choose output to remove: %w", err)
	}
	if err := c.tidyOutput(ctx, now, output, report); err != nil {
		return fmt.Errorf("remove output: %w", err)
	}
	if err := c.forget(ctx, now, m, report); err != nil {
		return fmt.Errorf("remove records of old jobs and events: %w", err)
	}
	if c.Limits.Unused == 0 {
		return nil
	}
	if err := c.sweep(ctx, now, m, stock); err != nil {
		return fmt.Errorf("remove unused blobs: %w", err)
	}

	return c.removeUploads(ctx, now, report)
}

// may reports whether anything may be removed: not soon after a restore, and never from blobs of another yard.
func (c *Collector) may(ctx context.Context) (bool, error) {
	var now yardmaster.Incarnation
	if err := c.Loop.Query(ctx, func(y *yardmaster.Yard) { now = y.Incarnation() }); err != nil {
		return false, err
	}
	if now.Number > 1 && c.Clock.Now().Sub(now.Began) < afterRestore {
		return false, nil
	}

	owner, err := c.owner(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return true, c.Guard.blobs.Put(ctx, ownerBlob, strings.NewReader(c.Yard))
	}
	if err != nil {
		return false, err
	}
	if owner != c.Yard {
		return false, fault.New(fault.Conflict, "blobs_of_another_yard",
			"the blobs belong to another yard, so nothing is removed").
			WithRemedy("give each yard a bucket, prefix or folder of its own; if there is only this yard, remove the blob %q",
				ownerBlob)
	}

	return true, nil
}

// owner reads which yard the blobs belong to.
func (c *Collector) owner(ctx context.Context) (string, error) {
	f, err := c.Guard.blobs.Get(ctx, ownerBlob)
	if err != nil {
		return "", err
	}

	defer func() { _ = f.Close() }()

	raw, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return "", fmt.Errorf("read whose blobs they are: %w", err)
	}

	return string(raw), nil
}

// retire removes checkpoints of ended jobs from the catalogue.
func (c *Collector) retire(ctx context.Context, now time.Time, stock *Stock) error {
	var all []retention.Saved
	var j job.Job
	sizes := map[id.Checkpoint]job.Bytes{}

	err := c.eachCheckpoint(ctx, func(s *checkpoint.Checkpoint) (err error) {
		if j.ID != s.Job {
			j, err = c.Store.Job(ctx, s.Job)
		}
		if err == nil {
			stock.share(j.Owner, func(of *Share) { of.Checkpoints += s.Size })
		}

		if err == nil && j.State.Final() {
			sizes[s.ID] = s.Size
			all = append(all, retention.Saved{Checkpoint: *s, Owner: j.Owner, Ended: j.Ended})
		}

		return err
	})
	if err != nil {
		return fmt.Errorf("read the catalogue of checkpoints: %w", err)
	}

	for _, r := range c.Limits.Surplus(now, all) {
		_, err := c.Loop.Do(ctx, yardmaster.RemoveCheckpoint{
			Checkpoint: r.Checkpoint, Owner: r.Owner, By: yardmaster.ActorYard, Why: r.Why,
		})
		switch k := fault.KindOf(err); {
		case err == nil:
			stock.Removed.Checkpoints++
			stock.share(r.Owner, func(of *Share) { of.Checkpoints -= sizes[r.Checkpoint] })
		case k == fault.Conflict || k == fault.NotFound: // pinned or removed meanwhile
		default:
			return fmt.Errorf("remove checkpoint %s: %w", r.Checkpoint, err)
		}
	}

	return nil
}

// eachCheckpoint visits the checkpoints that are not removed, by job.
func (c *Collector) eachCheckpoint(ctx context.Context, visit func(*checkpoint.Checkpoint) error) error {
	filter := store.CheckpointFilter{Limit: page}
	for {
		list, err := c.Store.Checkpoints(ctx, filter)
		if err != nil {
			return err
		}

		for i := range list {
			if err := visit(&list[i]); err != nil {
				return err
			}
		}

		if len(list) < page {
			return nil
		}

		filter.After = list[len(list)-1].ID
	}
}

// eachJob visits the outlines of all jobs, newest first.
func (c *Collector) eachJob(ctx context.Context, visit func(*job.Job) error) error {
	filter := store.JobFilter{Outline: true, Limit: page}
	for {
		list, err := c.Store.Jobs(ctx, filter)
		if err != nil {
			return err
		}

		for i := range list {
			if err := visit(&list[i]); err != nil {
				return err
			}
		}

		if len(list) < page {
			return nil
		}

		number, ok := list[len(list)-1].ID.Number()
		if !ok {
			return fmt.Errorf("job %s has no number", list[len(list)-1].ID)
		}

		filter.Before = number
	}
}

// sweepBatch is how many blobs are removed at a time.
const sweepBatch = 100

// heap is the blobs of one kind: what was removed of them and what stays.
type heap struct {
	prefix  string
	removed *int
	bytes   *job.Bytes // of the removed ones
	kept    *Amount
}

// sweep removes the blobs that are not marked, and the possessions of contents that are not there.
func (c *Collector) sweep(ctx context.Context, now time.Time, m *marks, stock *Stock) error {
	report := &stock.Removed

	files := heap{filePrefix, &report.Files, &report.Bytes, &stock.Files}
	present, err := c.sweepHeap(ctx, now, m, files)
	if err != nil {
		return err
	}

	if err := c.disownAbsent(ctx, present); err != nil {
		return fmt.Errorf("forget who has uploaded what is not there: %w", err)
	}

	_, err = c.sweepHeap(ctx, now, m, heap{chunkPrefix, &report.Chunks, &report.Bytes, &stock.Chunks})

	return err
}

// sweepHeap removes the blobs of one kind that are not marked, and returns which were there.
func (c *Collector) sweepHeap(ctx context.Context, now time.Time, m *marks, h heap) (set, error) {
	present := set{}
	var unused []blob.Info

	for info, err := range c.Guard.blobs.List(ctx, h.prefix) {
		if err != nil {
			return nil, err
		}

		k := c.Guard.key(info.Name)
		present[k] = struct{}{}

		if m.needed.has(k) || now.Sub(info.Stored) <= c.Limits.Unused {
			h.kept.add(job.Bytes(info.Size))
			continue
		}

		unused = append(unused, info)
		if len(unused) < sweepBatch {
			continue
		}
		if err := c.remove(ctx, unused, h); err != nil {
			return nil, err
		}

		unused = unused[:0]
	}

	return present, c.remove(ctx, unused, h)
}

// remove removes blobs that are not used, and counts which are gone and which stay.
func (c *Collector) remove(ctx context.Context, unused []blob.Info, h heap) error {
	names := make([]string, len(unused))
	for i, info := range unused {
		names[i] = info.Name
	}

	removed, err := c.Guard.remove(ctx, names, c.removal())
	for _, info := range unused {
		if slices.Contains(removed, info.Name) {
			*h.removed++
			*h.bytes += job.Bytes(info.Size)
		} else {
			h.kept.add(job.Bytes(info.Size))
		}
	}

	return err
}

func (c *Collector) removal() removal { return removal{held: c.Loop.Held, forget: c.disown} }

// disown removes the possessions of files that are gone.
func (c *Collector) disown(ctx context.Context, names []string) error {
	var digests []string
	for _, name := range names {
		if strings.HasPrefix(name, filePrefix) {
			digests = append(digests, path.Base(name))
		}
	}

	if len(digests) == 0 {
		return nil
	}

	return c.Store.Disown(ctx, digests...)
}

// disownAbsent removes the possessions of files that were not there when all were listed: a server that is killed
// between the removal of a file and that of its possessions leaves some.
func (c *Collector) disownAbsent(ctx context.Context, present set) error {
	for after := ""; ; {
		digests, err := c.Store.PossessedDigests(ctx, after, page)
		if err != nil || len(digests) == 0 {
			return err
		}

		after = digests[len(digests)-1]

		var absent []string
		for _, d := range digests {
			if httpapi.CheckDigest(d, "") == nil && !present.has(c.Guard.key(httpapi.FileBlob(d))) {
				absent = append(absent, httpapi.FileBlob(d))
			}
		}

		// What was uploaded since they were listed is used, so it stays.
		if _, err := c.Guard.remove(ctx, absent, c.removal()); err != nil {
			return err
		}
	}
}

// removeUploads removes what uploads that were never finished have left, where the store has such.
func (c *Collector) removeUploads(ctx context.Context, now time.Time, report *Report) error {
	cleaner, ok := c.Guard.blobs.(blob.Cleaner)
	if !ok {
		return nil
	}
	if err := c.Loop.Held(); err != nil {
		return err
	}

	var err error
	report.Uploads, err = cleaner.RemoveUploads(ctx, now.Add(-c.Limits.Unused))

	return err
}

// marks is what is needed.
type marks struct {
	needed    set
	old       []oldJob        // jobs of which nothing is kept
	saved     map[id.Job]bool // jobs with checkpoints
	pipelines map[string]bool // those with jobs that have not ended, which may need the others
}

// oldJob is a job of which nothing is kept.
type oldJob struct {
	id       id.Job
	pipeline string
}
