// Package workdir carries a job's working directory from the researcher's
// machine to the node.
//
// Scan lists a folder as a manifest, every file by the SHA-256 of its content,
// leaving out what the ignore files say; Materialise makes a folder from a
// manifest again; Store keeps contents on a node so that a file that did not
// change travels once. The package never follows a symbolic link out of the
// folder, never writes outside the folder it makes, and never trusts content
// whose digest it has not computed. It knows no server: the CLI uploads what
// Scan found, the agent says how a content is fetched.
package workdir

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// The limits of a working directory, where Options does not say otherwise.
const (
	DefaultMaxFiles = 100_000
	DefaultMaxTotal = 10 << 30
	DefaultMaxFile  = 5 << 30
)

// Options says how a folder is scanned.
type Options struct {
	MaxFiles int   // most files; DefaultMaxFiles if 0
	MaxTotal int64 // most bytes in all; DefaultMaxTotal if 0
	MaxFile  int64 // most bytes of one file; DefaultMaxFile if 0
	// CacheDir keeps the digests of files between scans, so that a file whose
	// size, times and inode did not change is not read again. "" keeps none.
	CacheDir string
	// Include are patterns, as in an ignore file, of files that are taken whatever ignores them.
	Include []string
	// Clock tells when the scan happens: digests of files that changed just
	// now are not kept, since a second change might not show in their times.
	Clock clock.Clock
	// Progress, if set, is called with the files and bytes done so far.
	Progress func(files int, bytes int64)
}

func (o Options) withDefaults() Options {
	if o.MaxFiles == 0 {
		o.MaxFiles = DefaultMaxFiles
	}

	if o.MaxTotal == 0 {
		o.MaxTotal = DefaultMaxTotal
	}

	if o.MaxFile == 0 {
		o.MaxFile = DefaultMaxFile
	}

	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}

	return o
}

// Tree is a folder as it was scanned.
type Tree struct {
	Root     string
	Manifest api.Manifest
	Digest   string   // of the manifest
	Size     int64    // of all files
	Hashed   int      // files that were read; the others were known by the cache
	Notes    []string // what was left out or did not work, for people
	paths    map[string]string
}

// Open opens a file of the tree by its digest, for the upload. Whether it still
// has that content is for the reader to check.
func (t *Tree) Open(digest string) (io.ReadCloser, error) {
	name, ok := t.paths[digest]
	if !ok {
		return nil, fault.New(
			fault.NotFound,
			"workdir_file_unknown",
			"no file in the working directory with digest %.80s",
			digest,
		)
	}

	f, err := os.Open(filepath.Join(t.Root, filepath.FromSlash(name)))
	if err != nil {
		return nil, fmt.Errorf("open file of working directory: %w", err)
	}

	return f, nil
}

// Part is what is directly in the top folder: a file, or a folder with all in it.
type Part struct {
	Name  string
	Files int
	Size  int64
}

// Largest returns the largest parts of the tree, at most n.
func (t *Tree) Largest(n int) []Part {
	parts := map[string]*Part{}
	for i := range t.Manifest.Files {
		f := &t.Manifest.Files[i]
		name, _, isFolder := strings.Cut(f.Path, "/")
		if isFolder {
			name += "/"
		}

		if parts[name] == nil {
			parts[name] = &Part{Name: name}
		}

		parts[name].Files++
		parts[name].Size += f.Size
	}

	var all []Part
	for _, p := range parts {
		all = append(all, *p)
	}

	slices.SortFunc(all, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(a.Name,
			b.Name))
	})

	return all[:min(n, len(all))]
}

// Digests returns the digest of every file's content, each once, sorted.
func (t *Tree) Digests() []string {
	all := make([]string, 0, len(t.paths))
	for digest := range t.paths {
		all = append(all, digest)
	}

	slices.Sort(all)

	return all
}

// scanner is one scan under way.
type scanner struct {
	opts Options
	root string
	// include is what is taken whatever ignores it, confidential what is left out unless an ignore file says otherwise.
	include, confidential *ignoreList
	left                  []string // left out because of confidential
	cache                 *cache
	tree                  *Tree
}

// Scan lists the folder. Folders without files are not kept, as in Git.
func Scan(ctx context.Context, root string, opts Options) (*Tree, error) {
	opts = opts.withDefaults()
	real, err := filepath.EvalSymlinks(root)
	if err == nil {
		real, err = filepath.Abs(real)
	}

	if err != nil {
		return nil, fault.New(fault.Invalid, "workdir_unreadable", "cannot read the working directory %s: %v", root, err).
			WithField("workdir").
			WithCause(err)
	}

	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return nil, fault.New(fault.Invalid, "workdir_not_folder", "the working directory %s is not a folder", root).
			WithField("workdir").
			WithCause(err)
	}

	s := &scanner{opts: opts, root: real, tree: &Tree{Root: real, paths: map[string]string{}}}
	s.confidential = &ignoreList{rules: parseIgnore(confidential)}
	s.include = &ignoreList{rules: parseIgnore(strings.Join(opts.Include, "\n"))}
	s.cache = openCache(opts.CacheDir, real, opts.Clock.Now())
	if err := s.folder(ctx, "", ignoreRules{}); err != nil {
		return nil, err
	}

	s.noteConfidential()
	s.noteLinks()
	slices.SortFunc(s.tree.Manifest.Files, func(a, b api.ManifestFile) int { return strings.Compare(a.Path, b.Path) })
	s.tree.Digest, err = Digest(s.tree.Manifest)
	if err != nil {
		return nil, err
	}

	if err := s.cache.save(); err != nil {
		s.tree.Notes = append(s.tree.Notes, fmt.Sprintf("cannot cache file digests: %v", err))
	}

	return s.tree, nil
}

// folder scans one folder; dir is "" for the root.
func (s *scanner) folder(ctx context.Context, dir string, rules ignoreRules) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	entries, err := os.ReadDir(s.real(dir))
	if err != nil {
		return unreadable(dir, err)
	}

	rules, err = rules.within(dir, s.real(dir))
	if err != nil {
		return unreadable(dir, err)
	}

	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if entry.Name() == ".git" || s.leavesOut(name, entry.IsDir(), rules) {
			continue
		}
		if err := s.entry(ctx, name, entry, rules); err != nil {
			return err
		}
	}

	return nil
}

// leavesOut reports whether a file or folder is not part of the tree. What is included by its name is, whatever the
// ignore files say; they decide before the list of confidential files does.
func (s *scanner) leavesOut(name string, isDir bool, rules ignoreRules) bool {
	if s.include.decides(name, isDir) {
		return false
	}
	if decides, ignores := rules.ask(name, isDir); decides {
		return ignores
	}

	if !s.confidential.ignores(name, isDir) {
		return false
	}

	s.left = append(s.left, name)

	return true
}

// noteConfidential says what was left out because it looks as if it held a secret, and how it is taken.
func (s *scanner) noteConfidential() {
	if len(s.left) == 0 {
		return
	}

	const most = 5
	names := strings.Join(s.left[:min(len(s.left), most)], ", ")
	if more := len(s.left) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}

	s.tree.Notes = append(s.tree.Notes, fmt.Sprintf("left out because they may hold secrets: %s (store secrets with "+
		"trainyard secrets set; to upload a file or folder all the same use --include NAME, or a line !NAME in %s)",
		names, ownIgnoreName))
}

// noteLinks says which links lead to what is not uploaded: they would lead nowhere on a node.
func (s *scanner) noteLinks() {
	kept := map[string]bool{".": true}
	for i := range s.tree.Manifest.Files {
		for name := s.tree.Manifest.Files[i].Path; name != "." && !kept[name]; name = path.Dir(name) {
			kept[name] = true
		}
	}

	for i := range s.tree.Manifest.Files {
		f := &s.tree.Manifest.Files[i]
		if f.Link == "" {
			continue
		}

		// The kernel may get elsewhere, through another link; then the target is asked for by its real path.
		target := path.Join(path.Dir(f.Path), f.Link)
		if real, err := filepath.EvalSymlinks(s.real(f.Path)); err == nil {
			if rel, err := filepath.Rel(s.root, real); err == nil {
				target = filepath.ToSlash(rel)
			}
		}

		if !kept[target] {
			s.tree.Notes = append(s.tree.Notes, fmt.Sprintf("the link %s leads to %s, which is not uploaded", f.Path, target))
		}
	}
}

func (s *scanner) entry(ctx context.Context, name string, entry fs.DirEntry, rules ignoreRules) error {
	if !utf8.ValidString(name) || len(name) > maxPath {
		return fault.New(fault.Invalid, "workdir_bad_name", "the file name %.80q is not UTF-8 or is too long", name).
			WithField("workdir").WithRemedy("rename it, or leave it out with a line in %s", ownIgnoreName)
	}

	switch {
	case entry.IsDir():
		return s.folder(ctx, name, rules)
	case entry.Type()&fs.ModeSymlink != 0:
		return s.link(name)
	case entry.Type().IsRegular():
		return s.file(ctx, name)
	}

	s.tree.Notes = append(s.tree.Notes, fmt.Sprintf("%s skipped: neither a file nor a folder", name))

	return nil
}

func (s *scanner) link(name string) error {
	target, err := os.Readlink(s.real(name))
	if err != nil {
		return unreadable(name, err)
	}

	refuse := fault.New(fault.Invalid, "workdir_link_outside", "the link %s points outside the working directory, to "+
		"%.200q", name, target).
		WithField("workdir").
		WithRemedy("replace it by what it points to, or leave it out with a line in %s", ownIgnoreName)

	if !insideLink(name, target) {
		return refuse
	}

	// The text may look harmless and still lead out through a second link.
	if real, err := filepath.EvalSymlinks(s.real(name)); err == nil && real != s.root &&
		!strings.HasPrefix(real, s.root+string(filepath.Separator)) {
		return refuse
	}

	return s.add(api.ManifestFile{Path: name, Mode: 0o777, Link: target})
}

// add takes a file into the manifest and watches the limits.
func (s *scanner) add(f api.ManifestFile) error {
	remedy := "leave out what the job does not need with lines in %s, or put data in a place that the nodes can read"
	t := s.tree
	t.Manifest.Files = append(t.Manifest.Files, f)
	t.Size += f.Size
	if len(t.Manifest.Files) > s.opts.MaxFiles {
		return fault.New(fault.OverLimit, "workdir_too_many_files", "the working directory has more than %d files",
			s.opts.MaxFiles).
			WithField("workdir").
			WithRemedy(remedy, ownIgnoreName)
	}

	if t.Size > s.opts.MaxTotal {
		return fault.New(fault.OverLimit, "workdir_too_large", "the working directory is larger than %s",
			job.Bytes(s.opts.MaxTotal).Short()).
			WithField("workdir").
			WithRemedy(remedy, ownIgnoreName)
	}

	if f.Digest != "" {
		t.paths[f.Digest] = f.Path
	}

	if s.opts.Progress != nil {
		s.opts.Progress(len(t.Manifest.Files), t.Size)
	}

	return nil
}

func (s *scanner) real(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

func unreadable(name string, err error) error {
	return fault.New(fault.Invalid, "workdir_unreadable", "cannot read %s in the working directory: %v", cmp.Or(name,
		"the top folder"), err).
		WithField("workdir").
		WithRemedy("make it readable, or leave it out with a line in %s", ownIgnoreName).
		WithCause(err)
}
