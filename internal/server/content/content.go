// Package content knows who may refer to which uploaded content: a user to what they have uploaded, and a node to what
// the working directories of its runs list.
//
// A content is named by its digest, and its bytes are kept once, whoever uploads them. The digest alone gives no right
// to the content: digests of short files can be guessed, and others are seen by nodes and in logs. So a user possesses
// a content only after they have uploaded all of it, and to everybody else it is as if it was not there. The package
// serves the steps submit and launch of a job's path: internal/server asks it about users, agentapi about nodes.
package content

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
)

// Content is the uploaded content of a yard. It is safe for concurrent use.
type Content struct {
	store store.Store
	blobs blob.Store
	clock clock.Clock
	lists lists

	writing sync.Mutex // held while possessions are written
	mu      sync.Mutex
	next    *upload // possessions that are written next; nil if there are none
}

// upload is possessions that are written in one transaction.
type upload struct {
	rows []store.Possession
	done chan struct{}
	err  error // valid once done is closed
}

// New returns the content of a store.
func New(s store.Store, b blob.Store, c clock.Clock) *Content {
	return &Content{store: s, blobs: b, clock: c}
}

// Uploaded records that a user has uploaded a content. Users upload many small files at a time, so all that come while
// others are written are written together.
func (c *Content) Uploaded(ctx context.Context, owner id.User, digest string, size int64) error {
	row := store.Possession{Owner: owner, Digest: digest, Size: size, Since: c.clock.Now()}

	c.mu.Lock()
	mine := c.next
	first := mine == nil
	if first {
		mine = &upload{done: make(chan struct{})}
		c.next = mine
	}

	mine.rows = append(mine.rows, row)
	c.mu.Unlock()

	if first {
		c.write(context.WithoutCancel(ctx), mine) // others wait for it who are still there
	}

	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write writes possessions when those before them are written.
func (c *Content) write(ctx context.Context, u *upload) {
	c.writing.Lock()
	defer c.writing.Unlock()

	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()

	u.err = c.store.Possess(ctx, u.rows...)
	close(u.done)
}

// Missing returns those of the digests that a user has to upload: they do not possess the content, or it is not there.
// It tells nothing about the content of others.
func (c *Content) Missing(ctx context.Context, owner id.User, digests []string) ([]string, error) {
	possessed, err := c.store.Possessed(ctx, owner, digests)
	if err != nil {
		return nil, err
	}

	names := make([]string, len(possessed))
	held := make(map[string]bool, len(possessed))

	for i, d := range possessed {
		names[i] = httpapi.FileBlob(d)
		held[d] = true
	}

	// Only now: whoever removes a content also removes its possessions, and not between this question and the next.
	absent, err := blob.Missing(ctx, c.blobs, names)
	if err != nil {
		return nil, err
	}

	gone := make(map[string]bool, len(absent))
	for _, name := range absent {
		gone[name] = true
	}

	var missing []string
	for _, d := range digests {
		if !held[d] || gone[httpapi.FileBlob(d)] {
			missing = append(missing, d)
		}
	}

	return missing, nil
}

// CheckWorkdir makes sure that the working directory a user names is here whole, that it can be made on a node, and
// that they possess all of it.
func (c *Content) CheckWorkdir(ctx context.Context, owner id.User, manifest string) error {
	if err := httpapi.CheckDigest(manifest, "workdir"); err != nil {
		return err
	}

	missing, err := c.Missing(ctx, owner, []string{manifest})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return notUploaded("the manifest")
	}

	listed, err := c.list(ctx, manifest)
	switch k := fault.KindOf(err); {
	case k == fault.NotFound:
		return notUploaded("the manifest")
	case k == fault.Invalid:
		return badManifest(err)
	case err != nil:
		return err
	}

	missing, err = c.Missing(ctx, owner, listed.texts())
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return c.notUploadedFile(ctx, manifest, missing[0])
	}

	return nil
}

// notUploadedFile is the error about a file of a working directory, by its path.
func (c *Content) notUploadedFile(ctx context.Context, manifest, digest string) error {
	m, err := c.read(ctx, manifest)
	if err != nil {
		return err
	}

	for i := range m.Files {
		if m.Files[i].Digest == digest {
			return notUploaded(fmt.Sprintf("the file %s", m.Files[i].Path))
		}
	}

	return notUploaded("a file")
}

func notUploaded(what string) error {
	return fault.New(fault.Invalid, "workdir_missing", "%s of the working directory was not uploaded", what).
		WithField("workdir").
		WithRemedy("upload it first with PUT /api/v1/files/{digest}, or use trainyard submit")
}

// badManifest is the error about a manifest of which no working directory can be made.
func badManifest(err error) error {
	reason := err.Error()
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		reason = f.Message
	}

	return fault.New(fault.Invalid, "bad_manifest", "the uploaded manifest is not valid: %s", reason).
		WithField("workdir").WithCause(err)
}
