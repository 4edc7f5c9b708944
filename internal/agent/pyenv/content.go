package pyenv

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/job"
)

// Request is an environment that a run needs.
type Request struct {
	job.Python

	Owner string
	UID   int    // as whom it is made
	Work  string // the working directory of the run
	Files string // digest of what was put there
	Env   []string
	Tools Tools
}

// Error is a reason why there is no environment that the owner of the job can do something about.
type Error struct{ text string }

// Error returns the sentence for people.
func (e *Error) Error() string { return e.text }

func failure(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// The limits on what is read of a working directory to name an environment.
const (
	maxFile  = 8 << 20 // bytes of a file
	maxFiles = 50
)

// content is what the key of an environment is made of. It is written as JSON, whose maps are in order.
type content struct {
	Owner     string
	UID       int
	Platform  string
	Tool      string
	Pythons   []string          // what an environment links to
	Python    job.Python        // paths and versions as the job file has them
	Files     map[string]string // the files that say which packages there are
	Env       map[string]string // settings of pip, uv and conda, and variables that the files use
	Directory string            `json:",omitempty"` // digest of the working directory, if the packages depend on more of it
}

// Key returns the name of the environment: that of two requests is the same if the same would be made for them. Only
// the requests of one user have the same.
func (r *Request) Key() (string, error) {
	c := content{
		Owner: r.Owner, UID: r.UID, Platform: goruntime.GOOS + "/" + goruntime.GOARCH, Python: r.Python,
		Files: map[string]string{},
	}

	tool, err := r.tool()
	if err != nil {
		return "", err
	}

	c.Tool = filepath.Base(tool)
	for _, p := range r.Tools.candidates(r.Version) {
		c.Pythons = append(c.Pythons, realPath(p))
	}

	if r.Builder() == job.BuilderConda {
		c.Pythons = nil // it brings its own
	}

	local, err := r.read(c.Files)
	if err != nil {
		return "", err
	}

	if local {
		c.Directory = r.Files
	}

	c.Env = r.settings(c.Files)

	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("name an environment: %w", err)
	}

	sum := sha256.Sum256(text)

	return "py-" + hex.EncodeToString(sum[:12]), nil
}

// settings returns the variables on which the packages depend.
func (r *Request) settings(files map[string]string) map[string]string {
	found := map[string]string{}

	for _, entry := range r.Env {
		name, value, _ := strings.Cut(entry, "=")
		about := false

		for _, prefix := range []string{"PIP_", "UV_", "CONDA_", "MAMBA_"} {
			about = about || strings.HasPrefix(name, prefix) && !strings.HasSuffix(name, "_CACHE_DIR")
		}

		for _, text := range files {
			about = about || strings.Contains(text, "${"+name+"}")
		}

		if about {
			found[name] = value
		}
	}

	return found
}

// read reads the files that say which packages there are, and reports whether the packages depend on others of the
// working directory, too.
func (r *Request) read(files map[string]string) (local bool, err error) {
	reader := reader{request: r, files: files}

	if len(r.Packages) > 0 {
		if err := reader.lines("python.requirements", ".", strings.Join(r.Packages, "\n")); err != nil {
			return false, err
		}
	}

	if len(r.Packages) == 0 && r.File() == "" {
		return false, nil
	}

	root, err := os.OpenRoot(r.Work)
	if err != nil {
		return false, fmt.Errorf("read the working directory: %w", err)
	}

	defer func() { _ = root.Close() }()

	reader.root = root

	switch {
	case r.Requirements != "":
		err = reader.requirements(r.Requirements)
	case r.UV != "":
		err = reader.project(r.UV)
	case r.Conda != "":
		err = reader.conda(r.Conda)
	}

	// uv and pip take settings from these.
	for _, name := range []string{"uv.toml", "pyproject.toml"} {
		if err == nil && r.Conda == "" {
			err = reader.addIfThere(name)
		}
	}

	for len(reader.nested) > 0 && err == nil {
		next := reader.nested[0]
		reader.nested = reader.nested[1:]
		err = reader.requirements(next)
	}

	return reader.local, err
}

// reader reads files of a working directory. It follows no link that leads out of it.
type reader struct {
	request *Request
	root    *os.Root
	files   map[string]string
	nested  []string // requirements files that others refer to
	local   bool     // the packages depend on other files, too
}

// add reads a file.
func (d *reader) add(name string) (string, error) {
	name = path.Clean(name)
	if text, known := d.files[name]; known {
		return text, nil
	}

	if len(d.files) == maxFiles {
		return "", failure("the environment depends on more than %d files", maxFiles)
	}

	f, err := d.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", failure("%s is not in the working directory: is it ignored when files are uploaded?", name)
	}
	if err != nil {
		return "", failure("cannot read %s in the working directory: %v", name, err)
	}

	defer func() { _ = f.Close() }()

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return "", failure("%s in the working directory is not a file", name)
	}

	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}

	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}

	if len(text) > maxFile {
		return "", failure("%s is larger than %v", name, job.Bytes(maxFile))
	}

	d.files[name] = string(text)

	return string(text), nil
}

// addIfThere reads a file that need not be there.
func (d *reader) addIfThere(name string) error {
	if _, err := d.root.Stat(filepath.FromSlash(name)); err != nil {
		return nil //nolint:nilerr // whatever it is, the tool cannot read it either
	}

	_, err := d.add(name)

	return err
}

// requirements reads a requirements file.
func (d *reader) requirements(name string) error {
	if _, known := d.files[path.Clean(name)]; known {
		return nil
	}

	text, err := d.add(name)
	if err != nil {
		return err
	}

	return d.lines(name, path.Dir(name), text)
}

// lines looks at the lines of a requirements file for what they refer to. Paths are relative to dir.
func (d *reader) lines(name, dir, text string) error {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")

	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if before, _, found := strings.Cut(line, " #"); found {
			line = strings.TrimSpace(before)
		}

		if line == "" || line[0] == '#' {
			continue
		}

		if file, ok := option(line, "-r", "--requirement", "-c", "--constraint"); ok {
			if err := d.refer(name, dir, file); err != nil {
				return err
			}

			continue
		}

		if what, ok := option(line, "-e", "--editable"); ok && !strings.Contains(what, "://") {
			return failure("%s has %q, which installs links into the working directory of one run, and other runs share "+
				"the environment: remove the line, and let the program find its own code in the working directory", name, line)
		}

		d.local = d.local || !remote(line)
	}

	return nil
}

// refer notes a file that a requirements file refers to.
func (d *reader) refer(name, dir, file string) error {
	if strings.Contains(file, "://") {
		return nil
	}

	file = path.Join(dir, strings.Trim(file, `"'`))
	if !filepath.IsLocal(file) {
		return failure("%s refers to %s, which is outside of the working directory", name, file)
	}

	d.nested = append(d.nested, file)

	return nil
}

// option returns the value of an option, if a line is that.
func option(line string, names ...string) (value string, ok bool) {
	for _, name := range names {
		rest, found := strings.CutPrefix(line, name)
		long := strings.HasPrefix(name, "--")

		if found && rest != "" && (!long || rest[0] == ' ' || rest[0] == '=') {
			return strings.TrimLeft(rest, " ="), true
		}
	}

	return "", false
}

// remote reports whether a line of a requirements file surely refers to no file of the working directory.
func remote(line string) bool {
	name, _, _ := strings.Cut(line, " --hash")
	name, _, _ = strings.Cut(name, ";")
	lower := strings.ToLower(strings.TrimSpace(name))

	for _, ending := range []string{".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"} {
		if strings.HasSuffix(lower, ending) && !strings.Contains(lower, "://") {
			return false
		}
	}

	switch {
	case lower == "":
		return true
	case strings.Contains(lower, "file:"):
		return false
	case strings.Contains(lower, "://"):
		return true
	case lower[0] == '-':
		for _, plain := range []string{
			"--pre", "--prefer-binary", "--no-binary", "--only-binary", "--require-hashes", "--no-index",
		} {
			if strings.HasPrefix(lower, plain) {
				return true
			}
		}

		return false
	}

	return lower[0] != '.' && !strings.ContainsAny(lower, `/\`)
}

// project reads the files of a project of uv.
func (d *reader) project(file string) error {
	if _, err := d.add(file); err != nil {
		return err
	}

	dir := path.Dir(file)

	text, err := d.add(path.Join(dir, "pyproject.toml"))
	if err != nil {
		return err
	}

	d.local = d.local || mentions(text, "path", "workspace", "file:")

	for _, name := range []string{"uv.toml", ".python-version"} {
		if err := d.addIfThere(path.Join(dir, name)); err != nil {
			return err
		}
	}

	return nil
}

// conda reads an environment file of conda.
func (d *reader) conda(file string) error {
	text, err := d.add(file)
	if err != nil {
		return err
	}

	for line := range strings.SplitSeq(text, "\n") {
		item := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- "))
		if what, ok := option(item, "-e ", "--editable"); ok && !strings.Contains(what, "://") {
			return failure("%s has %q, which installs links into the working directory of one run, and other runs share "+
				"the environment: remove the line, and let the program find its own code in the working directory", file, item)
		}
	}

	d.local = d.local || mentions(text, "file:", " -r", " -c", "--", "./", ".whl")

	return nil
}

func mentions(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}

	return false
}
