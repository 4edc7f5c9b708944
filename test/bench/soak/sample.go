package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"trainyard/test/bench/yard"
)

// process is the server or an agent.
type process struct {
	name    string
	data    string // its folder
	metrics func(ctx context.Context, name string) (float64, error)
	pid     func() int
}

// sample is what a process has at a moment.
type sample struct {
	resident   int64 // bytes
	live       int64 // bytes of the heap that the last collection left
	goroutines int
	files      int   // that are open
	disk       int64 // bytes that its folder takes
	inodes     int   // of its folder
}

// take looks at a process.
func (p *process) take(ctx context.Context) (sample, error) {
	var (
		s   sample
		err error
	)

	if s.resident, err = yard.Resident(p.pid()); err != nil {
		return s, err
	}

	live, err := p.metrics(ctx, "go_gc_heap_live_bytes")
	if err != nil {
		return s, err
	}

	goroutines, err := p.metrics(ctx, "go_goroutines")
	if err != nil {
		return s, err
	}

	s.live, s.goroutines = int64(live), int(goroutines)

	open, err := os.ReadDir("/proc/" + strconv.Itoa(p.pid()) + "/fd")
	if err != nil {
		return s, fmt.Errorf("count open files: %w", err)
	}

	s.files = len(open)
	s.disk, s.inodes, err = usage(p.data)

	return s, err
}

// usage returns what a folder takes on the disk. What disappears while it looks does not count.
func usage(dir string) (bytes int64, inodes int, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}

		inodes++

		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			const block = 512 // bytes, whatever the blocks of the file system are

			bytes += st.Blocks * block
		}

		return nil
	})
	if err != nil {
		err = fmt.Errorf("measure %s: %w", dir, err)
	}

	return bytes, inodes, err
}

// printer writes the lines of the table.
type printer struct {
	w      *tabwriter.Writer
	began  time.Time
	headed bool
}

func newPrinter(w io.Writer, began time.Time) *printer {
	return &printer{w: tabwriter.NewWriter(w, 8, 0, 2, ' ', tabwriter.AlignRight), began: began}
}

const mib = 1 << 20

// line writes what the processes have, each on a line of its own.
func (p *printer) line(now time.Time, jobs int, processes []*process, samples []sample) error {
	if !p.headed {
		p.headed = true
		_, _ = fmt.Fprintln(p.w,
			"after\tjobs\tprocess\tRSS MiB\tlive MiB\tgoroutines\tfiles\tdisk KiB\tinodes\t") // see Flush
	}

	for i, s := range samples {
		_, _ = fmt.Fprintf(p.w, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", now.Sub(p.began).Round(time.Second), jobs,
			processes[i].name, s.resident/mib, s.live/mib, s.goroutines, s.files, s.disk>>10, s.inodes)
	}

	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}

	return nil
}
