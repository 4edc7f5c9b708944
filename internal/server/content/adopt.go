package content

import (
	"context"
	"fmt"

	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
)

// adoptPage is how many manifests are adopted at a time.
const adoptPage = 100

// Adopt enters what users possess of the time before possessions were recorded: the working directories of their jobs.
// Until it has, they are asked to upload those again. It can be interrupted and called again.
func (c *Content) Adopt(ctx context.Context) error {
	for {
		unread, err := c.store.UnreadManifests(ctx, adoptPage)
		if err != nil || len(unread) == 0 {
			return err
		}

		for i := range unread {
			if err := c.adopt(ctx, &unread[i]); err != nil {
				return fmt.Errorf("enter the files of the working directory %s: %w", unread[i].Digest, err)
			}
		}
	}
}

// adopt enters the files that a manifest lists. One that is not there, or that no job could use, is not possessed.
func (c *Content) adopt(ctx context.Context, p *store.Possession) error {
	m, err := c.read(ctx, p.Digest)
	switch k := fault.KindOf(err); {
	case err == nil:
	case k == fault.NotFound || k == fault.Invalid:
		return c.store.Disown(ctx, p.Digest)
	default:
		return err
	}

	digests := []string{p.Digest}
	for i := range m.Files {
		if m.Files[i].Digest != "" {
			digests = append(digests, m.Files[i].Digest)
		}
	}

	// The manifest comes with its files in one transaction, so that none is forgotten.
	var rows []store.Possession
	for _, d := range digests {
		info, err := c.blobs.Stat(ctx, httpapi.FileBlob(d))
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return err
		}

		rows = append(rows, store.Possession{Owner: p.Owner, Digest: d, Size: info.Size, Since: p.Since})
	}

	return c.store.Possess(ctx, rows...)
}
