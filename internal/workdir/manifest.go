package workdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"trainyard/internal/api"
	"trainyard/internal/fault"
)

const (
	maxPath    = 4000 // bytes of a path, below what Linux allows with the node's own folder in front
	maxElement = 255  // bytes between two slashes
	maxLink    = 4000
	maxDepth   = 128 // elements of a path or of a link, so that checking them is quick

	// MaxManifest is the most bytes a manifest may have.
	MaxManifest = 64 << 20
)

// Encode returns the canonical JSON of a manifest: the bytes that are uploaded
// and whose digest names the directory.
func Encode(m api.Manifest) ([]byte, error) {
	if m.Files == nil {
		m.Files = []api.ManifestFile{}
	}

	if err := Check(m); err != nil {
		return nil, err
	}

	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}

	return text, nil
}

// Digest returns the name of the directory's content: the SHA-256, in hex, of
// the manifest's canonical JSON.
func Digest(m api.Manifest) (string, error) {
	text, err := Encode(m)
	if err != nil {
		return "", err
	}

	return sumHex(text), nil
}

// Decode reads a manifest from outside. What it returns has passed Check.
func Decode(r io.Reader) (api.Manifest, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxManifest+1))
	if err != nil {
		return api.Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	if len(text) > MaxManifest {
		return api.Manifest{}, badManifest("", "is larger than %d bytes", MaxManifest)
	}

	var m api.Manifest

	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&m); err != nil {
		return api.Manifest{}, badManifest("", "is not valid JSON").WithCause(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return api.Manifest{}, badManifest("", "has trailing data")
	}
	if err := Check(m); err != nil {
		return api.Manifest{}, err
	}

	return m, nil
}

// Check says whether a manifest can be made into a folder without touching
// anything outside it: every path is relative and plain, they are sorted, each
// occurs once, none lies below a file or link, and links stay inside, also those
// that lead through other links.
func Check(m api.Manifest) error {
	leaves := make(map[string]bool, len(m.Files))
	last := ""
	for i, f := range m.Files {
		if err := checkFile(f); err != nil {
			return err
		}
		if i > 0 && f.Path <= last {
			return badManifest(f.Path, "is out of order or a duplicate")
		}

		last = f.Path
		leaves[f.Path] = true
	}

	for _, f := range m.Files {
		for parent := path.Dir(f.Path); parent != "."; parent = path.Dir(parent) {
			if leaves[parent] {
				return badManifest(f.Path, "lies below %.200q, which is not a folder", parent)
			}
		}
	}

	return checkLinks(m.Files)
}

func checkFile(f api.ManifestFile) error {
	switch {
	case !safePath(f.Path):
		return badManifest(f.Path, "is not a plain relative path")
	case hasControl(f.Path) || hasControl(f.Link):
		return badManifest(f.Path, "has control characters in its name").
			WithRemedy("rename it, or exclude it in .trainyardignore")
	case f.Mode > 0o777:
		return badManifest(f.Path, "has mode bits that are not permissions")
	case f.Size < 0:
		return badManifest(f.Path, "has a negative size")
	case (f.Digest == "") == (f.Link == ""):
		return badManifest(f.Path, "must have either a digest or a link")
	case f.Digest != "" && !isDigest(f.Digest):
		return badManifest(f.Path, "has a digest that is not 64 hex digits")
	case f.Link != "" && (f.Size != 0 || !insideLink(f.Path, f.Link)):
		return badManifest(f.Path, "is a link that points outside")
	}

	return nil
}

// safePath reports whether p names something inside a folder, written in the
// one way there is to write it.
func safePath(p string) bool {
	if p == "" || len(p) > maxPath || strings.Count(p, "/") >= maxDepth || !utf8.ValidString(p) ||
		strings.ContainsRune(p, 0) {
		return false
	}

	for element := range strings.SplitSeq(p, "/") {
		if element == "" || element == "." || element == ".." || len(element) > maxElement {
			return false
		}
	}

	return true
}

// insideLink reports whether a link at name with this target stays inside, as
// far as its text tells.
func insideLink(name, target string) bool {
	if target == "" || len(target) > maxLink || strings.Count(target, "/") >= maxDepth ||
		!utf8.ValidString(target) || strings.ContainsRune(target, 0) ||
		path.IsAbs(target) {
		return false
	}

	end := path.Join(path.Dir(name), target)

	return end != ".." && !strings.HasPrefix(end, "../")
}

// hasControl reports whether a name could change what a terminal shows.
func hasControl(name string) bool { return strings.ContainsFunc(name, unicode.IsControl) }

func isDigest(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}

	return len(s) == 2*sha256.Size
}

func sumHex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func badManifest(name, format string, args ...any) *fault.Error {
	what := "the manifest "
	if name != "" {
		what = fmt.Sprintf("the manifest's file %.200q ", name)
	}

	return fault.New(fault.Invalid, "manifest_invalid", "%s", what+fmt.Sprintf(format, args...)).WithField("workdir")
}
