package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"trainyard/internal/api"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
)

// servers are the addresses at which the server may be found, and the one that is tried now. It
// is safe for concurrent use.
type servers struct {
	mu   sync.Mutex
	list []string
	at   int
}

// newServers returns the addresses with the configured one first, then the one of the newest
// grant, then those that the server has named.
func newServers(configured, last string, named []string) *servers {
	s := &servers{}
	s.learn(append([]string{configured, last}, named...))

	return s
}

// current returns the address that is tried now.
func (s *servers) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[s.at]
}

// learn adds addresses. None is dropped before the agent restarts: one that does not answer costs
// a try only when the others do not answer either.
func (s *servers) learn(named []string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, address := range named {
		if address != "" && !slices.Contains(s.list, address) {
			s.list = append(s.list, address)
		}
	}
}

// next turns to the next address and reports whether there is another one, and whether the
// addresses have all been tried since the first.
func (s *servers) next() (other, round bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.at = (s.at + 1) % len(s.list)

	return len(s.list) > 1, s.at == 0
}

// tryNextServer turns to the next address after a report has failed, if another server may be
// found there. It reports whether to ask at once: only after all have been tried is it time to wait.
func (a *Agent) tryNextServer(err error) (atOnce bool) {
	if !foundElsewhere(err) {
		return false
	}

	other, round := a.servers.next()
	if !other {
		return false
	}

	a.reconnect()
	a.log.Warn("server not responding, trying another address", "server", a.servers.current(), "error", err)

	return !round
}

// foundElsewhere reports whether a failed report lets expect more of another server: if there was no
// answer, or one that says that this server does not lead or cannot work now. One that has heard the
// report leads.
func foundElsewhere(err error) bool {
	if failureOf(err) == contact.Heard {
		return false
	}

	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}

	var f *fault.Error

	return errors.As(err, &f) && f.Kind == fault.Unavailable
}

// failureOf says what a failed report proves about the server's patience.
func failureOf(err error) contact.Failure {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return contact.Refused
	}

	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Unavailable && f.Code == api.CodeHeard {
		return contact.Heard
	}

	return contact.Unknown
}
