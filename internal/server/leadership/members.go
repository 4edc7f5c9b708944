package leadership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/store"
)

// rememberFor is how long a server that is gone is still named to agents and clients: it may come back.
const rememberFor = time.Hour

// Members are the servers of the yard, as the store knows them. With a store that only one
// server can use there is only this one.
type Members struct {
	Store  store.Store
	Self   store.Server
	Shared bool          // whether other servers can use the store
	Every  time.Duration // how often they are looked up
	Clock  clock.Clock
	Log    *slog.Logger

	mu     sync.Mutex
	leader store.Leader
	all    []string // addresses
}

// Run keeps the list up to date and this server on it, until ctx ends.
func (m *Members) Run(ctx context.Context) {
	if !m.Shared {
		return
	}

	failing := false
	clock.Every(ctx, m.Clock, m.Every, func(time.Time) {
		err := m.Refresh(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			m.Log.WarnContext(ctx, "cannot look up the other servers, trying again", "error", err,
				"cause", errors.Unwrap(err))
		}

		failing = err != nil
	})
}

// Refresh records that this server is there, and looks up the others.
func (m *Members) Refresh(ctx context.Context) error {
	if err := m.Store.Attend(ctx, m.Self); err != nil {
		return err
	}

	servers, err := m.Store.Servers(ctx, rememberFor)
	if err != nil {
		return err
	}

	leader, err := m.Store.Leader(ctx)
	if err != nil {
		return err
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.leader = leader
	m.all = m.all[:0:0]
	if leader.Address != "" {
		m.all = append(m.all, leader.Address)
	}

	for _, s := range servers {
		if s.Address != "" && !slices.Contains(m.all, s.Address) {
			m.all = append(m.all, s.Address)
		}
	}

	return nil
}

// Addresses lists the addresses of all servers, that of the leader first; none where there can be only one server.
func (m *Members) Addresses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.all
}

// SelfLeads reports whether this server leads.
func (m *Members) SelfLeads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.leader.Name == m.Self.Name && m.leader.Lease > 0
}

// Leader returns the address of another server that leads, and "" if there is none.
func (m *Members) Leader() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.leader.Name == m.Self.Name || m.leader.Lease == 0 {
		return ""
	}

	return m.leader.Address
}
