package job

import "strings"

// MaxImage is the greatest length of the name of a container image.
const MaxImage = 500

// ImageName reports whether a text can be the name of a container image: a repository, maybe with a registry before it,
// and maybe a tag or a digest behind it. Whether there is such an image only its registry knows.
func ImageName(text string) bool {
	if len(text) == 0 || len(text) > MaxImage {
		return false
	}

	name, digest, pinned := strings.Cut(text, "@")
	if pinned && !imageDigest(digest) {
		return false
	}

	path := name
	if at := strings.LastIndexByte(name, '/'); strings.Contains(name[at+1:], ":") {
		var tag string
		colon := at + 1 + strings.IndexByte(name[at+1:], ':')
		path, tag = name[:colon], name[colon+1:]

		if tag == "" || len(tag) > 128 || strings.ContainsAny(tag[:1], ".-") ||
			strings.Trim(tag, letters+capitals+"._-") != "" {
			return false
		}
	}

	parts := strings.Split(path, "/")
	for i, part := range parts {
		allowed := letters + "._-"
		if i == 0 && len(parts) > 1 { // it may be a registry
			allowed += capitals + ":[]"
		}

		if part == "" || strings.Trim(part, allowed) != "" || strings.ContainsAny(part[:1], "._-:") {
			return false
		}
	}

	return true
}

const (
	letters  = "abcdefghijklmnopqrstuvwxyz0123456789"
	capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// imageDigest reports whether a text is the digest of an image, as sha256:….
func imageDigest(text string) bool {
	kind, sum, ok := strings.Cut(text, ":")

	return ok && kind == "sha256" && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}
