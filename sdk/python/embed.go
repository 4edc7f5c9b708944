// Package sdk carries what Python programs import, sdk/python/src/trainyard, inside the
// binary, and makes a wheel of it. The agent puts the wheel on the path of every
// program that it starts, so that `import trainyard` works in a run with nothing installed;
// the same file can be given to pip.
package sdk

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"
)

// The patterns name files: a folder would leave out what begins with an underscore
// and take in what Python has cached.
//
//go:embed pyproject.toml README.md src/trainyard/*.py src/trainyard/py.typed
var sources embed.FS

const (
	packageDir  = "src/trainyard"
	versionFile = packageDir + "/_version.py"
	projectFile = "pyproject.toml"
)

// Wheel is the package as one file that pip installs and from which Python also imports
// as it is, by its name in PYTHONPATH. Equal sources give equal bytes.
type Wheel struct {
	Name    string // as pip wants it: trainyard-0.1.0-py3-none-any.whl
	Version string
	Data    []byte
}

// Build makes the wheel.
func Build() (Wheel, error) { return build(sources) }

func build(from fs.FS) (Wheel, error) {
	p, err := readProject(from)
	if err != nil {
		return Wheel{}, fmt.Errorf("make the wheel of the Python SDK: %w", err)
	}

	files, err := p.files(from)
	if err != nil {
		return Wheel{}, fmt.Errorf("make the wheel of the Python SDK: %w", err)
	}

	data, err := pack(files)
	if err != nil {
		return Wheel{}, fmt.Errorf("make the wheel of the Python SDK: %w", err)
	}

	return Wheel{Name: fmt.Sprintf("%s-%s-py3-none-any.whl", p.name, p.version), Version: p.version, Data: data}, nil
}

// project is what its sources say about the package.
type project struct{ name, version, summary, python, license, readme string }

func readProject(from fs.FS) (p project, err error) {
	readme, err := fs.ReadFile(from, "README.md")
	if err != nil {
		return p, err
	}

	p.readme = string(readme)
	for _, f := range []struct {
		into      *string
		file, key string
	}{
		{&p.name, projectFile, "name"},
		{&p.summary, projectFile, "description"},
		{&p.python, projectFile, "requires-python"},
		{&p.license, projectFile, "license"},
		{&p.version, versionFile, "__version__"},
	} {
		text, err := fs.ReadFile(from, f.file)
		if err != nil {
			return p, err
		}

		line := regexp.MustCompile(`(?m)^` + f.key + ` = "([^"]+)"$`).FindSubmatch(text)
		if line == nil {
			return p, fmt.Errorf("%s does not set %s", f.file, f.key)
		}

		*f.into = string(line[1])
	}

	return p, nil
}

// file is one of a wheel.
type file struct {
	name string
	data []byte
}

// files returns everything in the wheel, in order: the package, what is to be known of it,
// and at the end, as pip wants it, the digests of all that.
func (p project) files(from fs.FS) ([]file, error) {
	var out []file
	entries, err := fs.ReadDir(from, packageDir)
	if err != nil {
		return nil, err
	}

	for _, e := range entries {
		data, err := fs.ReadFile(from, packageDir+"/"+e.Name())
		if err != nil {
			return nil, err
		}

		out = append(out, file{p.name + "/" + e.Name(), data})
	}

	info := fmt.Sprintf("%s-%s.dist-info/", p.name, p.version)
	out = append(out,
		file{info + "METADATA", []byte(p.metadata())},
		file{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: trainyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n")})

	var record strings.Builder
	for _, f := range out {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}

	fmt.Fprintf(&record, "%sRECORD,,\n", info)

	return append(out, file{info + "RECORD", []byte(record.String())}), nil
}

func (p project) metadata() string {
	return fmt.Sprintf("Metadata-Version: 2.4\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: %s\n"+
		"License-Expression: %s\nDescription-Content-Type: text/markdown\n\n%s", p.name, p.version, p.summary, p.python,
		p.license, p.readme)
}

// pack writes files into an archive. They are not compressed: the bytes would depend on the
// compressor, and a Python without zlib could not import them.
func pack(files []file) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)

	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(0o644)

		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}

	if err := archive.Close(); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}
