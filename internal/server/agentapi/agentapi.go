// Package agentapi is the server's side of the agents' protocol: joining and
// renewing certificates, reports, assignments, and the metrics, output and files
// of runs.
//
// It is apart from the people's API (internal/server): agents show a node
// certificate where people show a token, its paths begin with /agent/v1, and
// what both ends understand is told by api.Capability. Handlers decide nothing
// about jobs or nodes: they check which node asks, turn wire types into messages
// for the loop and turn the answers back. internal/server builds a Server,
// registers its Routes and asks it what nodes have reported.
package agentapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/contact"
	"trainyard/internal/diskspace"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/content"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/outputs"
	"trainyard/internal/store"
	"trainyard/internal/vault"
	"trainyard/internal/yardmaster"
)

// Loop is the way to the yardmaster.
type Loop interface {
	// Do hands a message to the yard and returns the answer once its changes are stored.
	Do(ctx context.Context, m yardmaster.Message) (any, error)
	// Query lets fn look at the yard between two messages. It must not keep what it sees.
	Query(ctx context.Context, fn func(*yardmaster.Yard)) error
	// Report hands in the report of a node; it is answered also while nothing can be stored.
	Report(ctx context.Context, m yardmaster.NodeReport) (any, error)
	// Held returns nil while this server leads for certain.
	Held() error
}

// Assignments returns the desired state of each node; the engine of the agents provides it.
type Assignments interface {
	Desired(n id.Node) (orders []yardmaster.Order, generation uint64, changed <-chan struct{})
	Generation(n id.Node) uint64
}

// Metrics stores the training metrics of runs.
type Metrics interface {
	Take(ctx context.Context, r *api.MetricsReport) error
}

// Use keeps what runs use of their nodes.
type Use interface {
	Take(ctx context.Context, n id.Node, ranks []api.RankReport, orders []yardmaster.Order)
}

// Config is what the protocol works with.
type Config struct {
	Loop        Loop
	Nodes       []yardmaster.NodeInfo // of the yard before its loop runs; Follow tells what changes
	Incarnation yardmaster.Incarnation
	Store       store.Store
	Blobs       blob.Store
	Content     *content.Content
	Outputs     *outputs.Catalogue
	Archive     *archive.Archive
	Assignments Assignments
	Metrics     Metrics
	Use         Use
	CA          *auth.CA // signs and checks the certificates of nodes
	Directory   *auth.Directory
	Clock       clock.Clock
	Log         *slog.Logger
	Start       string           // names this start of the server to agents
	Contact     contact.Settings // how often agents report, and what each answer grants them
	NodeCertTTL time.Duration
	Timeout     time.Duration // for an answer of the loop
	Reserve     *diskspace.Reserve
	// Allow reports whether a node may make a request now; Unknown is the error for one that could not be identified.
	Allow     func(n id.Node) bool
	Unknown   func(r *http.Request, err error) error
	Standby   bool // whether another server may lead the yard
	HasShared bool // whether shared file systems are declared
	Servers   func() []string
	Vault     *vault.Vault // decrypts the secrets of runs
}

// Server answers agents.
type Server struct {
	Config
	roster  *roster
	seen    *sightings
	writers writers
	chunks  chunkRights
	claims  *claims
	numbers *sequences
	asks    *asks
	tunnels *tunnels

	incarnation atomic.Pointer[api.Incarnation] // of the yard's history
}

// New returns the server's side of the protocol. The loop must not run yet, and
// must tell Follow of every batch before it tells anybody else.
func New(c Config) *Server {
	s := &Server{Config: c, roster: newRoster(c.Nodes), seen: newSightings(), claims: newClaims(), numbers: newSequences(),
		asks: newAsks(c.Clock), tunnels: newTunnels()}
	s.setIncarnation(&c.Incarnation)

	return s
}

func (s *Server) setIncarnation(i *yardmaster.Incarnation) {
	s.incarnation.Store(&api.Incarnation{Number: i.Number, Mark: i.Mark})
}

// do hands a message to the loop and waits for the answer no longer than is sensible.
func (s *Server) do(ctx context.Context, m yardmaster.Message) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.Loop.Do(ctx, m)
}

func (s *Server) query(ctx context.Context, fn func(*yardmaster.Yard)) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.Loop.Query(ctx, fn)
}

func (s *Server) fail(ctx context.Context, err error) error { return httpapi.Fail(ctx, s.Log, err) }
