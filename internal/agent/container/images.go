package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"trainyard/internal/atomicfile"
	"trainyard/internal/job"
)

// imagesFile has what is remembered of pulled images.
const imagesFile = "images.json"

// images are those that this agent has pulled, by their ids.
type images struct {
	mu    sync.Mutex
	path  string
	known map[string]pulled
}

// pulled is an image that this agent has pulled.
type pulled struct {
	Name string    `json:"name"`
	Size job.Bytes `json:"size"`
	Used time.Time `json:"used"` // when a run used it last
}

func (i *images) load(path string) error {
	i.path, i.known = path, map[string]pulled{}

	return readJSON(path, &i.known)
}

// use records that a run uses an image.
func (i *images) use(img Image, now time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.known[img.ID] = pulled{Name: img.Name, Size: img.size, Used: now}

	return i.save()
}

// save writes what is known. The caller holds mu.
func (i *images) save() error {
	text, err := json.Marshal(i.known)
	if err == nil {
		err = atomicfile.Write(i.path, text, atomicfile.SingleWriter())
	}

	if err != nil {
		return fmt.Errorf("remember which images were pulled: %w", err)
	}

	return nil
}

func (i *images) forget(id string) error {
	i.mu.Lock()
	defer i.mu.Unlock()

	delete(i.known, id)

	return i.save()
}

// due lists the images that are to be removed: those that are too old, and the least recently used ones while all
// together take too much room.
func (i *images) due(now time.Time, age time.Duration, room job.Bytes) []string {
	i.mu.Lock()
	defer i.mu.Unlock()

	var ids []string
	var all job.Bytes

	for id, p := range i.known {
		ids = append(ids, id)
		all += p.Size
	}

	slices.SortFunc(ids, func(a, b string) int { return i.known[a].Used.Compare(i.known[b].Used) })

	var list []string
	for _, id := range ids {
		if p := i.known[id]; now.Sub(p.Used) > age || all > room {
			list = append(list, id)
			all -= p.Size
		}
	}

	return list
}

// Prune removes images that no run has used for long, or that take too much room, of those that were pulled here. One
// that a container uses stays.
func (e *Engine) Prune(ctx context.Context) error {
	var errs []error
	for _, id := range e.images.due(e.opt.Clock.Now(), e.opt.ImageAge, e.opt.MaxImages) {
		_, err := e.cli.ImageRemove(ctx, id, client.ImageRemoveOptions{PruneChildren: true})

		switch {
		case err == nil || isGone(err):
			errs = append(errs, e.images.forget(id))
		case errdefs.IsConflict(err): // a container uses it
		default:
			errs = append(errs, fmt.Errorf("remove image %s: %w", id, err))
		}
	}

	return errors.Join(errs...)
}

// isGone reports whether the engine does not know what was asked for.
func isGone(err error) bool { return errdefs.IsNotFound(err) }
