package moves_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// patience bounds every wait; it is far longer than anything takes.
const patience = 10 * time.Minute

// yard is a real yard whose parts are killed.
type yard struct {
	*yardtest.Yard
	t       *testing.T
	shared  string // to where trainings write what they print
	token   string
	nodes   []string // names of the agents that the test starts
	agents  map[string]*yardtest.Process
	client  *api.Client
	account account
}

// newYard starts a yard with three nodes.
func newYard(t *testing.T) *yard {
	t.Helper()
	folder, err := yardtest.NewFolder("moves-")
	if err != nil {
		t.Fatal(err)
	}

	y := &yard{t: t, nodes: []string{"east", "north", "west"}}
	y.open(folder)
	y.join()

	return y
}

// open starts the server.
func (y *yard) open(folder string, flags ...string) {
	y.t.Helper()
	y.shared, y.agents = filepath.Join(folder, "shared"), map[string]*yardtest.Process{}
	address := ""
	if y.Yard != nil {
		address = y.Address
	}

	y.Yard = &yardtest.Yard{
		Binary: filepath.Join(binaries, "trainyard"), Folder: folder, Address: address, Flags: append([]string{
			"--rate", "0", "--report-every", "200ms", "--retry-wait", "20ms", "--suspect-after", "30s", "--lost-after", "3m",
		}, flags...),
	}

	y.t.Cleanup(y.clear)

	ctx := y.t.Context()
	y.must(os.MkdirAll(y.shared, 0o700))
	y.must(y.Open(ctx))
	y.must(y.LogIn(ctx))

	var err error
	y.client, err = y.Client(y.Admin())
	y.must(err)
	y.t.Cleanup(y.client.Close)
}

// join starts the agents.
func (y *yard) join(flags ...string) {
	y.t.Helper()
	ctx := y.t.Context()

	var err error
	y.token, err = y.JoinToken(ctx, len(y.nodes))
	y.must(err)

	for _, name := range y.nodes {
		y.startAgent(name, flags...)
	}

	for _, name := range y.nodes {
		y.must(y.AwaitAgent(ctx, name))
	}
}

func (y *yard) must(err error) {
	y.t.Helper()

	if err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) startAgent(name string, flags ...string) {
	y.t.Helper()
	p, err := y.StartAgent(name, y.token, append([]string{"--fake-gpus", "1xA100:80GB", "--probe", "off"}, flags...)...)
	y.must(err)
	y.agents[name] = p
}

// clear ends all that is left of the yard, and keeps its folder if the test failed.
func (y *yard) clear() {
	if err := yardtest.KillAll(y.Folder); err != nil {
		y.t.Errorf("clean up: %v", err)
	}

	if !y.t.Failed() {
		if err := os.RemoveAll(y.Folder); err != nil {
			y.t.Errorf("clean up: %v", err)
		}

		return
	}

	y.t.Logf("all of the yard is kept in %s", y.Folder)
	y.t.Logf("end of the server's log:\n%s", yardtest.Tail(y.ServerLog(), 15))

	for _, name := range y.nodes {
		y.t.Logf("end of the log of agent %s:\n%s", name, yardtest.Tail(y.AgentLog(name), 15))
	}
}

// await asks again and again until the answer is true.
func (y *yard) await(what string, ok func() bool) {
	y.t.Helper()

	if !yardtest.Await(patience, ok) {
		y.t.Fatalf("waited in vain for: %s", what)
	}
}

// call makes a call to the server until it is answered: the server may be down for a moment.
func call[T any](y *yard, what string, fn func(context.Context) (T, error)) T {
	y.t.Helper()
	var reply T

	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		reply, err = fn(y.t.Context())
		if err == nil {
			return reply
		}
	}

	y.t.Fatalf("%s: %v", what, err)

	return reply
}

// job returns a job.
func (y *yard) job(j id.Job) api.JobDetail {
	y.t.Helper()
	return call(y, "read the job", func(ctx context.Context) (api.JobDetail, error) { return y.client.Job(ctx, j) })
}

// session is a training in a yard.
type session struct {
	*yard
	of   *program
	seed int
	job  id.Job
	hard map[kind]int // kills that count against what a job may suffer
}

// begin submits a training.
func (y *yard) begin(t *testing.T, of *program, rng *rand.Rand) *session {
	t.Helper()
	s := &session{yard: y, of: of, seed: 1 + rng.IntN(1_000_000), hard: map[kind]int{}}
	file := fmt.Sprintf("name: training\nrun: exec %s >> %s/$TRAINYARD_RUN 2>&1\nretry: 20\ngrace: 60s\n"+
		"resources: {gpus: 1, cpus: 0.1, memory: 64MB}\ncheckpoint: {dir: ckpt, every: 1m}\n",
		strings.Join(of.command(s.seed, "0.01"), " "), y.shared)

	key := fmt.Sprint("training ", s.seed)
	reply := call(y, "submit", func(ctx context.Context) (api.SubmitReply, error) {
		return y.client.Submit(ctx, api.SubmitRequest{File: file}, key)
	})
	s.job = reply.Jobs[0].ID

	return s
}

// finish lets a training end, and compares it with an undisturbed one.
func (s *session) finish() {
	s.t.Helper()
	s.openAll()
	s.await("the end of the training", func() bool { return s.yard.job(s.job).State.Final() })

	d := s.yard.job(s.job)
	if d.State != job.Succeeded {
		s.t.Fatalf("the training %s: %s", d.State, d.Reason)
	}

	var nodes []id.Node
	for _, r := range d.Runs {
		nodes = append(nodes, r.Ranks[0].Node)
	}

	s.compare(s.t, s.job, nodes, s.of.most, s.of.undisturbed(s.t, s.seed))
}

// openAll uncordons all nodes.
func (y *yard) openAll() {
	y.t.Helper()

	for _, name := range y.nodes {
		call(y, "uncordon", func(ctx context.Context) (api.Node, error) { return y.client.UncordonNode(ctx, id.Node(name)) })
	}
}

// openAfter uncordons all nodes if the training has waited for long: it avoids nodes on which it died for some minutes,
// and the one that is left may have been drained.
func (s *session) openAfter(began time.Time) {
	s.t.Helper()

	if time.Since(began) > 3*time.Second {
		s.openAll()
		time.Sleep(time.Second)
	}
}

// kind is a way to disturb a training.
type kind string

const (
	killProgram    kind = "program"
	killSupervisor kind = "supervisor"
	killAgent      kind = "agent"
	killMachine    kind = "machine" // agent, supervisor and program at once
	killServer     kind = "server"
	drainNode      kind = "drain"
)

// kinds are drawn from; a drain moves the training to another node, so there are as many drains as kills.
var kinds = []kind{
	drainNode, drainNode, drainNode, drainNode, drainNode,
	killProgram, killSupervisor, killAgent, killMachine, killServer,
}

// mostHard is how often the program of a job is killed in one of three ways. A job may suffer eight losses of its
// node, which two of them count as, before its owner is asked.
const mostHard = 3

// torment drains the nodes of a training and kills what it needs until it ends or has been hit by so many kills, and
// returns by how many.
func (s *session) torment(rng *rand.Rand, most int, tally map[kind]int) int {
	s.t.Helper()
	done := 0

	for done < most && s.awaitMoment(rng) {
		k := kinds[rng.IntN(len(kinds))]
		if (k == killProgram || k == killSupervisor || k == killMachine) && s.hard[k] == mostHard {
			k = killAgent
		}

		if s.disturb(k, rng) {
			tally[k]++
			s.hard[k]++

			if k != drainNode {
				done++
			}
		}
	}

	return done
}

// awaitMoment waits for a point at which to disturb: at once, so that the kill falls into a stop, an upload, a
// restore or a start, or when the training has come further. It reports false if the training has ended.
func (s *session) awaitMoment(rng *rand.Rand) bool {
	s.t.Helper()
	time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)

	d := s.yard.job(s.job)
	if rng.IntN(3) == 0 || d.State.Final() {
		return !d.State.Final()
	}

	more := 1 + rng.IntN(2*every)
	from := -1
	began := time.Now()

	s.await("progress", func() bool {
		d = s.yard.job(s.job)
		if d.State.Final() {
			return true
		}
		if d.State != job.Running {
			s.openAfter(began)
			return false
		}

		p := s.read(s.t, d.Runs[len(d.Runs)-1].ID)
		if from < 0 && p.started {
			from = p.first
		}

		return from >= 0 && p.last >= from+more
	})

	return !d.State.Final()
}

// disturb does one thing to a training, and reports whether there was something to do.
func (s *session) disturb(k kind, rng *rand.Rand) bool {
	s.t.Helper()
	d := s.yard.job(s.job)
	if len(d.Runs) == 0 || d.State.Final() {
		return false
	}

	node := string(d.Runs[len(d.Runs)-1].Ranks[0].Node)
	s.openAll() // a job avoids nodes on which it died: one that was drained before must not be the only one left

	switch k {
	case drainNode:
		call(s.yard, "drain", func(ctx context.Context) (api.Node, error) { return s.client.DrainNode(ctx, id.Node(node)) })
	case killServer:
		s.must(s.Server().Kill())
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		s.must(s.StartServer())
		s.must(s.AwaitReady(s.t.Context()))
	case killAgent:
		s.must(s.agents[node].Kill())
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		s.startAgent(node)
	case killMachine:
		s.must(yardtest.KillAll(s.AgentData(node)))
		<-s.agents[node].Gone()
		s.startAgent(node)
	case killProgram:
		return s.killProcess(node, s.of.path)
	case killSupervisor:
		return s.killProcess(node, " supervise ")
	}

	return true
}

// killProcess kills the process of a node whose command contains a text, if there is one.
func (s *session) killProcess(node, text string) bool {
	s.t.Helper()
	found, err := yardtest.Processes(s.AgentData(node))
	s.must(err)

	for _, p := range found {
		if strings.Contains(p.Command, text) && !strings.Contains(p.Command, "sh -c") {
			return syscall.Kill(p.PID, syscall.SIGKILL) == nil
		}
	}

	return false
}
