package workdir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// hashTries is how often a file that changes while it is read is read again.
const hashTries = 3

// stamp is what tells that a file did not change.
type stamp struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"`
	CTime int64  `json:"ctime"`
	Inode uint64 `json:"inode"`
}

// file takes a regular file into the manifest.
func (s *scanner) file(ctx context.Context, name string) error {
	for range hashTries {
		if err := ctx.Err(); err != nil {
			return err
		}

		f, steady, err := s.readFile(ctx, name)
		if err != nil {
			return err
		}
		if steady {
			return s.add(f)
		}
	}

	return fault.New(fault.Conflict, "workdir_file_changing", "%s changed while it was read", name).
		WithField("workdir").WithRemedy("stop the program that writes it, or leave it out with a line in %s", ownIgnoreName)
}

// readFile returns the manifest's line for a file, and false if the file
// changed while it was read.
func (s *scanner) readFile(ctx context.Context, name string) (line api.ManifestFile, steady bool, err error) {
	f, err := os.Open(s.real(name))
	if err != nil {
		return line, false, unreadable(name, err)
	}

	defer func() { _ = f.Close() }()

	before, err := f.Stat()
	if err != nil {
		return line, false, unreadable(name, err)
	}

	if before.Size() > s.opts.MaxFile {
		return line, false, fault.New(fault.OverLimit, "workdir_file_too_large",
			"%s has %s; files of a working directory must not be larger than %s",
			name, job.Bytes(before.Size()).Short(), job.Bytes(s.opts.MaxFile).Short()).
			WithField("workdir").
			WithRemedy("leave it out with a line in %s, or put it in a place that the nodes can read", ownIgnoreName)
	}

	mark := stampOf(before)

	line = api.ManifestFile{Path: name, Mode: uint32(before.Mode().Perm()), Size: before.Size()}
	if digest, ok := s.cache.get(name, mark); ok {
		line.Digest = digest
		return line, true, nil
	}

	hash := sha256.New()

	// One byte more than there was tells that the file grows.
	n, err := io.Copy(hash, io.LimitReader(cancellable(ctx, f), before.Size()+1))
	if err != nil {
		if ctx.Err() != nil {
			return line, false, ctx.Err()
		}

		return line, false, unreadable(name, err)
	}

	after, err := os.Lstat(s.real(name))
	if err != nil || n != before.Size() || stampOf(after) != mark {
		return line, false, nil
	}

	line.Digest = hex.EncodeToString(hash.Sum(nil))
	s.tree.Hashed++
	s.cache.put(name, mark, line.Digest)

	return line, true, nil
}

// DigestOf returns the digest of what r gives.
func DigestOf(r io.Reader) (string, error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r); err != nil {
		return "", fmt.Errorf("compute digest: %w", err)
	}

	return hex.EncodeToString(hash.Sum(nil)), nil
}
