// Package staging brings the datasets of runs to this machine and keeps them for later runs.
//
// On the path of a job it stands between the assignment and the start: the agent calls Stage
// before it gives a rank to the runtime, and the program finds its data by the variables that
// Stage returns. Data that the machine can already read by a path is used in place and never
// changed. Everything else is fetched into a cache:
//
//	<dir>/<name>-<hash of the source>/
//	    part/            bytes fetched so far; an interrupted fetch resumes from here
//	    from.json        the version of the source that part belongs to
//	    data/            the complete dataset, renamed from part
//	        about.json   name, source and size; its modification time is the last use
//	        content/     the file or directory
//	<dir>/.holds/<rank>  the datasets that a rank uses; they are not removed before it ends
//	<dir>/.views/<hash>/ TRAINYARD_DATA_DIR: a link for each dataset, by its name
//
// Runs that need the same data at the same time share one fetch. When the disk or the limit of
// the cache leaves too little room, datasets that no run uses are removed, the least recently
// used first. The package does not decide who may use which data: the yard places a run only
// where the rules of its data allow it. But users choose the sources, and the agent may read more
// than they: so it opens only what lies below the data roots that the operator of this machine
// lists, and connects to no address that is for this machine alone.
package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// Options configures a cache. Dir, Log and Clock are required.
type Options struct {
	Dir   string
	Limit job.Bytes // size limit of the cache; 0 means the whole disk
	Log   *slog.Logger
	Clock clock.Clock
	// Roots are the directories below which data is read, in place or to copy it; none if left out.
	Roots []string
	// Private are directories of which nothing is ever read, also below a root.
	Private []string
	// Hosts, or hosts with a port, are fetched from although their addresses are for this machine alone: loopback,
	// link-local and metadata addresses.
	Hosts []string
	// MinFree is how much of the disk must be free for jobs; the cache leaves twice that.
	MinFree diskspace.Floor
	// Free returns the free and total bytes of the disk that holds a directory. The default asks
	// the operating system.
	Free  func(dir string) (free, total job.Bytes, err error)
	Wait  time.Duration // before the first retry, doubled for each further one; default one second
	Stall time.Duration // without a byte after which a connection is closed; default one minute
	Tries int           // consecutive attempts without a new byte before a fetch fails; default 6
	// Changed is called each time a fetch ends.
	Changed func()
}

// Cache keeps datasets on the disk of this machine. Its methods may be called from several
// goroutines.
type Cache struct {
	opt    Options
	roots  roots
	client *http.Client
	ctx    context.Context //nolint:containedctx // cancelled by Close; bounds the fetches
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	space  sync.Mutex // held while room is made, so that two fetches do not claim the same free bytes

	mu      sync.Mutex
	entries map[string]*entry // complete datasets
	fetches map[string]*fetch // under way
	holds   map[string]*hold  // by rank
}

// Open opens a cache and creates its directory if it does not exist.
func Open(opt Options) (*Cache, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}

	opt.Dir = dir
	opt.Wait, opt.Stall, opt.Tries = cmp.Or(opt.Wait, time.Second), cmp.Or(opt.Stall, time.Minute), cmp.Or(opt.Tries, 6)
	if opt.Free == nil {
		opt.Free = diskspace.Free
	}

	if opt.Changed == nil {
		opt.Changed = func() {}
	}

	c := &Cache{
		opt: opt, client: &http.Client{Transport: newTransport(opt.Hosts)},
		entries: map[string]*entry{}, fetches: map[string]*fetch{}, holds: map[string]*hold{},
	}

	for _, d := range []string{dir, filepath.Join(dir, holdsDir), filepath.Join(dir, viewsDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create the dataset cache: %w", err)
		}
	}

	c.roots, err = newRoots(opt.Roots, append([]string{dir}, opt.Private...))
	if err != nil {
		return nil, err
	}

	if err := errors.Join(c.loadEntries(), c.loadHolds()); err != nil {
		return nil, fmt.Errorf("read the dataset cache: %w", err)
	}

	c.ctx, c.cancel = context.WithCancel(context.Background())

	return c, nil
}

// Close cancels all fetches. A cache opened later on the same directory resumes them.
func (c *Cache) Close() {
	c.cancel()
	c.tasks.Wait()
	c.client.CloseIdleConnections()
}

// Stage brings the datasets of a rank to this machine, keeps them from being removed
// until the rank is dropped, and returns the variables by which its program finds
// them. It can be called again for the same rank. The error is a fault that people
// are shown; a rank for which it failed holds nothing.
func (c *Cache) Stage(ctx context.Context, rank string, refs []job.DataRef) (vars map[string]string, err error) {
	places := make([]located, len(refs))
	for i, ref := range refs {
		places[i], err = c.locate(ref)
		if err != nil {
			return nil, err
		}
	}

	h := &hold{rank: rank, View: viewName(places)}
	for _, p := range places {
		if p.key != "" {
			h.Keys = append(h.Keys, p.key)
		}
	}

	if err := c.take(h); err != nil {
		return nil, fmt.Errorf("record the data in use by %s: %w", rank, err)
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, c.Drop(rank))
		}
	}()

	for _, p := range places {
		if p.key == "" {
			continue
		}
		if err := c.bring(ctx, h, p); err != nil {
			return nil, err
		}
	}

	view, err := c.makeView(h.View, places)
	if err != nil {
		return nil, fmt.Errorf("create the data folder of %s: %w", rank, err)
	}

	return variables(view, places), nil
}

// Progress describes the fetch that a rank waits for, "" if it waits for none.
func (c *Cache) Progress(rank string) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	h := c.holds[rank]
	if h == nil || h.waits == nil {
		return ""
	}

	return h.waits.words()
}

// Copies lists the datasets that were fetched and are kept, by name and source.
func (c *Cache) Copies() []job.DataCopy {
	c.mu.Lock()
	defer c.mu.Unlock()

	var list []job.DataCopy
	for _, e := range c.entries {
		list = append(list, job.DataCopy{Name: e.Name, Source: e.Source, Path: e.path()})
	}

	slices.SortFunc(list, func(a, b job.DataCopy) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Source, b.Source))
	})

	return list
}

// failed returns the fault that says why a dataset is not available.
func failed(name, format string, args ...any) *fault.Error {
	e := fault.New(fault.Unavailable, "data_failed", format, args...)
	e.Message = fmt.Sprintf("cannot stage dataset %s on this node: %s", name, e.Message)
	return e
}
