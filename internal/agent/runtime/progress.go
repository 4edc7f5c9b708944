package runtime

import (
	"path/filepath"

	"trainyard/internal/id"
)

// progressVar names the file in which a program tells how far it is.
const progressVar = "TRAINYARD_PROGRESS"

// ProgressFile returns the path of that file. What is there, if anything, is the
// program's: it may be half written, and need not even be a file.
func (r *Runtime) ProgressFile(run id.Run, n int) (string, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return "", err
	}
	return filepath.Join(rk.dir, progressFile), nil
}
