package supervisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"trainyard/internal/diskspace"
)

// Of the log of a run, room for its last remarks is always kept, and more is taken ahead in steps.
const (
	lastRoom = 4 << 10
	roomStep = 32 << 10
)

// logFile is the file of a log. It takes room on the disk ahead of the output, so that the log can still say how much
// of it is missing when the disk has become full.
type logFile struct {
	*os.File
	size   int64
	room   int64 // that the file has on the disk, from its beginning
	ending bool  // what is written now may use the last room
	plain  bool  // the file system cannot take room ahead
	sync   func() error
}

// openLogFile opens a log for appending. It fails if there is no room for the last remarks.
func openLogFile(path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}

	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	f := &logFile{File: file, size: info.Size(), room: info.Size(), sync: file.Sync}
	if err := f.reserve(f.size + lastRoom); err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return f, nil
}

// Write appends, or writes nothing if the room for the last remarks would be used.
func (f *logFile) Write(p []byte) (int, error) {
	if !f.ending {
		if err := f.reserve(f.size + int64(len(p)) + lastRoom); err != nil {
			return 0, err
		}
	}

	n, err := f.File.Write(p)
	f.size += int64(n)

	return n, err
}

// reserve takes room for a file of a size.
func (f *logFile) reserve(size int64) error {
	if f.plain || size <= f.room {
		return nil
	}

	var err error
	for _, ahead := range []int64{roomStep, 0} {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size+ahead)
		if err == nil {
			f.room = size + ahead
			return nil
		}
	}

	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		f.plain = true
		return nil
	}
	if diskspace.Full(err) {
		return err
	}

	return nil // the write itself finds out what is wrong
}

// end gives back what room is left, and makes the log durable. An empty one needs no sync: its name is as old as the
// run directory.
func (f *logFile) end() error {
	err := f.Truncate(f.size)
	if f.size > 0 {
		err = errors.Join(err, f.sync())
	}

	return errors.Join(err, f.Close())
}
