// Package blob stores immutable files under names: working directories, the output of ended runs, checkpoints.
//
// A stored blob is never changed. The server uses it; agents and people get at it through the API, or with requests
// that a Signer has signed. An agent on the machine of the server may use the same folder. Dir keeps blobs in a
// folder; package s3 keeps them in an object store. Package blobtest is the contract of both.
package blob

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/fault"
)

// Store keeps blobs. It is safe for concurrent use.
type Store interface {
	// Put stores what it reads under a name, at once and whole: a reader that
	// fails leaves no trace.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get opens a blob for reading, or answers fault.NotFound.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// GetRange opens length bytes of a blob from an offset on, or answers fault.NotFound. The range must lie
	// within the blob; it is fault.Invalid otherwise.
	GetRange(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// Stat describes a blob, or answers fault.NotFound.
	Stat(ctx context.Context, name string) (Info, error)
	// Has reports whether there is a blob of this name.
	Has(ctx context.Context, name string) (bool, error)
	// Delete removes a blob; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// List describes the blobs whose names begin with prefix, in the order of their names. An error is the last
	// thing it yields.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Info describes a blob.
type Info struct {
	Name   string
	Size   int64
	Stored time.Time // when it was put, by the clock of the machine that stores it
}

// Signer is a store that others may reach without its credentials, with a request that was signed for them.
type Signer interface {
	// SignPut allows to put one blob of this size and SHA-256 (in hex), for ttl from now on. The store refuses any
	// other content.
	SignPut(ctx context.Context, name string, size int64, sha256 string, ttl time.Duration) (Request, error)
	// SignGet allows to get one blob, or a range of it, for ttl from now on.
	SignGet(ctx context.Context, name string, ttl time.Duration) (Request, error)
}

// Local is a store in a folder of this machine.
type Local interface {
	// Stage is Put without the wait for the disk. The blob is there at once for all who use this Local, but the end of
	// the process or a power cut may take it away, as a whole, until Sync has returned.
	Stage(ctx context.Context, name string, r io.Reader) error
	// Sync returns when these blobs survive a power cut, whoever put them there. It is fault.NotFound if one is not
	// there.
	Sync(ctx context.Context, names []string) error
	// Folder is where the blobs are: the file of each has its name.
	Folder() string
	// Sees reports whether a nonce file is in this folder, which somebody has made who found it under the same path. If
	// it is, both mean the same folder.
	Sees(nonce string) bool
}

// Cleaner is a store in which a server that is killed leaves parts of uploads behind that no list shows.
type Cleaner interface {
	// RemoveUploads removes the uploads that were begun before a time and never finished, and returns how many.
	RemoveUploads(ctx context.Context, before time.Time) (int, error)
}

// Pruner is a store in which folders stay behind when the blobs in them are deleted.
type Pruner interface {
	// Prune removes the folders of a blob that was deleted, as far as they are empty, except the outermost.
	Prune(name string) error
}

// Request is a signed HTTP request: PUT with the content as its body, or GET.
type Request struct {
	URL    string
	Header map[string]string // headers it must have, besides Host and Content-Length, which every client sends
}

// CheckName refuses a name that no blob can have. Names are made by the server; one that would lead out of a folder
// is refused all the same.
func CheckName(name string) error {
	if !fs.ValidPath(name) || !filepath.IsLocal(name) || name == "." || strings.ContainsRune(name, 0) {
		return fault.New(fault.Invalid, "blob_name", "invalid blob name %q", name)
	}

	return nil
}

// CheckPrefix refuses a prefix with which no name can begin.
func CheckPrefix(prefix string) error {
	if end := strings.LastIndexByte(prefix, '/'); end >= 0 {
		return CheckName(prefix[:end])
	}

	return nil
}

// NotFound is the error about a blob that is not there.
func NotFound(name string) error {
	return fault.New(fault.NotFound, "blob_not_found", "there is no %s", name)
}

// BadRange is the error about a range that does not lie within a blob.
func BadRange(name string, offset, length int64) error {
	return fault.New(fault.Invalid, "blob_range", "%s has no %d bytes from %d on", name, length, offset)
}

// lookups is how many blobs Missing asks for at the same time: an object store takes some milliseconds to
// answer, but answers many at once.
const lookups = 32

// Missing returns those of the names that a store does not have, in their order.
func Missing(ctx context.Context, s Store, names []string) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	absent := make([]bool, len(names))
	var next atomic.Int64
	var workers sync.WaitGroup

	for range min(lookups, len(names)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(names)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				has, err := s.Has(ctx, names[i])
				if err != nil {
					cancel(err)
				}

				absent[i] = !has
			}
		})
	}

	workers.Wait()

	if err := context.Cause(ctx); err != nil {
		return nil, err
	}

	var missing []string
	for i, name := range names {
		if absent[i] {
			missing = append(missing, name)
		}
	}

	return missing, nil
}
