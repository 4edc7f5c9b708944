// Package pyenv knows how Python environments are made: with which programs of a machine, by which script, what the
// content of one is that gives it its name, and what the output of those programs means.
//
// The supervisor of a rank runs the script inside the walls of the job and keeps what it made (package supervisor); the
// agent says which programs there are. This package starts nothing and writes nothing.
package pyenv

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tools are the programs of a machine that make environments, by their paths; "" or nil for those that are not there.
type Tools struct {
	UV      string
	Conda   string   // micromamba, mamba or conda
	Pythons []string // interpreters, in the order of PATH; each program once
}

// Find looks for programs in the directories of a PATH. usable reports whether a job may execute a file.
func Find(path string, usable func(file string) bool) Tools {
	var t Tools
	seen := map[string]bool{}

	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}

		if uv := filepath.Join(dir, "uv"); t.UV == "" && usable(uv) {
			t.UV = uv
		}

		for _, python := range interpreters(dir) {
			if real := realPath(python); !seen[real] && usable(python) {
				seen[real] = true
				t.Pythons = append(t.Pythons, python)
			}
		}
	}

	for _, name := range []string{"micromamba", "mamba", "conda"} {
		for _, dir := range filepath.SplitList(path) {
			if file := filepath.Join(dir, name); t.Conda == "" && filepath.IsAbs(dir) && usable(file) {
				t.Conda = file
			}
		}
	}

	return t
}

// interpreters returns the names in a directory that are those of interpreters, python3 first.
func interpreters(dir string) []string {
	found := []string{filepath.Join(dir, "python3"), filepath.Join(dir, "python")}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // directories of a PATH need not be there
	}

	for _, e := range entries {
		minor, ok := strings.CutPrefix(e.Name(), "python3.")
		if ok && minor != "" && strings.Trim(minor, "0123456789") == "" {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}

	return found
}

// realPath returns what a path leads to, the path itself if that cannot be found out.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}

	return path
}

// candidates returns the interpreters that may have a version, "" for any: those that have it in their names first, and
// those that have no version in their names.
func (t Tools) candidates(version string) []string {
	minor := version
	if parts := strings.Split(version, "."); len(parts) > 2 {
		minor = strings.Join(parts[:2], ".")
	}

	var named, unnamed []string
	for _, p := range t.Pythons {
		switch name := filepath.Base(realPath(p)); {
		case minor != "" && name == "python"+minor:
			named = append(named, p)
		case minor == "" || !strings.HasPrefix(name, "python3."):
			unnamed = append(unnamed, p)
		}
	}

	return slices.Concat(named, unnamed)
}
