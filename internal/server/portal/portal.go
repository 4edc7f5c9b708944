// Package portal serves the built pages of the portal: index.html for every address that is a page, and the files
// that it refers to. It knows nothing about the yard; the pages use the API as any other client does.
//
// All addresses in the pages are relative, so that they also work where a proxy serves the yard below a path: what
// the server does not know is how long that path is, but it knows how deep below it a page is.
package portal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// Portal answers requests for pages and their files. It does not change and is safe for concurrent use.
type Portal struct {
	index  []byte
	assets map[string]asset
}

// asset is a file whose name contains the hash of its content, plain and compressed.
type asset struct {
	kind     string
	encoded  map[string][]byte // by content encoding; "" for the plain file
	entityID string
}

// encodings are the precompressed forms of a file, best first, with the endings of their names.
var encodings = []struct{ name, ending string }{{"br", ".br"}, {"gzip", ".gz"}}

// base is the element of index.html that says where relative addresses begin.
const base = `<base href="./" />`

// noPortal is shown by a binary that was built without the pages.
const noPortal = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Trainyard</title></head>
<body>
<h1>Trainyard</h1>
<p>The server works, but this binary was built without the portal. Build it with Node.js 20.19 or newer
installed (<code>make build</code>), or use the command line: <code>trainyard jobs</code>.</p>
<p>The API is described at <a href="api/v1/openapi.yaml">api/v1/openapi.yaml</a>.</p>
</body>
</html>
`

// policy lets pages load and call nothing but this server. No script or style is inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"

// None returns what a binary serves that was built without the pages: one page that says so.
func None() *Portal { return &Portal{index: []byte(noPortal)} }

// New reads the built pages: index.html and the folder assets.
func New(files fs.FS) (*Portal, error) {
	index, err := fs.ReadFile(files, "index.html")
	if err != nil {
		return nil, fmt.Errorf("read the pages of the portal: %w", err)
	}

	p := &Portal{index: index, assets: map[string]asset{}}
	if !bytes.Contains(p.index, []byte(base)) {
		return nil, errors.New("index.html of the portal has no element " + base)
	}

	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("read the files of the portal: %w", err)
	}

	for _, e := range entries {
		if err := p.add(files, e.Name()); err != nil {
			return nil, err
		}
	}

	return p, nil
}

// add reads one file with its compressed forms, which are no files of their own.
func (p *Portal) add(files fs.FS, name string) error {
	for _, c := range encodings {
		if strings.HasSuffix(name, c.ending) {
			return nil
		}
	}

	plain, err := fs.ReadFile(files, path.Join("assets", name))
	if err != nil {
		return fmt.Errorf("read a file of the portal: %w", err)
	}

	a := asset{kind: mime.TypeByExtension(path.Ext(name)), encoded: map[string][]byte{"": plain}, entityID: tag(plain)}

	for _, c := range encodings {
		packed, err := fs.ReadFile(files, path.Join("assets", name+c.ending))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a file of the portal: %w", err)
		}

		a.encoded[c.name] = packed
	}

	p.assets[name] = a

	return nil
}

// tag is the entity tag of a content.
func tag(content []byte) string {
	sum := sha256.Sum256(content)

	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// IsPage reports whether a request that no route answers is for a page: a browser that navigates there.
func IsPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}

	for _, taken := range []string{"/api/", "/agent/", "/assets/"} {
		if strings.HasPrefix(r.URL.Path, taken) {
			return false
		}
	}

	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Page answers with the page for an address. Which page that is, the script decides.
func (p *Portal) Page(w http.ResponseWriter, r *http.Request) {
	up := strings.Repeat("../", strings.Count(r.URL.EscapedPath(), "/")-1)
	text := p.index
	if up != "" {
		text = bytes.Replace(p.index, []byte(base), []byte(`<base href="`+up+`" />`), 1)
	}

	secure(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Vary", "Accept")
	w.Header().Set("ETag", tag(text))

	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// Asset answers with a file. It reports false if there is none of that name.
func (p *Portal) Asset(w http.ResponseWriter, r *http.Request, name string) bool {
	a, ok := p.assets[name]
	if !ok {
		return false
	}

	secure(w.Header())
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable") // its name changes with its content
	h.Set("Vary", "Accept-Encoding")

	encoding := a.best(r.Header.Get("Accept-Encoding"))
	entity := a.entityID

	if encoding != "" {
		h.Set("Content-Encoding", encoding)
		entity = strings.TrimSuffix(entity, `"`) + "-" + encoding + `"`
	}

	h.Set("ETag", entity)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.encoded[encoding]))

	return true
}

// best returns the best form of a file that the other side takes.
func (a *asset) best(accepted string) string {
	for _, c := range encodings {
		if _, ok := a.encoded[c.name]; !ok {
			continue
		}

		for offer := range strings.SplitSeq(accepted, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(offer), ";")
			if strings.TrimSpace(name) == c.name && strings.TrimSpace(weight) != "q=0" {
				return c.name
			}
		}
	}

	return ""
}

// secure sets what every answer of the portal says to browsers.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
