package dataset

import (
	"encoding/hex"
	"net/url"
	"path"
	"strings"

	"trainyard/internal/fault"
)

// SourceKind is how a node gets a dataset.
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
	SHA256 string // that the file must have, from a #sha256=… at the end; "" if none was given
}

// maxSource bounds the text of a source.
const maxSource = 2000

// ParseSource reads a source: /data/mri is used where it is, file:///mnt/nas/mri is
// copied, and https://example.org/mri.tar#sha256=… is fetched and checked.
func ParseSource(text string) (Source, error) {
	bad := func(format string, args ...any) (Source, error) {
		return Source{}, fault.New(fault.Invalid, "dataset_source", format, args...).WithField("source").
			WithRemedy("write a path such as /data/mri, or a URL such as file:///mnt/nas/mri or https://example.org/mri.tar#sha256=…")
	}

	switch {
	case text == "":
		return Source{}, nil
	case len(text) > maxSource:
		return bad("source must not be longer than %d bytes", maxSource)
	case strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return bad("source must not contain control characters, got %.100q", text)
	case strings.HasPrefix(text, "/"):
		return Source{Kind: SourcePath, At: path.Clean(text), Base: base(text)}, nil
	}

	at, fragment, _ := strings.Cut(text, "#")
	u, err := url.Parse(at)
	if err != nil || !strings.Contains(at, "://") {
		return bad("source must be a path or a URL, got %.100q", text)
	}

	s := Source{At: at, Base: base(u.Path)}

	if fragment != "" {
		digest, given := strings.CutPrefix(fragment, "sha256=")
		sum, err := hex.DecodeString(digest)
		if !given || err != nil || len(sum) != 32 {
			return bad("digest must be sha256= and 64 hexadecimal digits, got %.100q", fragment)
		}

		s.SHA256 = strings.ToLower(digest)
	}

	switch u.Scheme {
	case "http", "https":
		if u.Host == "" {
			return bad("source must name a host, got %.100q", text)
		}

		s.Kind = SourceHTTP
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return bad("source must be an absolute path with three slashes, e.g. file:///mnt/nas/mri, got %.100q", text)
		}

		s.Kind, s.At = SourceFile, path.Clean(u.Path)
	default:
		return bad("source must be a path or a file, http or https URL, got scheme %.20q", u.Scheme)
	}

	return s, nil
}

// Redacted returns a source as it may be shown to everybody: without what gives access to it, which is a user name, a
// password or a query.
func Redacted(source string) string {
	if !strings.Contains(source, "://") {
		return source
	}

	at, fragment, marked := strings.Cut(source, "#")
	at, _, query := strings.Cut(at, "?")
	scheme, rest, _ := strings.Cut(at, "://")
	host, name, slash := strings.Cut(rest, "/")

	if end := strings.LastIndexByte(host, '@'); end >= 0 {
		host = "REDACTED" + host[end:]
	}

	out := scheme + "://" + host
	if slash {
		out += "/" + name
	}

	if query {
		out += "?REDACTED"
	}

	if marked {
		out += "#" + fragment
	}

	return out
}

// base returns the last part of a path, "" if it has none that can name a file.
func base(p string) string {
	b := path.Base(path.Clean("/" + p))
	if b == "/" || len(b) > 200 {
		return ""
	}

	return b
}
