package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// HeaderServers is the header of every answer that lists the addresses of all servers of the yard, the leader first.
const HeaderServers = "Trainyard-Servers"

// Codes of errors of servers that do not lead.
const (
	CodeNotLeader    = "not_leader"    // nothing was done; another server leads, or will
	CodeLostLead     = "lost_lead"     // it is not known whether the request took effect
	CodeLeaderSilent = "leader_silent" // the same: it was forwarded, and no answer came
)

// A client that knows several servers tries them one after the other, this many times, with a pause in between:
// long enough for another server to take the lead.
const (
	serverRounds = 30
	serverPause  = 500 * time.Millisecond
)

// servers are the addresses of a yard that a client knows.
type servers struct {
	mu      sync.Mutex
	all     []string
	current string
	changed func([]string) // nil if answers do not change the list
}

// UseServers lets the client try other addresses of the yard when a server is not there or does not lead, and learn
// from answers which there are. changed is called with the new list when it has changed; a yard that has only one
// server has no list.
func (c *Client) UseServers(addresses []string, changed func([]string)) {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()

	c.servers.all, c.servers.changed = slices.Sorted(slices.Values(addresses)), changed
}

// Servers lists the addresses that the client knows, the one that answered last first.
func (c *Client) Servers() []string {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()

	list := []string{c.servers.current}
	for _, a := range c.servers.all {
		if a != c.servers.current {
			list = append(list, a)
		}
	}

	return list
}

// learn takes up the addresses that an answer lists. Those that it does not list are forgotten.
func (s *servers) learn(from string, header http.Header) {
	if list, changed := s.take(from, header.Get(HeaderServers)); changed != nil {
		changed(list)
	}
}

// take stores a list, and returns it with whom to tell if it is news.
func (s *servers) take(from, text string) ([]string, func([]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.current = from
	if s.changed == nil || text == "" {
		return nil, nil
	}

	list := strings.Split(text, ", ")
	if len(list) == 1 {
		list = nil
	}

	slices.Sort(list)

	if slices.Equal(list, s.all) {
		return nil, nil
	}

	s.all = list

	return slices.Clone(list), s.changed
}

// try makes a request, at one server after the other until one has an answer.
func (c *Client) try(ctx context.Context, body io.Reader, safe bool, send func(base string) (*http.Response, error)) (
	*http.Response, error,
) {
	var failure error
	for round := range serverRounds {
		bases := c.Servers()

		for i, base := range bases {
			if round+i > 0 && !rewind(body) {
				return nil, failure
			}

			resp, err := send(base)
			if err == nil {
				c.servers.learn(base, resp.Header)
				return resp, nil
			}

			if !elsewhere(err, safe) || ctx.Err() != nil {
				return nil, err
			}

			failure = err
		}

		if len(c.Servers()) == 1 || !clock.Sleep(ctx, serverPause) {
			break
		}
	}

	return nil, failure
}

// rewind makes a body ready to be sent again, if it can be.
func rewind(body io.Reader) bool {
	if body == nil {
		return true
	}

	seeker, ok := body.(io.Seeker)
	if !ok {
		return false
	}

	_, err := seeker.Seek(0, io.SeekStart)

	return err == nil
}

// elsewhere reports whether a request that failed may be made at another server. One that may have taken effect is
// made again only where that is safe: it reads, or has an idempotency key.
func elsewhere(err error, safe bool) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}

	var f *fault.Error
	if !errors.As(err, &f) {
		return false
	}

	switch f.Code {
	case CodeNotLeader:
		return true
	case CodeLostLead, CodeLeaderSilent, "unreachable", "stopping":
		return safe
	}

	return false
}
