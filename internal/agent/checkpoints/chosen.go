package checkpoints

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"trainyard/internal/fault"
	"trainyard/internal/glob"
)

// view is the working directory of a rank as its program sees it: its own files, and those of the checkpoint directory
// below the link to it. No link is followed out of either.
type view struct {
	mounts []*mount // the working directory first
}

// mount is a directory and where the program sees it.
type mount struct {
	*tree
	at string // path in the working directory, "." for that itself
}

// choice is a file or link that is kept.
type choice struct {
	name string // in the working directory, with forward slashes
	on   *mount
	file file // its path is below the mount
}

func openView(set *Outputs) (*view, error) {
	v := &view{}
	if err := v.mount(set.Work, "."); err != nil {
		return nil, err
	}

	if set.Checkpoint != "" {
		err := v.mount(set.Checkpoints, path.Clean(filepath.ToSlash(set.Checkpoint)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, v.close())
		}
	}

	return v, nil
}

func (v *view) mount(dir, at string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the files of the run: %w", err)
	}

	v.mounts = append(v.mounts, &mount{tree: &tree{root: root}, at: at})

	return nil
}

func (v *view) close() error {
	var errs []error
	for _, m := range v.mounts {
		errs = append(errs, m.root.Close())
	}

	return errors.Join(errs...)
}

// find returns the mount of a path, and the path below it.
func (v *view) find(name string) (*mount, string) {
	for _, m := range slices.Backward(v.mounts) {
		if m.at == "." || name == m.at {
			return m, cleanBelow(name, m.at)
		}
		if below, ok := strings.CutPrefix(name, m.at+"/"); ok {
			return m, below
		}
	}

	return v.mounts[0], name
}

func cleanBelow(name, at string) string {
	if name == at {
		return "."
	}

	return name
}

// chooser finds the files that patterns choose.
type chooser struct {
	view     *view
	patterns []string
	found    []choice
	seen     int // entries that were looked at
	matched  map[string]bool
	notes    []string
	left     int // entries that were left out without a note
}

// choose finds the files and links that patterns choose, sorted by their names, and says what was left out.
func (v *view) choose(patterns []string) ([]choice, []string, error) {
	c := &chooser{view: v, patterns: patterns, matched: map[string]bool{}}
	for _, m := range v.mounts {
		if m.at != "." && !c.reaches(m.at) {
			continue
		}
		if err := c.walk(m, ".", 0); err != nil {
			return nil, nil, err
		}
	}

	slices.SortFunc(c.found, func(a, b choice) int { return strings.Compare(a.name, b.name) })
	c.settleLinks()

	for _, p := range patterns {
		if !c.matched[p] {
			c.note("%s: not found", p)
		}
	}

	if c.left > 0 {
		c.notes = append(c.notes, fmt.Sprintf("and %d more were left out", c.left))
	}

	return c.found, c.notes, nil
}

// maxOutputNotes is how many sentences are said about what was left out.
const maxOutputNotes = 10

func (c *chooser) note(format string, args ...any) {
	if len(c.notes) >= maxOutputNotes {
		c.left++
		return
	}

	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *chooser) reaches(dir string) bool {
	return slices.ContainsFunc(c.patterns, func(p string) bool { return glob.Reaches(p, dir) })
}

// chooses reports whether a pattern chooses a path, and remembers which.
func (c *chooser) chooses(name string) bool {
	found := false
	for _, p := range c.patterns {
		if glob.Match(p, name) {
			c.matched[p] = true
			found = true
		}
	}

	return found
}

// walk looks at one directory. One that is removed meanwhile is left out.
func (c *chooser) walk(m *mount, dir string, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.Invalid, "outputs_too_deep", "the directories of outputs are nested deeper than %d", maxDepth)
	}

	d, err := m.root.Open(filepath.FromSlash(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the files of the run: %w", err)
	}

	defer func() { _ = d.Close() }()

	for {
		entries, err := d.ReadDir(readBatch)
		for _, e := range entries {
			if err := c.enter(m, path.Join(dir, e.Name()), e, depth); err != nil {
				return err
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the files of the run: %w", err)
		}
	}
}

// enter takes one entry of a directory.
func (c *chooser) enter(m *mount, below string, e fs.DirEntry, depth int) error {
	c.seen++
	if c.seen > maxEntries {
		return fault.New(fault.Invalid, "outputs_too_many_files",
			"the patterns of outputs lead through more than %d files", maxEntries).WithField("outputs").
			WithRemedy("name the directories that hold what is to be kept")
	}

	name := path.Join(m.at, below)
	if on, _ := c.view.find(name); on != m {
		return nil // the link to the checkpoint directory, which is looked at itself
	}

	if e.IsDir() {
		if c.reaches(name) {
			return c.walk(m, below, depth+1)
		}

		return nil
	}

	if !c.chooses(name) {
		return nil
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || len(name) > maxOutputPath {
		c.note("%.100q left out: its name is too long, not UTF-8, or has control characters", name)
		return nil
	}

	f, err := m.lstat(below)
	switch {
	case errors.Is(err, errNotAFile):
		return c.link(m, name, below)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}

	c.found = append(c.found, choice{name: name, on: m, file: f})

	return nil
}

// maxOutputPath bounds the path of an output file in bytes.
const maxOutputPath = 4000

// link takes a link that leads out of its directory, if it leads to a file of the other one.
func (c *chooser) link(m *mount, name, below string) error {
	target, err := m.root.Readlink(filepath.FromSlash(below))
	if err != nil {
		c.note("%s left out: not a regular file", name)
		return nil //nolint:nilerr // a socket, a pipe or a device
	}

	if filepath.IsAbs(target) {
		for _, other := range c.view.mounts {
			if rel, err := filepath.Rel(other.root.Name(), target); err == nil && filepath.IsLocal(rel) {
				c.found = append(c.found, choice{name: name, on: m, file: file{path: below, link: "/" +
					path.Join(other.at, filepath.ToSlash(rel))}})

				return nil
			}
		}
	}

	c.note("%s left out: a link that points outside the run's folder, to %.200q", name, target)

	return nil
}

// settleLinks takes the content of a file in place of a link to it that is not kept itself: the link alone would lead
// nowhere.
func (c *chooser) settleLinks() {
	kept := make(map[string]bool, len(c.found))
	for i := range c.found {
		for name := c.found[i].name; name != "."; name = path.Dir(name) {
			kept[name] = true
		}
	}

	c.found = slices.DeleteFunc(c.found, func(f choice) bool { return f.file.link != "" && !c.resolvable(&f, kept) })
	for i := range c.found {
		f := &c.found[i]
		if f.file.link == "" {
			continue
		}

		if target := f.target(); kept[target] {
			f.file.link = relative(f.name, target)
		} else {
			f.on, f.file, _ = c.content(target)
		}
	}
}

// target returns where a link leads, in the working directory.
func (f *choice) target() string {
	if absolute, ok := strings.CutPrefix(f.file.link, "/"); ok {
		return absolute
	}

	return path.Join(path.Dir(f.name), f.file.link)
}

// resolvable reports whether a link leads to something that is kept, or to a file whose content can be.
func (c *chooser) resolvable(f *choice, kept map[string]bool) bool {
	target := f.target()
	if kept[target] {
		return true
	}

	if _, _, ok := c.content(target); ok {
		return true
	}

	c.note("%s left out: a link to %.200q, which is not a file", f.name, target)

	return false
}

// content returns the regular file at a path.
func (c *chooser) content(name string) (*mount, file, bool) {
	m, below := c.view.find(name)

	f, err := m.lstat(below)
	if err != nil || f.link != "" {
		return m, f, false
	}

	return m, f, true
}

// relative writes the target of a link as seen from its directory.
func relative(name, target string) string {
	rel, err := filepath.Rel(filepath.FromSlash(path.Dir(name)), filepath.FromSlash(target))
	if err != nil {
		return target // both are relative, so there is always a way
	}

	return filepath.ToSlash(rel)
}
