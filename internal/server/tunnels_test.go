package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// opened is what became of a tunnel that somebody opens.
type opened struct {
	tunnel *api.Tunnel
	err    error
}

// opens opens a tunnel beside the test.
func opens(t testing.TB, c *api.Client, j id.Job, start api.TunnelStart) <-chan opened {
	t.Helper()
	done := make(chan opened, 1)

	go func() {
		tunnel, err := c.OpenTunnel(t.Context(), j, start)
		if err == nil {
			t.Cleanup(func() { _ = tunnel.Close() })
		}

		done <- opened{tunnel, err}
	}()

	return done
}

// asked waits until a tunnel is wanted to the node, and opens its end.
func (n *node) asked() (api.TunnelRequest, *api.Tunnel) {
	n.y.t.Helper()
	got := n.await(func(a api.Assignments) bool { return len(a.Tunnels) > 0 })

	end, err := n.AnswerTunnel(n.y.t.Context(), got.Tunnels[0].ID)
	n.y.must(err)
	n.y.t.Cleanup(func() { _ = end.Close() })

	return got.Tunnels[0], end
}

// connected returns both ends of a tunnel that has begun.
func (n *node) connected(c *api.Client, j id.Job) (client, agent *api.Tunnel) {
	n.y.t.Helper()
	wait := opens(n.y.t, c, j, api.TunnelStart{Kind: api.TunnelExec, Command: []string{"x"}})
	_, agent = n.asked()
	n.y.must(agent.Control(n.y.t.Context(), api.TunnelControl{Started: true}))

	got := <-wait
	n.y.must(got.err)

	return got.tunnel, agent
}

// failure waits for the problem with which a tunnel ends.
func failure(t *testing.T, tunnel *api.Tunnel) error {
	t.Helper()

	for {
		m, err := tunnel.Receive(t.Context())
		if err != nil {
			return err
		}

		if m.Control != nil && m.Control.Problem != nil {
			return m.Control.Failure()
		}
	}
}

func TestATunnelPassesMessagesOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()
	j, run := n.started(ada)

	start := api.TunnelStart{
		Kind: api.TunnelExec, Command: []string{"/usr/bin/top", "-secret"},
		Terminal: &api.Terminal{Term: "xterm", WindowSize: api.WindowSize{Columns: 80, Rows: 24}},
	}
	wait := opens(t, ada, j, start)
	request, agent := n.asked()

	if request.Run != run || request.Shared || request.Start.Command[1] != "-secret" || request.Start.Terminal.Rows != 24 {
		t.Errorf("the node was asked for %+v", request)
	}

	// It is for one connection, and not for another node.
	if _, err := n.AnswerTunnel(t.Context(), request.ID); err == nil {
		t.Error("a tunnel was opened twice")
	}

	y.must(agent.Control(t.Context(), api.TunnelControl{Started: true}))
	got := <-wait
	y.must(got.err)

	y.must(got.tunnel.Control(t.Context(), api.TunnelControl{Size: &api.WindowSize{Columns: 100, Rows: 30}}))
	y.must(got.tunnel.Copy(t.Context(), api.StreamIn, strings.NewReader("typed")))

	for _, want := range []string{"size", "typed", ""} {
		m, err := agent.Receive(t.Context())
		y.must(err)

		if (m.Control != nil) != (want == "size") || m.Control == nil && string(m.Data) != want {
			t.Errorf("the agent got %+v, not %q", m, want)
		}
	}

	y.must(agent.Copy(t.Context(), api.StreamErr, strings.NewReader("oops")))
	y.must(agent.Control(t.Context(), api.TunnelControl{End: &api.TunnelEnd{Exit: 3}}))

	for _, want := range []string{"oops", ""} {
		m, err := got.tunnel.Receive(t.Context())
		y.must(err)

		if m.Stream != api.StreamErr || string(m.Data) != want {
			t.Errorf("the client got %+v, not %q", m, want)
		}
	}

	m, err := got.tunnel.Receive(t.Context())
	y.must(err)

	if m.Control == nil || m.Control.End == nil || m.Control.End.Exit != 3 {
		t.Errorf("the client got %+v, not the end", m)
	}

	var words []string

	eventually(t, "opening and closing are recorded", func() bool {
		page, err := y.admin().Events(t.Context(), api.EventFilter{Kind: yardmaster.EventTunnel, Page: api.Page{Limit: 10}})
		y.must(err)

		words = nil
		for _, e := range page.Events {
			words = append(words, e.Actor+" "+e.Reason)
		}

		return len(words) == 2
	})

	slices.Sort(words)

	const what = ` a command ("top") in rank 0 of run j1.1 on node n`
	if !strings.HasPrefix(words[0], "ada closed"+what+" after ") || !strings.HasSuffix(words[0], "exit code 3") ||
		words[1] != "ada opened"+what {
		t.Errorf("the record has %q", words)
	}
}

func TestATunnelThatIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n := y.join("n")
	n.listen()
	j, run := n.started(ada)
	shell := api.TunnelStart{Kind: api.TunnelExec}

	for name, tc := range map[string]struct {
		who   *api.Client
		start api.TunnelStart
		kind  fault.Kind
		code  string
	}{
		"of another's job": {bob, shell, fault.NotFound, "job_not_found"},
		"to no rank":       {ada, api.TunnelStart{Kind: api.TunnelExec, Rank: 5}, fault.NotFound, "rank_not_found"},
		"to no port":       {ada, api.TunnelStart{Kind: api.TunnelPort, Port: 70000}, fault.Invalid, "bad_tunnel"},
		"of no kind":       {ada, api.TunnelStart{Kind: "vpn"}, fault.Invalid, "bad_tunnel"},
		"with a long command": {
			ada, api.TunnelStart{Kind: api.TunnelExec, Command: []string{strings.Repeat("x", 40<<10)}}, fault.Invalid,
			"bad_tunnel",
		},
	} {
		got := <-opens(t, tc.who, j, tc.start)
		t.Run(name, func(t *testing.T) { wantFault(t, got.err, tc.kind, tc.code) })
	}

	// What the agent says is the answer.
	wait := opens(t, ada, j, shell)
	_, agent := n.asked()
	y.must(agent.Control(t.Context(), api.TunnelControl{Problem: &api.Problem{
		Kind: string(fault.Conflict), Code: "not_isolated", Detail: "no walls",
	}}))
	wantFault(t, (<-wait).err, fault.Conflict, "not_isolated")

	// An agent of an earlier version does not know tunnels.
	_, err := n.Report(t.Context(), api.Report{Capability: 15, Boot: "b", Seq: 99})
	y.must(err)
	wantFault(t, (<-opens(t, ada, j, shell)).err, fault.Conflict, "agent_outdated")

	n.ends(run, 0, 0)
	eventually(t, "the job has ended", func() bool {
		got := <-opens(t, ada, j, shell)
		var f *fault.Error

		return errors.As(got.err, &f) && f.Code == "job_state"
	})
}

// A tunnel ends at once, and says why, when its user may no longer use it.
func TestATunnelEndsWithTheAccessOfItsUser(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	text := y.token("ada", tenant.Researcher, tenant.ScopeAdmin)
	token, err := auth.Parse(text)
	y.must(err)

	ada := y.client(text)
	n := y.join("n")
	n.listen()
	j, _ := n.started(ada)
	client, agent := n.connected(ada, j)

	y.do(yardmaster.RevokeToken{Token: token.ID, By: "test"})
	wantFault(t, failure(t, client), fault.Unknown, "token_revoked")

	if _, err := agent.Receive(t.Context()); err == nil {
		t.Error("the agent's end of the tunnel is open")
	}
}

func TestATunnelEndsWithTheAgent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()
	j, _ := n.started(ada)

	client, agent := n.connected(ada, j)
	y.must(agent.Close())
	wantFault(t, failure(t, client), fault.Unavailable, "agent_lost")
}

// An agent that has taken over serves no tunnels of the one before, and the one before is cut off.
func TestATunnelEndsWhenAnotherAgentSpeaksForTheNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	first := y.join("n").process(fleet.Agent{Process: "p1", Machine: "m", Boot: "b", Folder: "f", Started: 1})
	y.must(first.heartbeat())
	first.listen()
	j, _ := first.started(ada)
	client, _ := first.connected(ada, j)

	second := first.copied(fleet.Agent{Process: "p2", Machine: "m", Boot: "b", Folder: "f", Started: 2})
	eventually(t, "the next process is admitted", func() bool {
		y.advance(time.Minute)
		return second.heartbeat() == nil
	})
	wantFault(t, failure(t, client), fault.Unavailable, "agent_lost")
}

func TestAnIdleTunnelIsClosed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.srv.tunnels.idle = time.Hour
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()
	j, _ := n.started(ada)
	client, agent := n.connected(ada, j)

	y.advance(50 * time.Minute)
	y.must(agent.Control(t.Context(), api.TunnelControl{Taken: 1}))

	if _, err := client.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The clock stands still unless it is advanced: as often as it takes until the server has seen it idle for an hour.
	ended := make(chan error, 1)
	go func() { ended <- failure(t, client) }()

	for {
		select {
		case err := <-ended:
			wantFault(t, err, fault.OverLimit, "tunnel_idle")
			return
		case <-time.After(time.Second):
			y.advance(2 * time.Minute)
			_ = n.report() // the node is not lost meanwhile
		}
	}
}

// Whoever sends faster than the other side takes waits, so nobody stores more than a window.
func TestATunnelDoesNotStoreWhatNobodyTakes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()
	j, _ := n.started(ada)
	client, agent := n.connected(ada, j)

	go func() { _, _ = client.Receive(t.Context()) }() // of what was taken

	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	source := &endless{}
	go func() { sent <- client.Copy(ctx, api.StreamIn, source) }()

	// The agent reads and says nothing of what was taken.
	for got := 0; got < api.TunnelWindow; {
		m, err := agent.Receive(t.Context())
		y.must(err)
		got += len(m.Data)
	}

	if _, err := receiveFor(agent, 300*time.Millisecond); err == nil {
		t.Error("more than a window was sent")
	}

	cancel()

	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("sending ended with %v", err)
	}
}

// endless is a source that has no end.
type endless struct{}

func (*endless) Read(buf []byte) (int, error) { return len(buf), nil }

// receiveFor waits for a message for some time, after which the tunnel is closed.
func receiveFor(t *api.Tunnel, d time.Duration) (api.TunnelMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()

	return t.Receive(ctx)
}

func TestTunnelsAreCounted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var leave []func()

	for range tunnelsEach {
		l, err := y.srv.takeTunnel("ada", "j1")
		y.must(err)
		leave = append(leave, l)
	}

	_, err := y.srv.takeTunnel("ada", "j2")
	wantFault(t, err, fault.OverLimit, "too_many_tunnels")
	_, err = y.srv.takeTunnel("bob", "j1")
	wantFault(t, err, fault.OverLimit, "too_many_tunnels")

	for _, l := range leave {
		l()
	}

	l, err := y.srv.takeTunnel("bob", "j1")
	y.must(err)
	l()
}
