package auth

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
)

// maxFile bounds how many bytes of a file are read; the real files are far smaller.
const maxFile = 64 << 10

// ownDir creates the directory if necessary and denies access to others.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return fmt.Errorf("restrict directory permissions: %w", err)
	}

	return nil
}

// readPrivate reads a file that holds a key. A file that others may read is refused, because its key may be known to
// them, and so is one that belongs to another user, who may replace it.
func readPrivate(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}

	defer func() { _ = f.Close() }()

	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat key file: %w", err)
	}

	if err := checkPrivate(path, info); err != nil {
		return nil, err
	}

	data, err = io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}

	return data, nil
}

// checkPrivate refuses a key file that others may read or replace.
func checkPrivate(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o077 != 0 {
		return fault.New(fault.Internal, "key_exposed", "%s contains a private key and is accessible to other users of "+
			"this machine (mode %04o)", path, info.Mode().Perm()).
			WithRemedy("run chmod 600 %s, and treat the key as compromised if others use this machine", path)
	}

	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fault.New(fault.Internal, "key_of_another_user", "%s contains a private key and belongs to another user "+
			"(uid %d) than this process (uid %d)", path, owner.Uid, os.Geteuid()).
			WithRemedy("run chown %d %s, and treat the key as compromised unless that user is trusted", os.Geteuid(), path)
	}

	return nil
}

// writeAtomic replaces the file at path, so that after a crash it has either the complete old or
// the complete new content. It first removes temporary files that earlier crashes left.
func writeAtomic(path string, data []byte) error {
	if err := atomicfile.RemoveLeftovers(path); err != nil {
		return err
	}

	return atomicfile.Write(path, data)
}
