package sandbox

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MayExecute reports whether programs of a user can execute a file, and reach it by its path and by what that leads to.
// For nil it is about this process.
func (u *User) MayExecute(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}

	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}

	if u == nil {
		return unix.Access(real, unix.X_OK) == nil
	}

	return u.mayPass(info) && u.mayReach(path) && u.mayReach(real)
}

// mayReach reports whether a user may pass all directories above a path.
func (u *User) mayReach(path string) bool {
	parts := strings.Split(strings.TrimPrefix(filepath.Dir(path), "/"), "/")
	for i := range parts {
		info, err := os.Stat("/" + filepath.Join(parts[:i+1]...))
		if err != nil || !u.mayPass(info) {
			return false
		}
	}

	return true
}
