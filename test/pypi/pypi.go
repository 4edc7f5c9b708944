// Package pypi serves a package index for tests, with wheels that are made in memory: Python environments are then made
// by the real pip and uv without a network.
package pypi

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Package is a Python package with one module of its name, in which VERSION is its version.
type Package struct {
	Name, Version string
	Requires      []string
	Code          string // more of the module
}

// Index is a package index as PEP 503 has it.
type Index struct {
	URL string // of the index, for PIP_INDEX_URL and UV_DEFAULT_INDEX

	wheels map[string][]byte // by file name

	mu     sync.Mutex
	asked  map[string]int // how often, by the name of the package
	before func(file string)
}

// Serve serves an index until the test has ended.
func Serve(t testing.TB, packages ...Package) *Index {
	t.Helper()
	x := &Index{wheels: map[string][]byte{}, asked: map[string]int{}}

	for _, p := range packages {
		data, err := p.wheel()
		if err != nil {
			t.Fatal(err)
		}

		x.wheels[p.file()] = data
	}

	s := httptest.NewServer(x)
	t.Cleanup(s.Close)
	x.URL = s.URL + "/simple/"

	return x
}

// Before lets a function be called before a wheel is sent, by which a test holds a download back.
func (x *Index) Before(f func(file string)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.before = f
}

// Asked returns how often somebody asked which versions of a package there are: pip and uv do so once for each
// environment that they make.
func (x *Index) Asked(name string) int {
	x.mu.Lock()
	defer x.mu.Unlock()

	return x.asked[name]
}

// ServeHTTP answers with the page of a package or with a wheel.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	before := x.before
	x.mu.Unlock()

	if file, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok {
		data, there := x.wheels[file]
		if !there {
			http.NotFound(w, r)
			return
		}

		if before != nil && r.Method == http.MethodGet {
			before(file)
		}

		http.ServeContent(w, r, file, modified, bytes.NewReader(data))

		return
	}

	name := strings.Trim(strings.TrimPrefix(r.URL.Path, "/simple/"), "/")

	x.mu.Lock()
	x.asked[name]++
	x.mu.Unlock()

	var files []string
	for file := range x.wheels {
		if strings.HasPrefix(file, name+"-") {
			files = append(files, file)
		}
	}

	if len(files) == 0 {
		http.NotFound(w, r)
		return
	}

	slices.Sort(files)
	w.Header().Set("Content-Type", "text/html")

	for _, file := range files {
		sum := sha256.Sum256(x.wheels[file])
		_, _ = fmt.Fprintf(w, "<a href=\"/files/%s#sha256=%s\">%s</a>\n", file, hex.EncodeToString(sum[:]), file)
	}
}

func (p Package) file() string { return p.Name + "-" + p.Version + "-py3-none-any.whl" }

// wheel makes the wheel of a package.
func (p Package) wheel() ([]byte, error) {
	info := p.Name + "-" + p.Version + ".dist-info/"
	metadata := "Metadata-Version: 2.1\nName: " + p.Name + "\nVersion: " + p.Version + "\n"
	for _, r := range p.Requires {
		metadata += "Requires-Dist: " + r + "\n"
	}

	files := [][2]string{
		{p.Name + ".py", "VERSION = '" + p.Version + "'\n" + p.Code + "\n"},
		{info + "METADATA", metadata},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", "[console_scripts]\n" + p.Name + "-tool = " + p.Name + ":main\n"},
	}

	record := ""
	for _, f := range files {
		sum := sha256.Sum256([]byte(f[1]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f[0], base64.RawURLEncoding.EncodeToString(sum[:]), len(f[1]))
	}

	files = append(files, [2]string{info + "RECORD", record + info + "RECORD,,\n"})

	var out bytes.Buffer
	z := zip.NewWriter(&out)

	for _, f := range files {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}

		if err != nil {
			return nil, err
		}
	}

	if err := z.Close(); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}
