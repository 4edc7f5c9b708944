package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/workdir"
)

// digest is a SHA-256.
type digest [sha256.Size]byte

// digests are those of the files of a working directory, sorted, each once.
type digests []digest

func (l digests) has(text string) bool {
	var d digest
	if n, err := hex.Decode(d[:], []byte(text)); err != nil || n != len(d) {
		return false
	}

	_, found := slices.BinarySearchFunc(l, d, func(a, b digest) int { return bytes.Compare(a[:], b[:]) })

	return found
}

// texts returns the digests in hex.
func (l digests) texts() []string {
	out := make([]string, len(l))
	for i := range l {
		out[i] = hex.EncodeToString(l[i][:])
	}

	return out
}

// lists remembers what manifests list, which never changes. Past a bound all are read again.
type lists struct {
	mu    sync.Mutex
	by    map[string]digests
	total int // digests in all of them
}

// maxListed bounds the digests that are remembered, 32 bytes each.
const maxListed = 1_000_000

func (l *lists) find(manifest string) (digests, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	found, ok := l.by[manifest]

	return found, ok
}

func (l *lists) add(manifest string, listed digests) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// The manifest itself counts too, so that many without files are bounded as well.
	if l.by == nil || l.total+len(listed)+1 > maxListed {
		l.by, l.total = map[string]digests{}, 0
	}
	if _, known := l.by[manifest]; !known {
		l.by[manifest] = listed
		l.total += len(listed) + 1
	}
}

// Lists reports whether a working directory has a content: its manifest, or a file that the manifest lists. One that is
// not there or damaged lists itself alone: whoever makes the directory finds out what is wrong with it.
func (c *Content) Lists(ctx context.Context, manifest, content string) (bool, error) {
	if content == manifest {
		return true, nil
	}

	listed, err := c.list(ctx, manifest)
	switch k := fault.KindOf(err); {
	case err == nil:
		return listed.has(content), nil
	case k == fault.NotFound || k == fault.Invalid:
		return false, nil
	default:
		return false, err
	}
}

// list returns the digests of the files of a working directory.
func (c *Content) list(ctx context.Context, manifest string) (digests, error) {
	if listed, known := c.lists.find(manifest); known {
		return listed, nil
	}

	m, err := c.read(ctx, manifest)
	if err != nil {
		return nil, err
	}

	listed := make(digests, 0, len(m.Files))
	for i := range m.Files {
		if m.Files[i].Digest == "" { // a link
			continue
		}

		var d digest
		if _, err := hex.Decode(d[:], []byte(m.Files[i].Digest)); err != nil {
			return nil, fmt.Errorf("digest of %q: %w", m.Files[i].Path, err)
		}

		listed = append(listed, d)
	}

	slices.SortFunc(listed, func(a, b digest) int { return bytes.Compare(a[:], b[:]) })
	listed = slices.Clip(slices.Compact(listed))
	c.lists.add(manifest, listed)

	return listed, nil
}

// read reads the manifest of a working directory, and checks that it can be made into one as agents check it.
func (c *Content) read(ctx context.Context, manifest string) (m api.Manifest, err error) {
	if err := httpapi.CheckDigest(manifest, "workdir"); err != nil {
		return m, err
	}

	f, err := c.blobs.Get(ctx, httpapi.FileBlob(manifest))
	if err != nil {
		return m, err
	}

	defer func() { _ = f.Close() }()

	return workdir.Decode(f)
}
