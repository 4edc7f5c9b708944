package inventory

import "trainyard/internal/atomicfile"

// replaceFile puts a text in place of a file: a reader sees the old one or the
// new one.
func replaceFile(path string, text []byte) error {
	return atomicfile.Write(path, text, atomicfile.SingleWriter())
}
