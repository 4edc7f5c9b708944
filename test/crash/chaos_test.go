package crash_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/test/yardtest"
)

// agentNames are the two nodes of every yard.
var agentNames = []string{"north", "south"}

// jobUIDs are the user ids of jobs in containers on each of them.
var jobUIDs = map[string]string{"north": "313000-313099", "south": "313100-313199"}

// yard is a real yard that is tormented.
type yard struct {
	*yardtest.Yard
	scene
	shared string // folder that the jobs share
	book   string // where the jobs write to it: the folder itself, or the address of the recorder
	token  string // by which the agents joined
	agents map[string]*yardtest.Process
}

func newYard(t *testing.T, sc scene) *yard {
	t.Helper()
	folder, err := yardtest.NewFolder("crash-")
	if err != nil {
		t.Fatal(err)
	}

	y := &yard{scene: sc, shared: filepath.Join(folder, "shared"), agents: map[string]*yardtest.Process{}}
	y.Yard = &yardtest.Yard{Binary: filepath.Join(binaries, "trainyard"), Folder: folder, Store: sc.store, Flags: []string{
		"--rate", "0", "--report-every", "250ms", "--retry-wait", "50ms", "--suspect-after", "10m", "--lost-after", "20m",
	}}
	for _, sub := range []string{"locks", "meet", "go"} {
		if err := os.MkdirAll(filepath.Join(y.shared, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	t.Cleanup(func() { y.clear(t) })

	y.book = y.shared
	if y.engine != nil {
		y.book = startRecorder(t, y.shared).address()

		for _, uids := range jobUIDs {
			t.Cleanup(func() { yardtest.Unblock(uids) })
		}
	}

	return y
}

// open starts the yard for the first time: server, login, both agents.
func (y *yard) open(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	err := y.Open(ctx)
	if err == nil {
		err = y.LogIn(ctx)
	}

	if err == nil {
		y.token, err = y.JoinToken(ctx, len(agentNames))
	}

	if err != nil {
		t.Fatal(err)
	}

	for _, name := range agentNames {
		y.startAgent(t, name)
	}

	for _, name := range agentNames {
		if err := y.AwaitAgent(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
}

func (y *yard) startAgent(t *testing.T, name string) {
	t.Helper()

	var flags []string
	if y.engine != nil {
		flags = []string{
			"--isolation", "users", "--job-uids", jobUIDs[name], "--container-socket", y.engine.Socket,
			"--container-network", "host",
		}
	}

	p, err := y.StartAgent(name, y.token, flags...)
	if err != nil {
		t.Fatal(err)
	}

	y.agents[name] = p
}

// clear ends all that is left of the yard, and keeps its folder if the test failed.
func (y *yard) clear(t *testing.T) {
	t.Helper()

	if err := yardtest.KillAll(y.Folder); err != nil {
		t.Errorf("clean up: %v", err)
	}

	if !t.Failed() {
		if err := os.RemoveAll(y.Folder); err != nil {
			t.Errorf("clean up: %v", err)
		}

		return
	}

	t.Logf("seed %d; all of the yard is kept in %s", y.seed, y.Folder)
	t.Logf("end of the server's log:\n%s", yardtest.Tail(y.ServerLog(), 15))

	for _, name := range agentNames {
		t.Logf("end of the log of agent %s:\n%s", name, yardtest.Tail(y.AgentLog(name), 15))
	}
}

// torment kills and starts again as often as the scene says, and leaves
// everything running.
func (y *yard) torment(t *testing.T, rng *rand.Rand, l *load) {
	t.Helper()

	for range y.kills {
		if t.Failed() {
			t.FailNow()
		}

		y.awaitMoment(t, rng, l)

		if y.agent && rng.IntN(5) == 0 {
			y.restartAgent(t, agentNames[rng.IntN(len(agentNames))]) // and then the kill
		}

		server, agents := y.choose(rng)
		if server {
			y.kill(t, "server", y.Server())
		}

		for _, name := range agents {
			y.kill(t, "agent "+name, y.agents[name])
		}

		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}

		serverFirst := rng.IntN(2) == 0
		if server && serverFirst {
			y.startServer(t)
		}

		for _, name := range agents {
			y.startAgent(t, name)
		}

		if server && !serverFirst {
			y.startServer(t)
		}
	}

	if err := y.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// restartAgent asks an agent to end, which must leave its runs alone as well,
// and starts it again. One that was only just started may have no better answer
// than to be ended by the signal.
func (y *yard) restartAgent(t *testing.T, name string) {
	t.Helper()

	if _, err := y.agents[name].Stop(drainTime); err != nil {
		t.Errorf("agent %s does not end when asked to: %v", name, err)
	}

	y.startAgent(t, name)
}

func (y *yard) startServer(t *testing.T) {
	t.Helper()

	if err := y.StartServer(); err != nil {
		t.Fatal(err)
	}
}

// kill kills a process that must still be there: one that ended by itself is a
// defect of its own.
func (y *yard) kill(t *testing.T, what string, p *yardtest.Process) {
	t.Helper()

	select {
	case <-p.Gone():
		t.Fatalf("the %s ended by itself", what)
	default:
	}

	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// choose picks who is killed this time.
func (y *yard) choose(rng *rand.Rand) (server bool, agents []string) {
	if !y.agent {
		return true, nil
	}

	agents = []string{agentNames[rng.IntN(len(agentNames))]}
	if rng.IntN(4) == 0 {
		agents = agentNames
	}

	return y.server, agents
}

// awaitMoment waits for a point at which to kill: while everything still
// starts, right after something was acknowledged or ordered, or at any time.
func (y *yard) awaitMoment(t *testing.T, rng *rand.Rand, l *load) {
	t.Helper()
	kind, delay := rng.IntN(4), rng.IntN(500)
	if kind == 0 {
		time.Sleep(time.Duration(delay) * time.Millisecond / 8)
		return
	}

	if err := y.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	if kind > 1 {
		time.Sleep(time.Duration((50+delay)*y.pace) * time.Millisecond)
		return
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()

	moment := l.acked
	if !y.server {
		moment = l.watch.starting
	}

	drain(moment)

	select {
	case <-moment:
		time.Sleep(time.Duration(delay) * time.Millisecond / 50)
	case <-ctx.Done():
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// died reports whether the server or an agent has ended by itself.
func (y *yard) died(t *testing.T) bool {
	t.Helper()
	ended := func(what string, p *yardtest.Process) bool {
		select {
		case <-p.Gone():
			t.Errorf("the %s ended by itself", what)
			return true
		default:
			return false
		}
	}

	died := ended("server", y.Server())
	for name, p := range y.agents {
		died = ended("agent "+name, p) || died
	}

	return died
}
