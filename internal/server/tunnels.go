package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

// A tunnel lets a person into a running job: a command, a shell, a port or files. The person and the agent of the node
// each connect to the server, which passes their messages on, one at a time in each direction: whoever sends faster
// than the other side takes waits. docs/adr/0050-tunnels.md has the rest.

const (
	tunnelsEach   = 128  // of one user
	tunnelsOfJob  = 128  // into one job
	tunnelsOfNode = 256  // to one node
	tunnelsAtAll  = 1024 // of all users

	// tunnelIdle is how long a tunnel may be open while nothing goes through it.
	tunnelIdle = 4 * time.Hour
	// tunnelLook is how often that is looked at, and whether this server still leads.
	tunnelLook = time.Second
	// tunnelGrace is how long the last words of a tunnel may take.
	tunnelGrace = 5 * time.Second
	// startWait is how long a client may take to say what a tunnel is for.
	startWait = 30 * time.Second
)

// tunnelLimits bound how many tunnels are open at the same time.
type tunnelLimits struct {
	users, jobs, nodes *httpapi.Slots
	idle               time.Duration
}

func newTunnelLimits() tunnelLimits {
	const code, things = "too_many_tunnels", "tunnels"

	return tunnelLimits{
		users: httpapi.NewSlots(tunnelsEach, tunnelsAtAll, code, things),
		jobs:  httpapi.NewSlots(tunnelsOfJob, 0, code, things+" to a job"),
		nodes: httpapi.NewSlots(tunnelsOfNode, 0, code, things+" to a node"),
		idle:  tunnelIdle,
	}
}

// tunnelDescription is for those who write clients of their own.
const tunnelDescription = `The first message of the client is text, the JSON {"start": ...} that says what the tunnel is
for: {"kind": "exec", "command": [...], "terminal": {"term", "columns", "rows"}}, without a command for a shell;
{"kind": "port", "port"}; {"kind": "get", "path"} or {"kind": "put", "path"}, for a tar stream; each with a "rank".
The answer is {"started": true} or {"problem": ...}. Then binary messages are data: their first byte is 0 for input, 1
for output and 2 for errors, and one that has no other byte is the end of that stream. Text messages are {"size":
{"columns", "rows"}} and {"signal": "INT"} of the client. For it are {"taken": N}, the bytes of input that the job has
taken, of which at most 1 MiB may be outstanding, and at last {"end": {"exit", "reason"}} or {"problem": ...}.`

func (s *Server) tunnelRoutes() {
	op := s.op("open-tunnel", http.MethodGet, "/api/v1/jobs/{job}/tunnel",
		"Open a tunnel to a running job, by WebSocket: a command, a shell, a port or files", "jobs")
	op.Description = tunnelDescription
	s.router.Plain(op, admitted, s.openTunnel)
}

// openTunnel lets a person into a running job.
func (s *Server) openTunnel(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()

	j, err := s.readJob(ctx, r.PathValue("job"))
	if err == nil {
		err = allowJob(ctx, "enter jobs", &j)
	}

	if err == nil {
		err = mayEnter(ctx, &j)
	}

	if err != nil {
		return err
	}

	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return fault.New(fault.Conflict, "upgrade_required", "a tunnel needs a WebSocket").
			WithRemedy("use trainyard exec, shell, forward or cp")
	}

	run, err := s.runToEnter(ctx, &j)
	if err != nil {
		return err
	}

	leave, err := s.takeTunnel(callerOf(ctx).User, j.ID)
	if err != nil {
		return err
	}

	defer leave()

	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil // it has been answered
	}

	t := &relay{s: s, client: api.NewTunnel(conn), who: callerOf(ctx), job: &j, run: &run}
	defer func() { _ = t.client.Close() }()

	ctx, stop := s.lasting(ctx)
	defer stop()

	t.serve(ctx)

	return nil
}

// mayEnter refuses to let somebody else into a job with values that only its owner may read: whoever is in it can.
func mayEnter(ctx context.Context, j *job.Job) error {
	if callerOf(ctx).User == j.Owner || len(j.Spec.Secrets) == 0 && len(j.Spec.Env) == 0 {
		return nil
	}

	return fault.New(fault.Denied, "not_allowed",
		"permission denied: only %s can enter job %s, which has env or secrets", j.Owner, j.ID)
}

// runToEnter returns the run of a job that has one now.
func (s *Server) runToEnter(ctx context.Context, j *job.Job) (job.Run, error) {
	if s.Demo {
		return job.Run{}, fault.New(fault.Conflict, "simulated",
			"the jobs of a demo yard are simulated and cannot be entered")
	}

	run, err := s.runOf(ctx, j, "")
	if err != nil {
		return run, err
	}

	if j.State.Final() || run.State == job.RunEnded || run.State == "" {
		return run, fault.New(fault.Conflict, "job_state", "job %s does not run: it is %s", j.ID, j.State).
			WithRemedy("files that it has left: trainyard fetch %s", j.ID)
	}

	return run, nil
}

// takeTunnel counts a tunnel of a user into a job.
func (s *Server) takeTunnel(user id.User, j id.Job) (leave func(), err error) {
	ofUser, err := s.tunnels.users.Take(string(user))
	if err != nil {
		return nil, err
	}

	ofJob, err := s.tunnels.jobs.Take(string(j))
	if err != nil {
		ofUser()
		return nil, err
	}

	return func() { ofUser(); ofJob() }, nil
}

// relay passes the messages of one tunnel on.
type relay struct {
	s      *Server
	client *api.Tunnel
	agent  *api.Tunnel
	who    caller
	job    *job.Job
	run    *job.Run
	start  api.TunnelStart
	node   id.Node

	passed atomic.Int64 // messages, to see whether it is idle
	in     atomic.Int64 // bytes to the job
	out    atomic.Int64 // bytes from it

	once sync.Once
	over chan struct{} // closed when end is set
	end  ending
}

// ending is how a tunnel ended.
type ending struct {
	words string // for the audit record
	err   error  // that the client is told; nil if the agent or the client has ended it
}

// serve opens the other end of the tunnel and passes messages on until it ends.
func (t *relay) serve(ctx context.Context) {
	if err := t.begin(ctx); err != nil {
		t.refuse(ctx, err)
		return
	}

	leave, err := t.s.tunnels.nodes.Take(string(t.node))
	if err != nil {
		t.refuse(ctx, err)
		return
	}

	defer leave()

	agent, closeAgent, err := t.s.agents.OpenTunnel(ctx, t.node, api.TunnelRequest{
		Run: t.run.ID, Start: t.start, Shared: t.s.Personal,
	})
	if err != nil {
		t.refuse(ctx, err)
		return
	}

	defer closeAgent()

	if err := t.note(ctx, "opened "+t.what()); err != nil {
		t.refuse(ctx, err)
		return
	}

	began := t.s.Clock.Now()
	t.agent, t.over = agent, make(chan struct{})

	go t.passDown() //nolint:gosec // G118: see there why it uses no context of the request
	go t.passUp()   //nolint:gosec // likewise

	t.watch(ctx)
	t.s.Log.InfoContext(ctx, "tunnel closed", "job", t.job.ID, "user", t.who.User, "kind", t.start.Kind, "node", t.node,
		"in", t.in.Load(), "out", t.out.Load(), "end", t.end.words)

	if t.end.err != nil {
		t.tell(t.end.err)
	}

	closeAgent()

	words := fmt.Sprintf("closed %s after %s: %s", t.what(), humanize.Duration(t.s.Clock.Now().Sub(began)), t.end.words)

	// The token may be gone, and the client; the record is written all the same.
	if err := t.note(context.WithoutCancel(ctx), words); err != nil {
		t.s.Log.ErrorContext(ctx, "the end of a tunnel could not be recorded", "job", t.job.ID, "error", err)
	}

	_ = t.client.Finish() // the client may be gone
}

// begin reads what the tunnel is for, and finds the node.
func (t *relay) begin(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()

	first, err := t.client.Receive(wait)
	if err != nil || first.Control == nil || first.Control.Start == nil {
		return fault.New(fault.Invalid, "bad_tunnel", "the first message of a tunnel must say what it is for").WithCause(err)
	}

	t.start = *first.Control.Start
	if err := t.start.Check(); err != nil {
		return err
	}

	if t.start.Rank >= len(t.run.Ranks) {
		return fault.New(fault.NotFound, "rank_not_found", "run %s has %s; rank %d not found", t.run.ID,
			humanize.Count(len(t.run.Ranks), "rank"), t.start.Rank).WithField("rank")
	}

	t.node = t.run.Ranks[t.start.Rank].Node

	return nil
}

// what describes the tunnel for the audit record, without what goes through it.
func (t *relay) what() string {
	where := fmt.Sprintf("rank %d of run %s on node %s", t.start.Rank, t.run.ID, t.node)

	switch t.start.Kind {
	case api.TunnelPort:
		return fmt.Sprintf("a connection to port %d of %s", t.start.Port, where)
	case api.TunnelGet:
		return "a copy of files from " + where
	case api.TunnelPut:
		return "a copy of files to " + where
	case api.TunnelExec:
	}

	if len(t.start.Command) == 0 {
		return "a shell in " + where
	}

	// The name of the program alone: arguments may be passwords.
	return fmt.Sprintf("a command (%.40q) in %s", path.Base(t.start.Command[0]), where)
}

// note puts an entry into the audit record. Connections to ports are counted: a browser makes many.
func (t *relay) note(ctx context.Context, words string) error {
	if t.start.Kind == api.TunnelPort {
		if strings.HasPrefix(words, "opened ") {
			t.s.access.add(accessKey{
				Origin: originOf(ctx), kind: yardmaster.EventTunnel, code: t.what(), owner: t.job.Owner, job: t.job.ID,
			}, 1, "")
		}

		return nil
	}

	_, err := t.s.do(ctx, yardmaster.NoteAccess{Calls: []yardmaster.Access{{
		Origin: originOf(ctx), Kind: yardmaster.EventTunnel, Owner: t.job.Owner, Job: t.job.ID, Node: t.node, Count: 1,
		Reason: words,
	}}})

	return err
}

// refuse tells the client why there is no tunnel.
func (t *relay) refuse(ctx context.Context, err error) {
	if k := fault.KindOf(err); k == fault.Internal || k == fault.Unavailable {
		t.s.Log.WarnContext(ctx, "a tunnel could not be opened", "job", t.job.ID, "error", err)
	}

	t.tell(err)
	_ = t.client.Finish() // the client may be gone
}

// tell sends the client an error. One that takes nothing any more does not hold the server up.
func (t *relay) tell(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tunnelGrace)
	defer cancel()

	_ = t.client.Control(ctx, api.TunnelControl{Problem: httpapi.ToProblem(err)})
}

// finish ends the tunnel; the first reason counts.
func (t *relay) finish(words string, err error) {
	t.once.Do(func() {
		t.end = ending{words, err}
		close(t.over)
	})
}

// watch waits until the tunnel has ended, or must.
func (t *relay) watch(ctx context.Context) {
	var last int64
	since := t.s.Clock.Now()

	for {
		select {
		case <-t.over:
			return
		default:
		}

		switch clock.Wait(ctx, tunnelLook, t.over) {
		case clock.Woken:
			return
		case clock.Ended:
			t.finishWith(context.Cause(ctx))
			return
		case clock.Passed:
		}

		if err := t.s.Loop.Held(); err != nil { // what was revoked meanwhile is not known here
			t.finishWith(err)
			return
		}

		now := t.s.Clock.Now()
		if n := t.passed.Load(); n != last {
			last, since = n, now
		}

		if now.Sub(since) >= t.s.tunnels.idle {
			t.finishWith(fault.New(fault.OverLimit, "tunnel_idle", "the tunnel was idle for %s, which is the limit",
				humanize.Duration(t.s.tunnels.idle)).WithRemedy("open it again"))
			return
		}
	}
}

// finishWith ends the tunnel for a reason that the client is told.
func (t *relay) finishWith(err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Unavailable, "stopping", "the server is stopping").WithRemedy("open it again")
	}

	t.finish(f.Message, f)
}

// mayPass reports whether the person may still use the tunnel; nothing that comes after a token was revoked is passed.
func (t *relay) mayPass() bool {
	if _, err := t.s.stillMay(t.who); err != nil {
		t.finishWith(err)
		return false
	}

	return true
}

// passDown passes the messages of the agent on to the client. It uses no context of the request: one that ends would
// close the connection before the client is told why.
func (t *relay) passDown() {
	ctx := context.Background()

	for {
		m, err := t.agent.Receive(ctx)
		if err != nil {
			t.finish("the connection to the agent was lost", fault.New(fault.Unavailable, "agent_lost",
				"the connection to the agent of node %s was lost; what was started in the job has been ended", t.node).
				WithRemedy("open it again").WithCause(err))

			return
		}

		if !t.mayPass() {
			return
		}

		t.passed.Add(1)
		t.out.Add(int64(len(m.Data)))

		if err := t.client.Pass(ctx, m); err != nil {
			t.finish("the client has left", nil)
			return
		}

		if m.Control == nil {
			continue
		}

		switch {
		case m.Control.Problem != nil:
			t.finish(m.Control.Problem.Detail, nil)
			return
		case m.Control.End != nil:
			t.finish(endWords(m.Control.End), nil)
			return
		}
	}
}

func endWords(e *api.TunnelEnd) string {
	text := fmt.Sprintf("exit code %d", e.Exit)
	if e.Reason != "" {
		text += ", " + e.Reason
	}

	return text
}

// ofClient reports whether a message is one that clients send.
func ofClient(m *api.TunnelMessage) bool {
	if m.Control != nil {
		return m.Control.Size != nil || m.Control.Signal != ""
	}

	return m.Stream == api.StreamIn
}

// passUp passes the messages of the client on to the agent.
func (t *relay) passUp() {
	ctx := context.Background()

	for {
		m, err := t.client.Receive(ctx)
		if err != nil {
			t.finish("the client has left", nil)
			return
		}

		if !t.mayPass() {
			return
		}

		if !ofClient(&m) {
			t.finishWith(fault.New(fault.Invalid, "bad_tunnel", "the client of a tunnel sends input, sizes and signals only"))
			return
		}

		t.passed.Add(1)
		t.in.Add(int64(len(m.Data)))

		if err := t.agent.Pass(ctx, m); err != nil {
			return // the other direction says why
		}
	}
}
