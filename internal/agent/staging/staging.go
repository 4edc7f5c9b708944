// Package staging brings the datasets of runs to this machine and keeps them for the
// runs that come after.
//
// On the path of a job it stands between the assignment and the start: the agent calls
// Stage before it gives a rank to the runtime, and the program finds its data by the
// variables that Stage returns. Data that the machine has already, by a path, is read
// where it is and never touched. What has to be fetched comes into a cache:
//
//	<dir>/<name>-<hash of the source>/
//	    part/            while it is fetched; a fetch that broke off goes on from here
//	    from.json        which version of the source part is of
//	    data/            when it is whole: renamed from part
//	        about.json   name, source and size; its time is that of the last use
//	        content/     the file or folder
//	<dir>/.holds/<rank>  what a rank uses: it is not removed before the rank has ended
//	<dir>/.views/<hash>/ TRAINYARD_DATA_DIR: a link for each dataset, by its name
//
// Runs that need the same data at once fetch it once. What no run uses is removed, the
// least recently used first, when the disk or the cache's limit leaves no room for
// what is needed. The package decides nothing about who may use what: the yard sends
// a run only where the rules of its data allow it.
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
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// Options is what a cache needs. Dir, Log and Clock must be given.
type Options struct {
	Dir   string
	Limit job.Bytes // that it may hold; as much as the disk has if left out
	Log   *slog.Logger
	Clock clock.Clock
	// Client fetches; one with a transport of its own if left out.
	Client *http.Client
	// Free tells how much of a folder's disk is free and how much it has; asked of the
	// system if left out.
	Free  func(dir string) (free, total job.Bytes, err error)
	Wait  time.Duration // before a fetch is tried again, doubled each time; a second if left out
	Stall time.Duration // without a byte, after which a connection is given up; a minute if left out
	Tries int           // that bring nothing before a fetch is given up; 6 if left out
	// Changed is called when a fetch has ended.
	Changed func()
}

// Cache keeps datasets. Its methods may be called from several goroutines.
type Cache struct {
	opt    Options
	ctx    context.Context //nolint:containedctx // ends with Close; bounds the fetches
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	space  sync.Mutex // one search for room at a time

	mu      sync.Mutex
	entries map[string]*entry // whole ones
	fetches map[string]*fetch // under way
	holds   map[string]*hold  // by rank
}

// Open opens a cache and makes it if it is not there.
func Open(opt Options) (*Cache, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}

	opt.Dir = dir
	opt.Wait, opt.Stall, opt.Tries = cmp.Or(opt.Wait, time.Second), cmp.Or(opt.Stall, time.Minute), cmp.Or(opt.Tries, 6)
	if opt.Free == nil {
		opt.Free = diskFree
	}

	if opt.Changed == nil {
		opt.Changed = func() {}
	}

	if opt.Client == nil {
		opt.Client = &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
		}
	}

	c := &Cache{opt: opt, entries: map[string]*entry{}, fetches: map[string]*fetch{}, holds: map[string]*hold{}}

	for _, d := range []string{dir, filepath.Join(dir, holdsDir), filepath.Join(dir, viewsDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create the dataset cache: %w", err)
		}
	}

	if err := errors.Join(c.loadEntries(), c.loadHolds()); err != nil {
		return nil, fmt.Errorf("read the dataset cache: %w", err)
	}

	c.ctx, c.cancel = context.WithCancel(context.Background())

	return c, nil
}

// Close ends all fetches; another cache on the same folder goes on with them.
func (c *Cache) Close() {
	c.cancel()
	c.tasks.Wait()
	c.opt.Client.CloseIdleConnections()
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

// Progress says in words what a rank waits for, "" if for nothing.
func (c *Cache) Progress(rank string) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	h := c.holds[rank]
	if h == nil || h.waits == nil {
		return ""
	}

	return h.waits.words()
}

// Copies lists what was fetched and is kept, by name and source.
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

// failed is why a dataset could not be had, in words.
func failed(name, format string, args ...any) *fault.Error {
	e := fault.New(fault.Unavailable, "data_failed", format, args...)
	e.Message = fmt.Sprintf("cannot stage dataset %s on this node: %s", name, e.Message)
	return e
}
