// Package download writes the output files of a job into a folder.
//
// A file is fetched in chunks, each of which is verified, into a file beside its place and gets its name when it is
// complete: what is there under its name is whole. What an interrupted download has left is verified and not fetched
// again. Nothing is ever written outside the folder, whatever the names and links of the files are, and a file that
// is there with other content is left alone unless the caller says otherwise. cli calls it for fetch.
package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"trainyard/internal/api"
	"trainyard/internal/cli/follow"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

const (
	downloaders = 8
	attempts    = 5 // of a chunk when the server does not answer
	maxNamed    = 5 // files that an error names
)

// Item is a file to fetch.
type Item struct {
	Run  id.Run
	Rank int
	Path string // in the folder, with forward slashes
	File api.CheckpointFile
}

// Summary is what was done.
type Summary struct {
	Written int   // files and links
	Bytes   int64 // of the files that were written
	Same    int   // files and links that were there already
}

// Options says how files are fetched.
type Options struct {
	Force    bool // replace files with other content
	Progress func(done, total int64)
}

// Chunks opens a chunk of an output file.
type Chunks func(ctx context.Context, run id.Run, rank int, digest string) (io.ReadCloser, error)

// Fetch writes files into a folder, which is made if it is not there.
func Fetch(ctx context.Context, chunks Chunks, dir string, items []Item, opts Options) (sum Summary, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // an ordinary folder of the user's
		return sum, fmt.Errorf("create %s: %w", dir, err)
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return sum, fmt.Errorf("open %s: %w", dir, err)
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	d := &download{root: root, chunks: chunks, opts: opts}
	if err := d.check(items); err != nil {
		return sum, err
	}
	if err := d.files(ctx); err != nil {
		return d.sum, err
	}

	// Links come last, so that nothing is written through one.
	for i := range d.links {
		if err := d.link(&d.links[i]); err != nil {
			return d.sum, fmt.Errorf("create link %s: %w", d.links[i].Path, err)
		}
	}

	return d.sum, nil
}

// download is one under way.
type download struct {
	root         *os.Root
	chunks       Chunks
	opts         Options
	needed       []Item
	links        []Item
	total        int64
	done         atomic.Int64
	mu           sync.Mutex
	sum          Summary
	conflicts    []string
	conflictsSum int
}

// check finds out what is to be written, and refuses to overwrite anything before anything is fetched.
func (d *download) check(items []Item) error {
	for i := range items {
		item := &items[i]
		if !fs.ValidPath(item.Path) || item.Path == "." || strings.ContainsRune(item.Path, 0) {
			return fault.New(fault.Invalid, "bad_path", "the server sent a file with the name %.200q", item.Path)
		}
		if item.File.Link != "" && !api.InsideLink(item.Path, item.File.Link) {
			return fault.New(fault.Invalid, "bad_link", "%s is a link that points outside the folder, to %.200q", item.Path,
				item.File.Link)
		}

		same, err := d.present(item)
		switch {
		case err != nil:
			return fmt.Errorf("look at %s: %w", item.Path, err)
		case same:
			d.sum.Same++
		case item.File.Link != "":
			d.links = append(d.links, *item)
		default:
			d.needed = append(d.needed, *item)
			d.total += item.File.Size
		}
	}

	if d.conflictsSum == 0 || d.opts.Force {
		return nil
	}

	names := strings.Join(d.conflicts, ", ")
	if more := d.conflictsSum - len(d.conflicts); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}

	return fault.New(fault.Conflict, "file_exists", "%s would be overwritten: another file of this name is there", names).
		WithRemedy("choose another folder with --to, or replace them with --force")
}

// present reports whether a file is there as it should be. One that is there otherwise is a conflict.
func (d *download) present(item *Item) (bool, error) {
	name := filepath.FromSlash(item.Path)

	info, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	same := false

	switch {
	case item.File.Link != "" && info.Mode()&fs.ModeSymlink != 0:
		target, err := d.root.Readlink(name)
		if err != nil {
			return false, err
		}

		same = target == item.File.Link
	case item.File.Link == "" && info.Mode().IsRegular() && info.Size() == item.File.Size:
		f, err := d.root.Open(name)
		if err != nil {
			return false, err
		}

		same = intact(f, item.File.Chunks) == len(item.File.Chunks)
		if err := f.Close(); err != nil {
			return false, err
		}
	}

	if !same {
		d.conflictsSum++
		if len(d.conflicts) < maxNamed {
			d.conflicts = append(d.conflicts, item.Path)
		}
	}

	return same, nil
}

// intact returns how many of the chunks a file begins with.
func intact(f *os.File, chunks []api.CheckpointChunk) int {
	buf := make([]byte, 0, api.MaxChunk)
	at := int64(0)

	for i, c := range chunks {
		if c.Size <= 0 || c.Size > api.MaxChunk {
			return i // chunk refuses it
		}

		data := buf[:c.Size]
		if _, err := f.ReadAt(data, at); err != nil || digestOf(data) != c.Digest {
			return i
		}

		at += c.Size
	}

	return len(chunks)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// files fetches the files, a few at a time, and stops at the first error.
func (d *download) files(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	work := make(chan *Item)
	var group sync.WaitGroup

	for range min(downloaders, len(d.needed)) {
		group.Go(func() {
			for item := range work {
				if err := d.file(ctx, item); err != nil {
					stop(fmt.Errorf("fetch %s: %w", item.Path, err))
					return
				}

				d.mu.Lock()
				d.sum.Written++
				d.sum.Bytes += item.File.Size
				d.mu.Unlock()
			}
		})
	}

	for i := range d.needed {
		select {
		case work <- &d.needed[i]:
			continue
		case <-ctx.Done():
		}

		break
	}

	close(work)
	group.Wait()

	return context.Cause(ctx)
}

// partName names the unfinished file of a path, in the same folder.
func partName(item *Item) string {
	sum := digestOf([]byte(item.Path))
	return filepath.FromSlash(path.Join(path.Dir(item.Path), ".trainyard-"+sum[:16]+".part"))
}

// file fetches one file.
func (d *download) file(ctx context.Context, item *Item) (err error) {
	part, name := partName(item), filepath.FromSlash(item.Path)
	if err := d.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}

	f, err := d.root.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}

	err = d.fill(ctx, f, item)
	if err == nil {
		err = f.Truncate(item.File.Size)
	}

	if err == nil {
		err = f.Chmod(fs.FileMode(item.File.Mode)&0o777 | 0o600) // whoever has it can read and remove it
	}

	if closing := f.Close(); err == nil {
		err = closing
	}

	if err != nil {
		return err // the part stays, for the next time
	}

	return d.root.Rename(part, name)
}

// fill writes the chunks of a file that are not there yet.
func (d *download) fill(ctx context.Context, f *os.File, item *Item) error {
	have := intact(f, item.File.Chunks)
	at := int64(0)

	for i, c := range item.File.Chunks {
		if i >= have {
			data, err := d.chunk(ctx, item, c)
			if err != nil {
				return err
			}
			if _, err := f.WriteAt(data, at); err != nil {
				return err
			}
		}

		at += c.Size
		d.opts.Progress(d.done.Add(c.Size), d.total)
	}

	return nil
}

// chunk fetches and verifies one chunk. A server that does not answer is asked again.
func (d *download) chunk(ctx context.Context, item *Item, c api.CheckpointChunk) ([]byte, error) {
	for attempt := 1; ; attempt++ {
		data, err := d.chunkOnce(ctx, item, c)
		if err == nil || ctx.Err() != nil || attempt == attempts || fault.KindOf(err) != fault.Unavailable ||
			!follow.Backoff(ctx, attempt) {
			return data, err
		}
	}
}

func (d *download) chunkOnce(ctx context.Context, item *Item, c api.CheckpointChunk) ([]byte, error) {
	if c.Size <= 0 || c.Size > api.MaxChunk {
		return nil, fault.New(fault.Invalid, "bad_manifest", "the server sent a chunk of %d bytes", c.Size)
	}

	body, err := d.chunks(ctx, item.Run, item.Rank, c.Digest)
	if err != nil {
		return nil, err
	}

	defer func() { _ = body.Close() }()

	data := make([]byte, c.Size)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, fault.New(fault.Unavailable, "download_broken", "the download broke off: %v", err).WithCause(err)
	}
	if digestOf(data) != c.Digest {
		return nil, fault.New(fault.Unavailable, "download_damaged", "a part of the file arrived damaged")
	}

	return data, nil
}

// link makes a link, in place of what is there if that was allowed.
func (d *download) link(item *Item) error {
	name := filepath.FromSlash(item.Path)
	if err := d.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.root.Symlink(item.File.Link, name); err != nil {
		return err
	}

	d.sum.Written++

	return nil
}
