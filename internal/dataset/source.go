package dataset

import (
	"encoding/hex"
	"net/url"
	"path"
	"strings"

	"trainyard/internal/fault"
)

// SourceKind is a way in which a node comes by data.
type SourceKind string

// The kinds of sources.
const (
	SourceNone SourceKind = ""     // there is none: copies have to be there already
	SourcePath SourceKind = "path" // a path that nodes have: read where it is
	SourceFile SourceKind = "file" // file://, a file or folder that nodes reach and copy
	SourceHTTP SourceKind = "http" // http:// or https://, one file that is fetched
)

// Source is where data comes from.
type Source struct {
	Kind   SourceKind
	At     string // the path, or the address without what follows a #
	Base   string // the last part of its name, "" if it has none
	SHA256 string // that the file must have, from a #sha256=… at the end; "" if nobody said
}

// maxSource bounds the text of a source.
const maxSource = 2000

// ParseSource reads a source: /data/mri is used where it is, file:///mnt/nas/mri is
// copied, and https://example.org/mri.tar#sha256=… is fetched and checked.
func ParseSource(text string) (Source, error) {
	bad := func(format string, args ...any) (Source, error) {
		return Source{}, fault.New(fault.Invalid, "dataset_source", format, args...).WithField("source").
			WithRemedy("write a path as in /data/mri, or an address as in file:///mnt/nas/mri or https://example.org/mri.tar#sha256=…")
	}
	switch {
	case text == "":
		return Source{}, nil
	case len(text) > maxSource:
		return bad("a source has at most %d bytes", maxSource)
	case strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return bad("%.100q has characters that no source has", text)
	case strings.HasPrefix(text, "/"):
		return Source{Kind: SourcePath, At: path.Clean(text), Base: base(text)}, nil
	}
	at, fragment, _ := strings.Cut(text, "#")
	u, err := url.Parse(at)
	if err != nil || !strings.Contains(at, "://") {
		return bad("%.100q is neither a path nor an address", text)
	}
	s := Source{At: at, Base: base(u.Path)}
	if fragment != "" {
		digest, given := strings.CutPrefix(fragment, "sha256=")
		sum, err := hex.DecodeString(digest)
		if !given || err != nil || len(sum) != 32 {
			return bad("%.100q is no digest: sha256= and 64 hexadecimal digits are", fragment)
		}
		s.SHA256 = strings.ToLower(digest)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" {
			return bad("%.100q names no machine", text)
		}
		s.Kind = SourceHTTP
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return bad("%.100q must name a path, with three slashes as in file:///mnt/nas/mri", text)
		}
		s.Kind, s.At = SourceFile, path.Clean(u.Path)
	default:
		return bad("nodes cannot fetch from %.20q addresses", u.Scheme+":")
	}
	return s, nil
}

// base returns the last part of a path, "" if it has none that can name a file.
func base(p string) string {
	b := path.Base(path.Clean("/" + p))
	if b == "/" || len(b) > 200 {
		return ""
	}
	return b
}
