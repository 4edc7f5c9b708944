package blob

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"trainyard/internal/atomicfile"
)

// bootID is where the kernel says which start of which machine this is.
const bootID = "/proc/sys/kernel/random/boot_id"

// JoinDir opens a folder that another process has opened with OpenDir, and returns a nonce by which that process sees
// whether it is the same one. owner names who joins: what an earlier process of it left half written is removed.
func JoinDir(root, owner string) (*Dir, string, error) {
	if owner != filepath.Base(owner) || !filepath.IsLocal(owner) {
		return nil, "", fmt.Errorf("join blob folder: %q is not the name of a file", owner)
	}

	info, err := os.Stat(filepath.Join(root, Unfinished))
	if err != nil {
		return nil, "", fmt.Errorf("join blob folder: %w", err)
	}

	// Files are for their owner alone, so both must be the same user.
	if own, ok := info.Sys().(*syscall.Stat_t); !ok || int(own.Uid) != os.Geteuid() {
		return nil, "", fmt.Errorf("join blob folder: %s belongs to another user", root)
	}

	temp := filepath.Join(root, Unfinished, owner)
	if err := os.RemoveAll(temp); err != nil {
		return nil, "", fmt.Errorf("join blob folder: %w", err)
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, "", fmt.Errorf("join blob folder: %w", err)
	}

	machine, err := os.ReadFile(bootID)
	nonce := rand.Text()

	if err == nil {
		err = os.WriteFile(filepath.Join(temp, nonce), machine, 0o600) //nolint:gosec // below a plain name
	}
	if err != nil {
		return nil, "", fmt.Errorf("join blob folder: %w", err)
	}

	return newDir(atomicfile.OS{}, root, temp), path.Join(owner, nonce), nil
}

// Leave removes what JoinDir has made.
func (d *Dir) Leave() error {
	if d.temp == filepath.Join(d.root, Unfinished) {
		return nil // it is not one that was joined
	}

	return os.RemoveAll(d.temp)
}

// Folder is where the blobs are.
func (d *Dir) Folder() string { return d.root }

// Sees reports whether the nonce of somebody who has joined a folder is in this one. Of a folder on the network
// another machine may see a file late; so it must have been made on this machine.
func (d *Dir) Sees(nonce string) bool {
	if CheckName(nonce) != nil {
		return false
	}

	made, err := os.ReadFile(filepath.Join(d.root, Unfinished, filepath.FromSlash(nonce)))
	machine, machineErr := os.ReadFile(bootID)

	return err == nil && machineErr == nil && bytes.Equal(made, machine)
}
