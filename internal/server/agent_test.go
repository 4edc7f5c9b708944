package server

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// node is an agent that does what the test says.
type node struct {
	*api.Client
	y        *yard
	name     id.Node
	identity *auth.NodeIdentity
	http     *http.Client

	mu      sync.Mutex
	seen    []api.Assignments
	changed chan struct{}
}

func someInventory() fleet.Inventory {
	return fleet.Inventory{
		Address: "127.0.0.1",
		OS:      "linux",
		Arch:    "amd64",
		Version: "test",
		CPUs:    8000,
		Memory:  16 << 30,
		Disk:    100 << 30,

		MixUsers: true,
	}
}

// join makes a machine a node, with its own key and a certificate of the yard.
func (y *yard) join(name string) *node {
	y.t.Helper()
	return y.joinWith(name, y.joinToken(1))
}

// accept accepts the hardware that a node has declared since it joined.
func (y *yard) accept(name id.Node) {
	y.t.Helper()
	_, err := y.admin().AcceptNode(y.t.Context(), name)
	y.must(err)
}

// joinWith joins by a token.
func (y *yard) joinWith(name, token string) *node {
	y.t.Helper()
	n := &node{y: y, changed: make(chan struct{})}
	identity, err := auth.NewNodeIdentity(y.ca.PEM())
	y.must(err)
	n.identity = identity
	csr, err := identity.CSR(name)
	y.must(err)
	reply, err := y.client("").
		Join(y.t.Context(), api.JoinRequest{Capability: api.Capability, Token: token, Name: name, CSR: string(csr),
			Inventory: someInventory()})
	y.must(err)
	y.must(identity.Install([]byte(reply.Certificate)))
	n.name = reply.Node
	n.Client = api.NewClient(y.url, "", identity.TLS())
	transport := &http.Transport{TLSClientConfig: identity.TLS(), ForceAttemptHTTP2: true}
	n.http = &http.Client{Transport: transport}
	y.t.Cleanup(func() {
		n.Close()
		transport.CloseIdleConnections()
	})

	return n
}

// listen follows the node's assignments until the test ends.
func (n *node) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)

		_ = n.Assignments(ctx, func(a api.Assignments) error {
			n.mu.Lock()
			defer n.mu.Unlock()

			n.seen = append(n.seen, a)
			close(n.changed)
			n.changed = make(chan struct{})

			return nil
		})
	}()

	n.y.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// await returns the first assignments, seen or still to come, of which ok is true.
func (n *node) await(ok func(api.Assignments) bool) api.Assignments {
	n.y.t.Helper()

	for at := 0; ; {
		n.mu.Lock()
		seen, changed := n.seen, n.changed
		n.mu.Unlock()

		for ; at < len(seen); at++ {
			if ok(seen[at]) {
				return seen[at]
			}
		}

		select {
		case <-changed:
		case <-time.After(5 * time.Minute):
			n.y.t.Fatalf("node %s was not told in time; it saw %+v", n.name, seen)
		}
	}
}

// awaitRun waits until a run of the job is assigned and returns it.
func (n *node) awaitRun(j id.Job, epoch int) id.Run {
	n.y.t.Helper()
	run := id.NewRun(j, epoch)
	n.await(func(a api.Assignments) bool {
		return slices.ContainsFunc(a.Runs, func(r api.Assignment) bool { return r.Run == run })
	})

	return run
}

// tell reports ranks.
func (n *node) tell(ranks ...api.RankReport) {
	n.y.t.Helper()
	_, err := n.Report(n.y.t.Context(), api.Report{Capability: api.Capability, Boot: "b", Ranks: ranks})
	n.y.must(err)
}

// starts reports that a rank runs.
func (n *node) starts(run id.Run, rank int) {
	n.y.t.Helper()
	n.tell(api.RankReport{Run: run, Rank: rank, State: job.RunRunning, Started: n.y.clock.Now()})
}

// ends reports that a rank has ended with an exit code.
func (n *node) ends(run id.Run, rank, code int) {
	n.y.t.Helper()
	n.tell(
		api.RankReport{
			Run:      run,
			Rank:     rank,
			State:    job.RunEnded,
			Started:  n.y.clock.Now(),
			Ended:    n.y.clock.Now(),
			ExitCode: code,
		},
	)
}

// upload sends output and returns how much the server has.
func (n *node) upload(run id.Run, rank int, offset int64, data []byte, final bool) int64 {
	n.y.t.Helper()
	reply, err := n.UploadLog(n.y.t.Context(), run, "", rank, offset, data, final)
	n.y.must(err)

	return reply.Offset
}

// started makes a job of one rank that runs on this node.
func (n *node) started(c *api.Client, more ...string) (id.Job, id.Run) {
	n.y.t.Helper()
	j := n.y.submit(c, strings.Join(append([]string{"run: train"}, more...), "\n"))[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)

	return j, run
}

// output is a log with these frames: "o:text", "e:text" or "y:text".
func output(t testing.TB, frames ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := logs.NewWriter(&out, 0)
	for i, f := range frames {
		if err := w.Write(logs.Stream(f[0]), time.UnixMilli(int64(1000+i)), []byte(f[2:])); err != nil {
			t.Fatal(err)
		}
	}

	return out.Bytes()
}
