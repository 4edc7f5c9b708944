package diskspace

import "trainyard/internal/job"

// Floor is how much of a disk must be free: a size and a share of it between 0 and 1, of which the larger counts. Any
// is enough if both are 0.
type Floor struct {
	Size  job.Bytes
	Share float64
}

// Of returns how much of a disk of a size must be free.
func (f Floor) Of(total job.Bytes) job.Bytes {
	return max(f.Size, job.Bytes(f.Share*float64(total)))
}

// WithSpare returns how much of a disk what can be fetched or done without must leave free. It is twice the floor, so
// that caches alone never bring a disk near it.
func (f Floor) WithSpare(total job.Bytes) job.Bytes { return 2 * f.Of(total) }
