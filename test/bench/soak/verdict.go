package main

import (
	"errors"
	"fmt"
)

// bound is how much something may grow while so many jobs end: an amount that does not depend on the jobs, a share of
// what was there, an amount for each job, and what the page cache of the database takes.
type bound struct {
	constant float64
	share    float64
	perJob   float64
	cache    float64 // at most; it fills as the database grows
}

// cacheFactor is how many bytes of memory a cached byte of the database takes: a page with its header is a little more
// than 4 KiB, and SQLite's allocator rounds that up to 8 KiB.
const cacheFactor = 2

// allows returns how much something may grow that was so large, while the folder of its process has grown on the disk.
func (b bound) allows(before float64, jobs int, disk int64) float64 {
	return b.constant + b.share*before + b.perJob*float64(jobs) + min(b.cache, cacheFactor*float64(max(disk, 0)))
}

// quantity is something that is judged.
type quantity struct {
	name  string // in the figures
	words string
	unit  float64 // in which it is shown
	of    func(sample) float64
	// Bounds of the server and of an agent. Memory, goroutines and files have nothing for each job: what ended jobs
	// need in memory is dropped after a while. The store keeps jobs, and so do blobs with their output.
	server, agent bound
}

// quantities are the bounds that a soak is held to.
func quantities() []quantity {
	const kib = 1 << 10

	return []quantity{
		{
			"rss_mib", "resident memory, MiB", mib, func(s sample) float64 { return float64(s.resident) },
			bound{constant: 24 * mib, share: 0.25, cache: cacheFactor * 64 * mib}, bound{constant: 16 * mib, share: 0.25},
		},
		{
			"live_mib", "live heap, MiB", mib, func(s sample) float64 { return float64(s.live) },
			bound{constant: 12 * mib, share: 0.25}, bound{constant: 8 * mib, share: 0.25},
		},
		{
			"goroutines", "goroutines", 1, func(s sample) float64 { return float64(s.goroutines) },
			bound{constant: 8}, bound{constant: 8},
		},
		{
			"files", "open files", 1, func(s sample) float64 { return float64(s.files) }, bound{constant: 8}, bound{constant: 8},
		},
		{ // the log of the database grows to 16 MiB once
			"disk_kib", "disk, KiB", kib, func(s sample) float64 { return float64(s.disk) },
			bound{constant: 20 * mib, perJob: 24 * kib}, bound{constant: mib, perJob: 4 * kib},
		},
		{
			"inodes", "inodes", 1, func(s sample) float64 { return float64(s.inodes) },
			bound{constant: 50, perJob: 0.5}, bound{constant: 50, perJob: 1},
		},
	}
}

// growth is how much something grew, and how much it may have.
type growth struct {
	name, words   string
	before, after float64
	allowed       float64 // growth
}

func (g *growth) exceeded() bool { return g.after-g.before > g.allowed }

// judge compares two samples of a process between which so many jobs ended. The first process is the server.
func judge(processes []*process, before, after []sample, jobs int) []growth {
	var all []growth

	for i, p := range processes {
		for _, q := range quantities() {
			limit := q.agent
			if i == 0 {
				limit = q.server
			}

			was, disk := q.of(before[i]), after[i].disk-before[i].disk
			all = append(all, growth{
				name: p.name + "_" + q.name, words: p.name + ": " + q.words, before: was / q.unit, after: q.of(after[i]) / q.unit,
				allowed: limit.allows(was, jobs, disk) / q.unit,
			})
		}
	}

	return all
}

// exceeded returns an error that says what grew more than it may.
func exceeded(all []growth) error {
	var failures []error

	for i := range all {
		if g := &all[i]; g.exceeded() {
			failures = append(failures, fmt.Errorf("%s grew from %.0f to %.0f, which is more than %.0f", g.words, g.before,
				g.after, g.allowed))
		}
	}

	return errors.Join(failures...)
}
