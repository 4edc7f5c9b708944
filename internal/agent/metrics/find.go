package metrics

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits on the search for files.
const (
	maxDepth   = 8
	maxEntries = 20_000 // looked at in one search
	maxFolder  = 2000   // of one folder: there are data in one that has more
	maxFiles   = 200    // read
	bigSearch  = 5000   // entries from which on a search is made more seldom
)

// skippedFolders are folders in which nobody's metrics are.
var skippedFolders = []string{
	".git",
	"node_modules",
	"venv",
	".venv",
	"env",
	"__pycache__",
	"site-packages",
	".cache",
	".tox",
	".mypy_cache",
	"conda",
	"dist-packages",
}

// format says how a file is read.
type format int

const (
	noFormat format = iota
	events          // TensorBoard
	wandb
	table // CSV
	jsonLines
	trainerState
	mlruns  // a metric of MLflow's
	unknown // the user named it; it is told by its content
)

// tables and records are parts of the names that files of metrics have.
var (
	tables  = []string{"metrics", "log", "history", "progress", "results", "training", "train", "loss"}
	records = []string{"metric", "log", "train", "result", "progress", "history", "stats", "loss"}
)

// formatOf tells by its place which kind of metrics a file may hold.
func formatOf(rel string) format {
	name := strings.ToLower(path.Base(rel))
	stem, ext := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
	has := func(parts []string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(stem, part) })
	}
	switch {
	case strings.Contains(name, "tfevents"):
		return events
	case ext == ".wandb":
		return wandb
	case ext == ".csv" && has(tables):
		return table
	case ext == ".jsonl" && has(records):
		return jsonLines
	case name == "trainer_state.json":
		return trainerState
	case ext == "" && strings.HasPrefix(rel, "mlruns/") && strings.Contains(rel, "/metrics/"):
		return mlruns
	}

	return noFormat
}

// find looks for files that may hold metrics.
func (g *Gatherer) find() error {
	var errs []error
	left := maxEntries
	for _, root := range g.run.Roots {
		errs = append(errs, g.search(root, "", 0, &left))
	}

	g.scanInterval = scanEvery
	if left < maxEntries-bigSearch {
		g.scanInterval = 6 * scanEvery
	}

	return errors.Join(errs...)
}

// entriesOf lists a folder, or as much of it as is looked at, sorted.
func entriesOf(root, rel string) (entries []fs.DirEntry, err error) {
	f, err := openIn(root, cmp.Or(rel, "."), unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	entries, err = f.ReadDir(maxFolder)
	if errors.Is(err, io.EOF) {
		err = nil
	}

	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })

	return entries, err
}

// search looks into one folder and those in it. It follows no links.
func (g *Gatherer) search(root, rel string, depth int, left *int) error {
	entries, err := entriesOf(root, rel)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
			return nil // what a program keeps to itself, or has replaced meanwhile, is no trouble
		}

		return err
	}

	var errs []error
	for _, e := range entries {
		*left--
		if *left < 0 || len(g.files) >= maxFiles {
			break
		}

		name := path.Join(rel, e.Name())
		switch {
		case e.IsDir():
			if depth < maxDepth && !slices.Contains(skippedFolders, e.Name()) {
				errs = append(errs, g.search(root, name, depth+1, left))
			}
		case e.Type().IsRegular():
			g.consider(root, name)
		}
	}

	return errors.Join(errs...)
}

// consider takes a file among those that are read if it may hold metrics.
func (g *Gatherer) consider(root, rel string) {
	full := filepath.Join(root, filepath.FromSlash(rel))
	if _, known := g.files[full]; known {
		return
	}

	kind, ruled := formatOf(rel), false
	if slices.ContainsFunc(g.globs, func(glob string) bool {
		ok, err := path.Match(glob, rel)
		return ok && err == nil || within(glob, rel)
	}) {
		ruled = true

		if kind == noFormat {
			kind = unknown
		}
	}

	if kind == noFormat {
		return
	}

	w := newWatchedFile(root, rel, kind, ruled)

	// What was there before the program started was shipped with it, or is of an earlier run: only what is added counts.
	if info, err := w.tail.lstat(); err == nil && info.ModTime().Before(g.run.Started.Add(-fileClockTick)) {
		w.skip(info)
	}

	g.files[full] = w
}

// fileClockTick is by how much a file's time may lag behind the clock: the kernel takes it from the last timer tick.
const fileClockTick = 10 * time.Millisecond

// within matches a pattern with ** in it, which stands for any folders.
func within(glob, rel string) bool {
	before, after, ok := strings.Cut(glob, "**/")
	if !ok || !strings.HasPrefix(rel, before) {
		return false
	}

	for rest := rel[len(before):]; ; {
		if ok, err := path.Match(after, rest); ok && err == nil {
			return true
		}

		_, next, more := strings.Cut(rest, "/")
		if !more {
			return false
		}

		rest = next
	}
}
