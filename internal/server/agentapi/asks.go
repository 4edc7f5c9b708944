package agentapi

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// asks are the files that people want from nodes. Agents dial out only, so a request goes down with the assignments and
// its answer comes with a call. They are in memory: whoever waits for an answer asks again.
type asks struct {
	clock clock.Clock

	mu       sync.Mutex
	open     map[id.Node][]*ask
	changed  map[id.Node]chan struct{} // closed when a node gets a request
	outdated map[id.Node]bool          // nodes whose agents do not know requests
}

// ask is one request.
type ask struct {
	api.OutputsRequest

	since  time.Time
	done   chan struct{}
	answer api.NewOutputs // valid once done is closed
}

const (
	// askWait is how long a person's request waits for the answer of a node: shorter than what proxies bear.
	askWait = 20 * time.Second
	// askFor is how long a request is open. An upload that takes longer is found when it is asked for again.
	askFor = 30 * time.Minute
	// maxAsks is how many requests a node has at most.
	maxAsks = 100
	// asksCapability is that of the first agents that know requests.
	asksCapability = 12
)

func newAsks(c clock.Clock) *asks {
	return &asks{
		clock: c, open: map[id.Node][]*ask{}, changed: map[id.Node]chan struct{}{}, outdated: map[id.Node]bool{},
	}
}

// note takes down which version a node speaks.
func (a *asks) note(n id.Node, capability int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.outdated[n] = capability < asksCapability
}

// of returns the open requests of a node, and a channel that is closed when there are more.
func (a *asks) of(n id.Node) ([]api.OutputsRequest, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.changed[n] == nil {
		a.changed[n] = make(chan struct{})
	}

	var list []api.OutputsRequest
	for _, q := range a.open[n] {
		list = append(list, q.OutputsRequest)
	}

	return list, a.changed[n]
}

// begin opens a request, unless the same one is open already.
func (a *asks) begin(n id.Node, q api.OutputsRequest) (*ask, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.outdated[n] {
		return nil, fault.New(fault.Conflict, "agent_outdated",
			"the agent of node %s is of an earlier version and cannot send files of runs", n).WithRemedy("update it")
	}

	now := a.clock.Now()
	a.open[n] = slices.DeleteFunc(a.open[n], func(o *ask) bool { return now.Sub(o.since) > askFor })

	for _, o := range a.open[n] {
		if o.Run == q.Run && o.Rank == q.Rank && o.List == q.List && slices.Equal(o.Patterns, q.Patterns) {
			return o, nil
		}
	}

	if len(a.open[n]) >= maxAsks {
		return nil, fault.New(fault.OverLimit, "too_many_requests", "node %s has %d requests for files open", n, maxAsks).
			WithRemedy("try again in a minute")
	}

	q.ID = strings.ToLower(rand.Text())
	made := &ask{OutputsRequest: q, since: now, done: make(chan struct{})}
	a.open[n] = append(a.open[n], made)

	if a.changed[n] != nil {
		close(a.changed[n])
		delete(a.changed, n)
	}

	return made, nil
}

// answered closes a request that an agent has carried out.
func (a *asks) answered(n id.Node, in *api.NewOutputs) {
	a.mu.Lock()
	defer a.mu.Unlock()

	i := slices.IndexFunc(a.open[n], func(o *ask) bool { return o.ID == in.Request })
	if i < 0 {
		return
	}

	q := a.open[n][i]
	if !q.List && in.Manifest == "" && in.Problem == "" {
		return // it has only asked whether there is room
	}

	q.answer = *in
	a.open[n] = slices.Delete(a.open[n], i, i+1)
	close(q.done)
}

// AskOutputs asks a node for files from the folder of a run. It waits for the answer for a while, and reports whether
// it has come.
func (s *Server) AskOutputs(ctx context.Context, n id.Node, q api.OutputsRequest) (api.NewOutputs, bool, error) {
	if s.Gone(n) {
		return api.NewOutputs{}, false, fault.New(fault.Conflict, "node_lost", "node %s is lost or was removed", n)
	}

	open, err := s.asks.begin(n, q)
	if err != nil {
		return api.NewOutputs{}, false, err
	}

	switch clock.Wait(ctx, askWait, open.done) {
	case clock.Woken:
		return open.answer, true, nil
	case clock.Ended:
		return api.NewOutputs{}, false, ctx.Err()
	case clock.Passed:
	}

	return api.NewOutputs{}, false, nil
}
