// Package glob matches paths with patterns such as ckpt/best.pt, runs/** and **/*.csv.
//
// The ignore files of a working directory, the outputs of a job file and the arguments of fetch are written in it, so
// that a pattern means the same everywhere. It reads no folder: it is given paths with forward slashes.
package glob

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPattern = 1000 // bytes
	maxParts   = 64
)

// Match reports whether a pattern chooses a path: it matches the path, or a folder that the path is in. It holds from
// the top, so that *.csv is not a/b.csv; **/*.csv is.
func Match(pattern, name string) bool {
	parts, names := split(pattern), strings.Split(name, "/")

	for n := range names {
		if Parts(parts, names[:n+1]) {
			return true
		}
	}

	return false
}

// Any reports whether one of the patterns chooses a path.
func Any(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// Reaches reports whether a pattern may choose something in a folder, so that a walk can leave out the others.
func Reaches(pattern, dir string) bool {
	parts, names := split(pattern), strings.Split(dir, "/")

	for n := range parts {
		// A prefix that ends in "**" also matches the folder itself here: more of the pattern follows.
		if reach(parts[:n+1], names, false)[len(names)] {
			return true
		}
	}

	return Match(pattern, dir)
}

// Check says what is wrong with a pattern for paths inside a folder, and how it is written; "" if it is right.
func Check(pattern string) (constraint, remedy string) {
	const example = "write it as in ckpt/best.pt, runs/** or **/*.csv"

	switch clean := path.Clean(pattern); {
	case pattern == "" || len(pattern) > maxPattern || strings.Count(pattern, "/") >= maxParts:
		return "must be a path or pattern of at most 1000 characters", example
	case !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, unicode.IsControl):
		return "must not have control characters", example
	case path.IsAbs(pattern) || strings.HasPrefix(pattern, "~"):
		return "must be relative to the working directory", example
	case clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || slices.Contains(split(pattern), ".."):
		return "must be inside the working directory", example
	}

	for _, part := range split(pattern) {
		if !closed(part) {
			return "must close every [ and have a character after every \\", example
		}
	}

	return "", ""
}

// split cuts a pattern at slashes. A slash at the end says that a folder is meant, which makes no difference here.
func split(pattern string) []string {
	return slices.DeleteFunc(strings.Split(pattern, "/"), func(part string) bool { return part == "" || part == "." })
}

// closed reports whether the classes and escapes of a pattern without slashes are complete.
func closed(part string) bool {
	for part != "" {
		width := 1
		if part[0] == '[' || part[0] == '\\' {
			width, _ = matchOne(part, 0)
		}

		if width == 0 {
			return false
		}

		part = part[width:]
	}

	return true
}

// Parts matches a split pattern with a split path. "**" stands for any number of folders; at the end of a pattern it
// needs at least one name.
func Parts(pattern, name []string) bool { return reach(pattern, name, true)[len(name)] }

// reach returns which beginnings of the path a pattern can match, so that many "**" cost no more than one. whole says
// that nothing follows the pattern.
func reach(pattern, name []string, whole bool) []bool {
	from := make([]bool, len(name)+1)
	from[0] = true

	for i, part := range pattern {
		next := make([]bool, len(name)+1)
		if len(part) >= 2 && strings.Trim(part, "*") == "" {
			last := whole && i == len(pattern)-1
			open := false
			for j := range from {
				next[j] = open || from[j] && !last
				open = open || from[j]
			}
		} else {
			for j := range name {
				next[j+1] = from[j] && Part(part, name[j])
			}
		}

		from = next
	}

	return from
}
