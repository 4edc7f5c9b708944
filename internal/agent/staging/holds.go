package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hold lists the cached datasets that a rank uses and that therefore must not be removed.
type hold struct {
	rank  string
	Keys  []string `json:"keys"`
	View  string   `json:"view"`
	waits *fetch   // the fetch that it waits for now, nil if none
}

func (c *Cache) holdPath(rank string) string { return filepath.Join(c.opt.Dir, holdsDir, rank) }

// loadHolds reads the holds that an earlier agent process recorded, because its ranks may still be
// running.
func (c *Cache) loadHolds() error {
	list, err := os.ReadDir(filepath.Join(c.opt.Dir, holdsDir))
	if err != nil {
		return err
	}

	for _, f := range list {
		h := &hold{rank: f.Name()}

		if strings.HasSuffix(f.Name(), ".new") {
			if err := os.Remove(c.holdPath(f.Name())); err != nil {
				return err
			}

			continue
		}

		if err := readJSON(c.holdPath(f.Name()), h); err != nil {
			return err
		}

		c.holds[h.rank] = h
	}

	return nil
}

// take records a hold, so that the datasets of the rank are not removed.
func (c *Cache) take(h *hold) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := writeJSON(c.holdPath(h.rank), h); err != nil {
		return err
	}

	c.holds[h.rank] = h

	return nil
}

// Drop releases the datasets of a rank. It does nothing for a rank without a hold.
func (c *Cache) Drop(rank string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	h := c.holds[rank]
	if h == nil {
		return nil
	}

	delete(c.holds, rank)
	for _, key := range h.Keys {
		if e := c.entries[key]; e != nil {
			c.touch(e) // the rank used it until now
		}
	}

	errs := []error{os.Remove(c.holdPath(rank))}
	if !c.viewUsed(h.View) {
		errs = append(errs, os.RemoveAll(filepath.Join(c.opt.Dir, viewsDir, h.View)))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("release the data of %s: %w", rank, err)
	}

	return nil
}

// Visible lists the directories of the cache that a rank uses: its view and the datasets that it shows.
func (c *Cache) Visible(rank string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	h := c.holds[rank]
	if h == nil {
		return nil
	}

	dirs := []string{filepath.Join(c.opt.Dir, viewsDir, h.View)}
	for _, key := range h.Keys {
		dirs = append(dirs, filepath.Join(c.opt.Dir, key))
	}

	return dirs
}

// KeepOnly drops the holds of all ranks for which live is false.
func (c *Cache) KeepOnly(live func(rank string) bool) error {
	c.mu.Lock()
	var over []string
	for rank := range c.holds {
		if !live(rank) {
			over = append(over, rank)
		}
	}

	c.mu.Unlock()
	slices.Sort(over)

	var errs []error
	for _, rank := range over {
		errs = append(errs, c.Drop(rank))
	}

	return errors.Join(errs...)
}

// held reports whether any rank uses an entry. The caller holds c.mu.
func (c *Cache) held(key string) bool {
	for _, h := range c.holds {
		if slices.Contains(h.Keys, key) {
			return true
		}
	}

	return false
}

func (c *Cache) viewUsed(view string) bool {
	for _, h := range c.holds {
		if h.View == view {
			return true
		}
	}

	return false
}

// viewName derives the name of a view from its content, so that ranks with the same data see the
// same path. The cache of set-ups depends on that: its key contains the environment, and so this
// path.
func viewName(places []located) string {
	var text strings.Builder
	for _, p := range places {
		fmt.Fprintf(&text, "%q %q\n", p.ref.Name, p.path)
	}

	sum := sha256.Sum256([]byte(text.String()))

	return hex.EncodeToString(sum[:16])
}

// makeView creates the directory with one link for each dataset. An existing view needs no check,
// because its name is a hash of its content.
func (c *Cache) makeView(name string, places []located) (string, error) {
	dir := filepath.Join(c.opt.Dir, viewsDir, name)
	c.mu.Lock() // another rank may be creating or removing the same view
	defer c.mu.Unlock()

	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}

	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}

	for _, p := range places {
		if err == nil {
			err = os.Symlink(p.path, filepath.Join(tmp, p.ref.Name))
		}
	}

	if err == nil {
		err = os.Chmod(tmp, 0o755) //nolint:gosec // programs that run as others may read it
	}

	if err == nil {
		err = os.Rename(tmp, dir)
	}

	if err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}

	return dir, nil
}

// prefix starts the names of the variables by which programs find their data.
const prefix = "TRAINYARD_DATA_"

// variables returns the environment variables of a rank. If two datasets map to the same variable
// name, the first one gets it; both are below TRAINYARD_DATA_DIR.
func variables(view string, places []located) map[string]string {
	vars := map[string]string{prefix + "DIR": view}
	for _, p := range places {
		name := prefix + strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(p.ref.Name))
		if _, taken := vars[name]; !taken {
			vars[name] = p.path
		}
	}

	return vars
}
