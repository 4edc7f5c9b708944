package collector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/outputs"
	"trainyard/internal/yardmaster"
)

// The prefixes of blobs that are removed if nothing refers to them. All others stay.
const (
	filePrefix  = "files/"
	chunkPrefix = "chunks/"
)

// mark finds out which blobs are needed.
//
// Jobs come first and runs that are being restored come last. A run continues from a checkpoint that is in the
// catalogue when it is launched: either it was there when the catalogue was read, or it was added later, and then its
// chunks were looked for later, through the guard.
func (c *Collector) mark(ctx context.Context, now time.Time, output archived, stock *Stock) (*marks, error) {
	m := &marking{
		marks:     marks{needed: set{}, saved: map[id.Job]bool{}, pipelines: map[string]bool{}},
		collector: c, lists: map[string][]key{},
	}

	newest := true
	err := c.eachJob(ctx, func(j *job.Job) error {
		if !c.Limits.KeepsJob(now, j) && !newest { // the next job is numbered after the newest
			m.old = append(m.old, oldJob{j.ID, j.Pipeline})
		}

		newest = false
		if !j.State.Final() {
			m.pipelines[j.Pipeline] = true
		}

		stock.count(j, output.note(now, j, &c.Limits))

		if j.Workdir == "" || c.Limits.Unused == 0 || !c.Limits.KeepsWorkdir(now, j) {
			return nil
		}

		return m.manifest(ctx, httpapi.FileBlob(j.Workdir), j.Workdir, filesOf)
	})
	if err != nil {
		return &m.marks, err
	}

	err = c.eachCheckpoint(ctx, func(s *checkpoint.Checkpoint) error {
		m.saved[s.Job] = true
		if c.Limits.Unused == 0 {
			return nil
		}

		if s.State == checkpoint.Corrupt { // never restored again
			return nil
		}

		for i := range s.Parts {
			if err := m.checkpoint(ctx, s.Parts[i].Manifest); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil || c.Limits.Unused == 0 {
		return &m.marks, err
	}

	err = c.files.Each(ctx, func(e *outputs.Entry) error { return m.checkpoint(ctx, e.Manifest) })
	if err != nil {
		return nil, err
	}

	var restored, scheduled []string
	if err := c.Loop.Query(ctx, func(y *yardmaster.Yard) {
		restored, scheduled = y.RestoredManifests(), y.ScheduledWorkdirs()
	}); err != nil {
		return nil, err
	}

	for _, digest := range scheduled {
		if err := m.manifest(ctx, httpapi.FileBlob(digest), digest, filesOf); err != nil {
			return nil, err
		}
	}

	for _, digest := range restored {
		if err := m.checkpoint(ctx, digest); err != nil {
			return nil, err
		}
	}

	c.lists = m.lists // and not those of manifests that are not needed any more

	return &m.marks, nil
}

// marking is a mark under way.
type marking struct {
	marks
	collector *Collector
	lists     map[string][]key
}

func (m *marking) checkpoint(ctx context.Context, digest string) error {
	if digest == "" { // it lies on a shared file system
		return nil
	}

	return m.manifest(ctx, httpapi.ChunkBlob(digest), digest, chunksOf)
}

// manifest marks a manifest and all that it lists.
func (m *marking) manifest(ctx context.Context, name, digest string, parse func(io.Reader) []string) error {
	if _, known := m.lists[name]; known {
		return nil
	}

	listed, known := m.collector.lists[name]
	if !known {
		names, err := m.collector.list(ctx, name, digest, parse)
		if err != nil {
			return err
		}

		listed = make([]key, len(names))
		for i, n := range names {
			listed[i] = m.collector.Guard.key(n)
		}
	}

	m.lists[name] = listed
	m.needed[m.collector.Guard.key(name)] = struct{}{}

	for _, k := range listed {
		m.needed[k] = struct{}{}
	}

	return nil
}

// list reads the blobs that a manifest lists. One that is gone lists nothing. One that is damaged is an error: what it
// lists is not known, so nothing may be removed.
func (c *Collector) list(
	ctx context.Context, name, digest string, parse func(io.Reader) []string,
) ([]string, error) {
	f, err := c.Guard.blobs.Get(ctx, name)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }()

	sum := sha256.New()
	names := parse(io.LimitReader(io.TeeReader(f, sum), api.MaxCheckpointManifest))

	// The whole of it has the digest; a manifest may be followed by something else.
	if _, err := io.Copy(sum, f); err != nil {
		return nil, fmt.Errorf("read the manifest %s: %w", name, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return nil, fmt.Errorf("the manifest %s is damaged: it does not have the SHA-256 of its name", name)
	}

	return names, nil
}

// filesOf returns the blobs of a working directory. Content that is not a manifest lists nothing: no job can use it.
func filesOf(r io.Reader) []string {
	var m api.Manifest
	if json.NewDecoder(r).Decode(&m) != nil {
		return nil
	}

	var names []string
	for i := range m.Files {
		if d := m.Files[i].Digest; httpapi.CheckDigest(d, "") == nil {
			names = append(names, httpapi.FileBlob(d))
		}
	}

	return names
}

// chunksOf returns the blobs of a checkpoint, likewise.
func chunksOf(r io.Reader) []string {
	var m api.CheckpointManifest
	if json.NewDecoder(r).Decode(&m) != nil {
		return nil
	}

	var names []string
	for i := range m.Files {
		for _, chunk := range m.Files[i].Chunks {
			if httpapi.CheckDigest(chunk.Digest, "") == nil {
				names = append(names, httpapi.ChunkBlob(chunk.Digest))
			}
		}
	}

	return names
}
