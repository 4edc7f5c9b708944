package agentapi

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// sightings holds what agents report that is only displayed and decides nothing, and the GPU
// releases to send in reply. It is in memory only: agents report again after a restart, and
// releases are in the event feed.
type sightings struct {
	mu       sync.Mutex
	nodes    map[id.Node]Sighting
	released map[id.Node]map[string]time.Time // newest release by UUID
	swept    time.Time
}

// forgetAfter is how long the sighting of a node is kept after its last report.
const forgetAfter = 24 * time.Hour

// Sighting is what was seen of one node. Its maps are replaced, never changed.
type Sighting struct {
	at        time.Time
	Processes map[int][]api.ForeignProcess // of others, by GPU
	Foreign   map[int]time.Time            // GPUs that others use, since
	Failed    map[int]time.Time            // GPUs out of use, since
	Readings  map[int]fleet.GPUReading     // by GPU
}

func newSightings() *sightings {
	return &sightings{nodes: map[id.Node]Sighting{}, released: map[id.Node]map[string]time.Time{}}
}

// Sighting returns what was seen of a node.
func (s *Server) Sighting(n id.Node) Sighting {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return s.seen.nodes[n]
}

// noteReport stores what an agent reports about GPUs, and returns the releases to send in
// reply.
func (s *Server) noteReport(n id.Node, r *api.Report) []api.GPURelease {
	now := s.Clock.Now()
	seen := s.seen
	seen.mu.Lock()
	defer seen.mu.Unlock()

	old := seen.nodes[n]
	next := Sighting{at: now, Processes: map[int][]api.ForeignProcess{}, Foreign: map[int]time.Time{}, Failed: old.Failed}
	for _, p := range r.ForeignProcesses {
		next.Processes[p.GPU] = append(next.Processes[p.GPU], p)
	}

	for _, g := range r.Foreign {
		next.Foreign[g] = since(old.Foreign, g, now)
	}

	next.Readings = make(map[int]fleet.GPUReading, len(r.GPUs))
	for _, g := range r.GPUs {
		next.Readings[g.GPU] = g
	}

	if r.Inventory != nil {
		next.Failed = failures(old.Failed, r.Inventory.GPUs, now)
	}

	seen.nodes[n] = next
	seen.sweep(now)

	var list []api.GPURelease
	for _, uuid := range slices.Sorted(maps.Keys(seen.released[n])) {
		list = append(list, api.GPURelease{UUID: uuid, At: seen.released[n][uuid]})
	}

	return list
}

// sweep drops nodes that have not reported for a day, from time to time.
func (s *sightings) sweep(now time.Time) {
	if now.Sub(s.swept) < forgetAfter {
		return
	}

	s.swept = now
	maps.DeleteFunc(s.nodes, func(_ id.Node, seen Sighting) bool { return now.Sub(seen.at) > forgetAfter })
	maps.DeleteFunc(s.released, func(n id.Node, _ map[string]time.Time) bool {
		_, known := s.nodes[n]
		return !known
	})
}

func failures(old map[int]time.Time, gpus []fleet.GPU, now time.Time) map[int]time.Time {
	next := map[int]time.Time{}
	for i := range gpus {
		if gpus[i].Error != "" {
			next[gpus[i].Index] = since(old, gpus[i].Index, now)
		}
	}

	return next
}

func since(old map[int]time.Time, key int, now time.Time) time.Time {
	return cmp.Or(old[key], now)
}

// Release remembers what the event of a release says.
func (s *Server) Release(e *yardmaster.Event) {
	seen := s.seen
	seen.mu.Lock()
	defer seen.mu.Unlock()

	if seen.released[e.Node] == nil {
		seen.released[e.Node] = map[string]time.Time{}
	}

	if e.At.After(seen.released[e.Node][e.To]) {
		seen.released[e.Node][e.To] = e.At
	}
}

// maxRecalled is how many releases are remembered over a restart.
const maxRecalled = 1000

// RecallReleases reads from the feed the releases that may not have reached their agents before the server
// stopped. An agent acts on a release once, however often it is sent.
func (s *Server) RecallReleases(ctx context.Context) error {
	events, err := s.Store.Events(ctx, store.EventFilter{Kind: yardmaster.EventReleased, Newest: true, Limit: maxRecalled})
	for i := range events {
		s.Release(&events[i])
	}

	return err
}
