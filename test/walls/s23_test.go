package walls_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// ganged is a job file that runs a shell script on two nodes.
func ganged(lines ...string) string {
	return "run: |\n  " + strings.Join(lines, "\n  ") + "\nresources: {nodes: 2, cpus: 0.5}\ngrace: 2s\n"
}

// TestS23_GangsSeeNothingOfEachOther has mallory look for the ranks of alice's gang from a gang of her own on the same
// nodes.
func TestS23_GangsSeeNothingOfEachOther(t *testing.T) {
	t.Parallel()
	needRoot(t)

	y := newYard(t)
	y.rootAgent(t, "north", "--isolation", "users", "--cpus", "2")
	y.rootAgent(t, "south", "--isolation", "users", "--cpus", "2")
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")

	victim := alice.submit(t, "env: {GOLD: treasure}\n"+ganged(
		"umask 0; echo treasure | tee f $HOME/f /tmp/f /dev/shm/f", "echo rank $NODE_RANK at $PWD with $TRAINYARD_HOSTFILE",
		"exec sleep 1000"))
	y.await(t, "both ranks of alice run", func() bool {
		out := alice.output(t, victim)
		return strings.Contains(out, "rank 0 at /") && strings.Contains(out, "rank 1 at /")
	})

	var files []string
	for line := range strings.Lines(alice.output(t, victim)) {
		if f := strings.Fields(line); len(f) == 6 && f[0] == "rank" {
			files = append(files, f[3]+"/f", f[5])
		}
	}

	agents := []string{filepath.Join(y.AgentData("north"), "agent"), filepath.Join(y.AgentData("south"), "agent")}
	out, d := mallory.reads(t, ganged(
		"cat "+strings.Join(files, " ")+" /tmp/f /dev/shm/f /proc/*/root/tmp/f /proc/*/cwd/f 2>/dev/null || true",
		"grep -al treasure /proc/*/environ /proc/*/cmdline 2>/dev/null || true",
		"ls -R "+strings.Join(agents, " ")+" 2>/dev/null | grep -a -e "+string(victim)+" -e start-request || true",
		"ps -e -o args= | grep 'sleep 100[0]' || true", "kill -9 -1 2>/dev/null || true", "echo the end of $NODE_RANK"))

	for _, bad := range []string{"treasure", "start-request", string(victim) + ".", "sleep 1000", " slots="} {
		if strings.Contains(out, bad) {
			t.Errorf("mallory's gang gave %q:\n%s", bad, out)
		}
	}

	if d.State != job.Succeeded || !strings.Contains(out, "the end of 0") || !strings.Contains(out, "the end of 1") {
		t.Errorf("the attack did not come to its end: %s (%s)\n%s", d.State, d.Reason, out)
	}

	for _, rank := range []string{"0", "1"} {
		if r := mallory.types(t, "exec", string(victim), "--rank", rank, "--", "true"); r.code == 0 {
			t.Errorf("mallory entered rank %s of alice: %s", rank, &r)
		}
	}

	if j, err := alice.Job(t.Context(), victim); err != nil || j.State != job.Running || j.Epoch != 1 {
		t.Errorf("alice's job is %s in run %d: %v", j.State, j.Epoch, err)
	}
}

// played is a node whose agent is this test.
type played struct {
	*api.Client
	t      *testing.T
	number uint64
	newest atomic.Pointer[api.Assignments]
}

// play makes a node that reports what the test wants, and follows what it is assigned.
func (y *yard) play(t *testing.T, name string) *played {
	t.Helper()
	identity := y.joinAlone(t, name, fleet.Inventory{
		Address: "127.0.0.1", Addresses: []string{"127.0.0.1"}, OS: "linux", Arch: "amd64", CPUs: 2000, Memory: 4 << 30,
	})
	p := &played{Client: api.NewClient(y.URL(), "", identity.TLS()), t: t}
	ctx, cancel := context.WithCancel(t.Context())

	t.Cleanup(func() {
		cancel()
		p.Close()
	})

	p.says()

	go func() {
		for ctx.Err() == nil {
			_ = p.Assignments(ctx, func(a api.Assignments) error { // which ends with the test
				p.newest.Store(&a)
				return nil
			})
		}
	}()

	return p
}

// says reports ranks. Its answer comes when the server has taken them.
func (p *played) says(ranks ...api.RankReport) {
	p.t.Helper()
	p.number++

	if _, err := p.Report(p.t.Context(), api.Report{
		Capability: api.Capability, Boot: "b", Seq: p.number, Ranks: ranks,
	}); err != nil {
		p.t.Fatal(err)
	}
}

// assigned returns what the node is assigned of a job, false if nothing is.
func (p *played) assigned(j id.Job) (api.Assignment, bool) {
	all := p.newest.Load()
	if all == nil {
		return api.Assignment{}, false
	}

	at := slices.IndexFunc(all.Runs, func(a api.Assignment) bool { return a.Job == j })
	if at < 0 {
		return api.Assignment{}, false
	}

	return all.Runs[at], true
}

// parrot listens where an agent would answer probes and, because it does not know the run, answers with what it is
// asked, and with what others answered.
func parrot(t *testing.T) (port int, asked *atomic.Int64) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })

	asked = new(atomic.Int64)

	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}

			go func() {
				defer func() { _ = conn.Close() }()

				if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					asked.Add(1)

					_, _ = io.WriteString(conn, line)
				}
			}()
		}
	}()

	at, _ := l.Addr().(*net.TCPAddr)

	return at.Port, asked
}

// TestS23_AStrangerDoesNotOpenTheBarrier has the owner of a node that has no part in alice's gang report that its
// ranks are ready and reach each other, and processes without part in it ask and answer probes.
func TestS23_AStrangerDoesNotOpenTheBarrier(t *testing.T) {
	t.Parallel()
	needRoot(t)

	y := newYard(t)
	y.rootAgent(t, "north", "--isolation", "users", "--cpus", "2")
	south := y.play(t, "south")
	alice := y.user(t, "alice")
	j := alice.submit(t, ganged("echo started $NODE_RANK"))
	run := id.NewRun(j, 1)
	var mine api.Assignment

	y.await(t, "alice's gang is assigned", func() (is bool) {
		south.says()
		mine, is = south.assigned(j)

		return is
	})

	theirs := 1 - mine.Rank
	port, asked := parrot(t)
	begins := func(ready bool) {
		south.says(api.RankReport{
			Run: run, UID: mine.Launch.UID, Rank: mine.Rank, State: job.RunPreparing, Ready: ready,
			Probe: &job.Probe{Port: port},
		})
	}

	y.await(t, "the agent of the other rank answers and asks", func() (is bool) {
		begins(false)
		mine, is = south.assigned(j)

		return is && len(mine.Peers) == 2 && mine.Peers[theirs] > 0 && asked.Load() > 0
	})

	// The stranger knows the run, and even its UID, but has none of its ranks.
	east := y.play(t, "east")
	for range 3 {
		for rank := range 2 {
			east.says(api.RankReport{
				Run: run, UID: mine.Launch.UID, Rank: rank, State: job.RunPreparing, Ready: true,
				Probe: &job.Probe{Port: port, Reached: []uint64{1, 1}},
			}, api.RankReport{Run: run, UID: mine.Launch.UID, Rank: rank, State: job.RunRunning})
		}

		begins(false)
	}

	// Who asks the agent without knowing the run gets no answer.
	for _, question := range []string{"trainyard\n", "trainyard " + strings.Repeat("0", 64) + "\n", "GET / HTTP/1.0\n"} {
		if got := asks(t, mine.Peers[theirs], question); got != "" {
			t.Errorf("the question %q was answered with %q", question, got)
		}
	}

	d, err := alice.Job(t.Context(), j)
	must(t, err)

	now, is := south.assigned(j)
	if !is || now.Start != nil || d.State != job.Starting || strings.Contains(alice.output(t, j), "started") {
		t.Fatalf("a stranger opened the barrier: the job is %s (%s), rank %d has %+v", d.State, d.Reason, mine.Rank,
			now.Start)
	}

	// The barrier opens when its own ranks are ready. That somebody answered at the port is not believed.
	y.await(t, "the barrier opens", func() bool {
		begins(true)
		now, is = south.assigned(j)

		return is && now.Start != nil
	})

	if want := fmt.Sprintf("did not reach rank %d", mine.Rank); !strings.Contains(now.Start.Remark, want) {
		t.Errorf("the remark is %q, want %q", now.Start.Remark, want)
	}

	y.await(t, "the other rank starts", func() bool {
		south.says(api.RankReport{Run: run, UID: mine.Launch.UID, Rank: mine.Rank, State: job.RunRunning})
		return strings.Contains(alice.output(t, j), "started "+strconv.Itoa(theirs))
	})
}

// asks sends a line to a port of this machine and returns what comes back.
func asks(t *testing.T, port int, line string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	must(t, err)

	defer func() { _ = conn.Close() }()

	must(t, conn.SetDeadline(time.Now().Add(patience)))

	_, err = io.WriteString(conn, line)
	must(t, err)

	text, _ := io.ReadAll(conn) // an answer that is cut off is none

	return string(text)
}
