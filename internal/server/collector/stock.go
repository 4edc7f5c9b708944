package collector

import (
	"sync"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
)

// Stock is what was stored at the last collection, and what that has removed.
type Stock struct {
	At      time.Time // zero if nothing was collected yet
	Failure string    // why it was not complete, "" if it was
	Removed Report
	Files   Amount // of working directories
	Chunks  Amount // of checkpoints
	Output  Amount // of ended ranks
	Jobs    int
	Users   map[id.User]Share
}

// Amount is how much there is of something.
type Amount struct {
	Count int
	Bytes job.Bytes
}

func (a *Amount) add(bytes job.Bytes) {
	a.Count++
	a.Bytes += bytes
}

// Share is what a user has of it.
type Share struct {
	Jobs        int
	Output      job.Bytes
	Checkpoints job.Bytes // in the catalogue; chunks that several have in common count for each
	Files       job.Bytes // output files; likewise
}

// share changes what a user has.
func (s *Stock) share(user id.User, change func(*Share)) {
	if s.Users == nil {
		s.Users = map[id.User]Share{}
	}

	of := s.Users[user]
	change(&of)
	s.Users[user] = of
}

// count adds a job and its output, if that is kept, and returns how much that is.
func (s *Stock) count(j *job.Job, output []archive.Stored, kept bool) (bytes job.Bytes) {
	for _, l := range output {
		if kept {
			bytes += l.Bytes
			s.Output.add(l.Bytes)
		}
	}

	s.Jobs++
	s.share(j.Owner, func(of *Share) {
		of.Jobs++
		of.Output += bytes
	})

	return bytes
}

// lastStock is the newest stock. It is safe for concurrent use.
type lastStock struct {
	mu    sync.Mutex
	stock Stock
}

func (l *lastStock) set(s Stock) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.stock = s
}

func (l *lastStock) get() Stock {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.stock
}

// Stock returns what was stored at the last collection.
func (c *Collector) Stock() Stock { return c.last.get() }
