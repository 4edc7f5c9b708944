// Package outputs keeps the catalogue of output files: the files that runs leave behind because their job file names
// them (outputs).
//
// An agent uploads them in chunks like a checkpoint and enters the manifest here; people list and fetch them; package
// collector removes what is not kept any more. An entry is a document of the store, one for each rank of a run. The
// files themselves are chunks of the blob store. The package does not know who may do what: agentapi and server ask
// that before.
package outputs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
)

// Entry is the output files of one rank of a run.
type Entry struct {
	Run      id.Run    `json:"run"`
	Rank     int       `json:"rank"`
	Node     id.Node   `json:"node"`
	Manifest string    `json:"manifest,omitempty"` // digest; "" if the files are not kept any more
	Files    int       `json:"files"`
	Bytes    job.Bytes `json:"bytes"`
	Notes    []string  `json:"notes,omitempty"`
	Removed  string    `json:"removed,omitempty"` // why they are not kept any more, in one sentence for their owner
	Kept     time.Time `json:"-"`
}

// Job returns the job of the run.
func (e *Entry) Job() id.Job {
	j, _, _ := e.Run.Split()
	return j
}

// document names the document of an entry.
func document(run id.Run, rank int) string {
	j, _, _ := run.Split()
	return string(j) + "/" + string(run) + "/" + strconv.Itoa(rank)
}

// Catalogue is the output files of a yard. It is safe for concurrent use.
type Catalogue struct {
	store store.Store
	blobs blob.Store
	clock clock.Clock
	most  job.Bytes // of one rank; 0 for no limit

	adding sync.Mutex // held while an entry is changed

	mu     sync.Mutex
	chunks map[string]map[string]bool // digests that a manifest lists
}

// New returns the catalogue of a store. A rank may have files of at most so many bytes; 0 for no limit.
func New(s store.Store, b blob.Store, c clock.Clock, most job.Bytes) *Catalogue {
	return &Catalogue{store: s, blobs: b, clock: c, most: most}
}

// CodeQuota is the code of output files that are too large to be kept.
const CodeQuota = "output_files_quota"

// Room fails if there is no room for the output files of a rank.
func (c *Catalogue) Room(bytes job.Bytes) error {
	if c.most == 0 || bytes <= c.most {
		return nil
	}

	// Not OverLimit, which agents take for a limit that is over in a moment.
	return fault.New(fault.Conflict, CodeQuota, "the output files of the run have %s, and the limit is %s", bytes, c.most).
		WithField("outputs").
		WithRemedy("name fewer files in outputs, or ask an administrator for a higher --max-output-files")
}

// maxNotes bounds what is kept of what agents say.
const (
	maxNotes = 20
	maxNote  = 500
)

// Add enters output files whose chunks are all stored. What the rank has there already under other paths stays.
func (c *Catalogue) Add(ctx context.Context, e Entry, m *api.CheckpointManifest) error {
	return c.add(ctx, e, m, false)
}

// AddMore is Add for files that somebody has asked for: the notes of the entry stay.
func (c *Catalogue) AddMore(ctx context.Context, e Entry, m *api.CheckpointManifest) error {
	return c.add(ctx, e, m, true)
}

func (c *Catalogue) add(ctx context.Context, e Entry, m *api.CheckpointManifest, keepNotes bool) error {
	c.adding.Lock()
	defer c.adding.Unlock()

	before, err := c.Find(ctx, e.Run, e.Rank)
	switch {
	case fault.KindOf(err) == fault.NotFound:
	case err != nil:
		return err
	case before.Manifest != "" && before.Manifest != e.Manifest:
		m, err = c.merge(ctx, before.Manifest, m)
		if err == nil {
			e.Manifest, err = c.putManifest(ctx, m)
		}

		if err != nil {
			return fmt.Errorf("add to the output files of %s: %w", e.Run, err)
		}
	}

	if keepNotes {
		e.Notes = before.Notes
	}

	e.Files, e.Bytes = len(m.Files), job.Bytes(m.Size())
	if err := c.Room(e.Bytes); err != nil {
		return err
	}

	e.Notes = e.Notes[:min(len(e.Notes), maxNotes)]
	for i, note := range e.Notes {
		e.Notes[i] = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	}

	return c.keep(ctx, c.clock.Now(), e)
}

// merge returns the files of both manifests; of a path that both have, that of the newer.
func (c *Catalogue) merge(
	ctx context.Context, older string, newer *api.CheckpointManifest,
) (*api.CheckpointManifest, error) {
	old, err := httpapi.ReadManifest(ctx, c.blobs, older)
	if err != nil {
		return nil, err
	}

	files := slices.Concat(newer.Files, old.Files)
	slices.SortStableFunc(files, func(a, b api.CheckpointFile) int { return strings.Compare(a.Path, b.Path) })
	files = slices.CompactFunc(files, func(a, b api.CheckpointFile) bool { return a.Path == b.Path })

	return &api.CheckpointManifest{Files: files}, nil
}

// putManifest stores a manifest and returns its digest.
func (c *Catalogue) putManifest(ctx context.Context, m *api.CheckpointManifest) (string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}

	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])

	return digest, c.blobs.Put(ctx, httpapi.ChunkBlob(digest), strings.NewReader(string(text)))
}

func (c *Catalogue) keep(ctx context.Context, at time.Time, list ...Entry) error {
	docs := make([]store.Document, len(list))
	for i := range list {
		text, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}

		docs[i] = store.Document{
			Kind: store.OutputsDocument, ID: document(list[i].Run, list[i].Rank), At: at, Text: string(text),
		}
	}

	return c.store.Keep(ctx, docs...)
}

// Remove records that entries are not kept, and why. Their chunks are removed by the collector when nothing else
// refers to them.
func (c *Catalogue) Remove(ctx context.Context, why string, list ...Entry) error {
	c.adding.Lock()
	defer c.adding.Unlock()

	for i := range list {
		e := list[i]
		e.Manifest, e.Removed = "", why

		if err := c.keep(ctx, e.Kept, e); err != nil {
			return err
		}
	}

	return nil
}

// Find returns the entry of a rank, or fault.NotFound.
func (c *Catalogue) Find(ctx context.Context, run id.Run, rank int) (Entry, error) {
	docs, err := c.store.Documents(ctx, store.DocumentFilter{
		Kind: store.OutputsDocument, ID: document(run, rank), Limit: 1,
	})
	if err != nil {
		return Entry{}, err
	}
	if len(docs) == 0 {
		return Entry{}, fault.New(fault.NotFound, "outputs_not_found", "no output files of rank %d of run %s are kept",
			rank, run)
	}

	return decode(&docs[0])
}

// maxEntries is how many ranks of a job are listed at most.
const maxEntries = 10_000

// Of returns the entries of a job: those of the newest run first, by rank.
func (c *Catalogue) Of(ctx context.Context, j id.Job) ([]Entry, error) {
	docs, err := c.store.Documents(ctx, store.DocumentFilter{
		Kind: store.OutputsDocument, Under: string(j), Limit: maxEntries,
	})
	if err != nil {
		return nil, err
	}

	list := make([]Entry, len(docs))
	for i := range docs {
		if list[i], err = decode(&docs[i]); err != nil {
			return nil, err
		}
	}

	slices.SortFunc(list, func(a, b Entry) int {
		_, first, _ := a.Run.Split()
		_, second, _ := b.Run.Split()

		return cmp.Or(cmp.Compare(second, first), cmp.Compare(a.Rank, b.Rank))
	})

	return list, nil
}

// page is how many entries are read at a time.
const page = 500

// Each visits all entries, by job.
func (c *Catalogue) Each(ctx context.Context, visit func(*Entry) error) error {
	filter := store.DocumentFilter{Kind: store.OutputsDocument, ByID: true, Limit: page}
	for {
		docs, err := c.store.Documents(ctx, filter)
		if err != nil {
			return err
		}

		for i := range docs {
			e, err := decode(&docs[i])
			if err == nil {
				err = visit(&e)
			}

			if err != nil {
				return err
			}
		}

		if len(docs) < page {
			return nil
		}

		filter.After = docs[len(docs)-1].ID
	}
}

func decode(d *store.Document) (Entry, error) {
	e := Entry{Kept: d.At}
	if err := json.Unmarshal([]byte(d.Text), &e); err != nil {
		return e, fmt.Errorf("read the output files %s: %w", d.ID, err)
	}

	return e, nil
}

// Files returns the files of an entry.
func (c *Catalogue) Files(ctx context.Context, e *Entry) ([]api.CheckpointFile, error) {
	if e.Manifest == "" {
		return nil, fault.New(fault.NotFound, "outputs_removed", "the output files of rank %d of run %s were removed: %s",
			e.Rank, e.Run, e.Removed)
	}

	m, err := httpapi.ReadManifest(ctx, c.blobs, e.Manifest)
	if err != nil {
		return nil, err
	}

	return m.Files, nil
}

// rememberedManifests bounds the manifests whose chunks are remembered; past it all are read again.
const rememberedManifests = 64

// Open opens a chunk of the files of an entry.
func (c *Catalogue) Open(ctx context.Context, e *Entry, digest string) (io.ReadCloser, error) {
	listed, err := c.listed(ctx, e)
	if err != nil {
		return nil, err
	}

	missing := fault.New(fault.NotFound, "chunk_not_found", "the output files of rank %d of run %s have no chunk %s",
		e.Rank, e.Run, digest)
	if !listed[digest] {
		return nil, missing
	}

	f, err := c.blobs.Get(ctx, httpapi.ChunkBlob(digest))
	if fault.KindOf(err) == fault.NotFound {
		err = errors.Join(missing, err)
	}

	return f, err
}

// listed returns the chunks of the files of an entry. What a manifest lists never changes.
func (c *Catalogue) listed(ctx context.Context, e *Entry) (map[string]bool, error) {
	c.mu.Lock()
	known := c.chunks[e.Manifest]
	c.mu.Unlock()

	if known != nil {
		return known, nil
	}

	files, err := c.Files(ctx, e)
	if err != nil {
		return nil, err
	}

	listed := map[string]bool{}
	for i := range files {
		for _, chunk := range files[i].Chunks {
			listed[chunk.Digest] = true
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if c.chunks == nil || len(c.chunks) >= rememberedManifests {
		c.chunks = map[string]map[string]bool{}
	}

	c.chunks[e.Manifest] = listed

	return listed, nil
}
