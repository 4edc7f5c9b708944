package diskspace

import (
	"io"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Reserve is room on disks that uploads must leave free for the database, which has to record what happens to running
// jobs. As the room gets scarce uploads stop first, then submissions, and what must be recorded last. The nil Reserve
// keeps nothing.
type Reserve struct {
	Bytes job.Bytes // how much is kept free, or AutoReserve
	// Dirs are folders on the disks.
	Dirs []string
}

// AutoReserve keeps a twentieth of a disk free, at most 1 GB.
const AutoReserve job.Bytes = -1

const (
	autoShare = 20
	autoMost  = 1 << 30
)

// Uploads fails if there is no room for uploads.
func (r *Reserve) Uploads() error { return r.check("uploads", 1) }

// Submissions fails if there is no room for new jobs.
func (r *Reserve) Submissions() error { return r.check("submissions", 2) }

// Keep is how much of a disk of a size is kept free.
func (r *Reserve) Keep(total job.Bytes) job.Bytes {
	if r.Bytes == AutoReserve {
		return min(total/autoShare, autoMost)
	}

	return r.Bytes
}

// check fails if less than a part of the reserve is free.
func (r *Reserve) check(what string, part job.Bytes) error {
	if r == nil {
		return nil
	}

	for _, dir := range r.Dirs {
		free, total, err := Free(dir)
		if err != nil {
			return err
		}

		keep := r.Keep(total) / part
		if free < keep {
			return fault.New(fault.Unavailable, CodeFull,
				"the server accepts no %s: the disk that holds %s has %s free, and %s are reserved for its database",
				what, dir, humanize.Size(free), humanize.Size(keep)).
				WithRemedy("an admin must free space there, or keep less; see trainyard retention")
		}
	}

	return nil
}

// recheck is after how many bytes of an upload the room is looked at again.
const recheck = 1 << 20

// Reader passes on an upload, and fails when there is no room for more.
func (r *Reserve) Reader(in io.Reader) io.Reader {
	if r == nil {
		return in
	}

	return &reservedReader{in: in, reserve: r}
}

type reservedReader struct {
	in      io.Reader
	reserve *Reserve
	left    int // bytes until the room is looked at again
}

func (u *reservedReader) Read(p []byte) (int, error) {
	if u.left <= 0 {
		if err := u.reserve.Uploads(); err != nil {
			return 0, err
		}

		u.left = recheck
	}

	n, err := u.in.Read(p)
	u.left -= n

	return n, err
}
