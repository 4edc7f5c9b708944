package collector

import (
	"sync"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/retention"
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

// count adds a job and its output, as far as that is kept.
func (s *Stock) count(j *job.Job, output Amount) {
	s.Output.Count += output.Count
	s.Output.Bytes += output.Bytes
	s.Jobs++
	s.share(j.Owner, func(of *Share) {
		of.Jobs++
		of.Output += output.Bytes
	})
}

// tooMuchOutput reports whether there is more output, of a user or of all, than limits allow.
func (s *Stock) tooMuchOutput(l *retention.Limits) bool {
	if l.AllOutput > 0 && s.Output.Bytes > l.AllOutput {
		return true
	}

	for _, of := range s.Users {
		if l.UserOutput > 0 && of.Output > l.UserOutput {
			return true
		}
	}

	return false
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
