package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/store/storetest/pgtest"
	"trainyard/test/chaos/evidence"
	"trainyard/test/netlab"
	"trainyard/test/yardtest"
)

// The times of the yards. Their ratios are those of the defaults, as far as a busy machine allows.
const (
	reportEvery  = 250 * time.Millisecond
	suspectAfter = 2 * time.Second
	lostAfter    = 12 * time.Second
	beyond       = lostAfter + 8*time.Second // surely lost, and its jobs started elsewhere
)

// patience bounds every wait for what must happen. It is far longer than anything takes, also on a busy machine.
const patience = 3 * time.Minute

// The columns of the table.
const (
	twice   = "twice"
	lost    = "lost"
	stuck   = "stuck"
	logs    = "log"
	state   = "shown state"
	harness = "test itself"
)

var columns = []string{twice, lost, stuck, logs, state}

// problem is a broken promise.
type problem struct{ column, text string }

// world is a yard that is broken.
type world struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // it lives as long as the row
	row    row
	store  string
	folder string
	shared string // folder that the jobs share
	lab    *netlab.Lab
	yard   *yardtest.Yard
	second *yardtest.Yard // the second server, if there is one
	db     *pgtest.Server
	agents map[string]*yardtest.Process
	token  string // by which the agents joined
	load   *load
	mounts []string

	missing error // PostgreSQL is not installed

	mu       sync.Mutex
	problems []problem
	gone     []string // nodes that do not come back
	thaws    []thaw
}

// thaw is the moment when all processes of a node went on after a time in which they were frozen.
type thaw struct {
	host string // its address
	at   time.Duration
}

// nodeNames are the nodes of every yard.
var nodeNames = []string{"n1", "n2", "n3"}

func newWorld(t *testing.T, r row, store string) *world {
	t.Helper()

	folder, err := yardtest.NewFolder("chaos-")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute+r.lasts)
	t.Cleanup(cancel)

	w := &world{
		t: t, ctx: ctx, row: r, store: store, folder: folder, shared: filepath.Join(folder, "shared"),
		agents: map[string]*yardtest.Process{},
	}
	w.load = newLoad(w)
	t.Cleanup(w.clear)

	return w
}

// perform opens the yard, breaks it, heals it and checks it.
func (w *world) perform() {
	done := make(chan struct{})

	// must leaves the goroutine.
	go func() {
		defer close(done)

		w.open()
		w.load.begin()
		w.row.play(w)
		w.load.finish()
		w.check()
	}()

	<-done
	w.load.halt()
}

// must ends the row if the test itself is broken.
func (w *world) must(err error) {
	if err != nil {
		w.report(harness, "%v", err)
		runtime.Goexit()
	}
}

// report notes a broken promise.
func (w *world) report(column, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.problems = append(w.problems, problem{column, fmt.Sprintf(format, args...)})
}

func (w *world) found() []problem {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Clone(w.problems)
}

// cell says in a word how the row held.
func (w *world) cell(column string) string {
	n := 0
	for _, p := range w.found() {
		if p.column == harness {
			return "–"
		}

		if p.column == column {
			n++
		}
	}

	if n > 0 {
		return fmt.Sprintf("**%d**", n)
	}

	return "no"
}

// open starts the yard for the first time.
func (w *world) open() {
	hosts := slices.Concat([]string{"s1"}, nodeNames)
	if w.row.standby {
		hosts = append(hosts, "s2")
	}

	if w.store == postgres {
		hosts = append(hosts, "db")
	}

	var err error
	w.lab, err = netlab.New(hosts...)
	w.must(err)
	w.must(errors.Join(os.Chmod(w.folder, 0o711), os.Mkdir(w.shared, 0o700))) // PostgreSQL goes through it

	for host, size := range w.row.disks {
		w.must(w.mount(w.data(host), size))
	}

	w.yard = &yardtest.Yard{
		Binary: w.binary("s1"), Folder: w.folder, Address: w.host("s1").Address + ":7443",
	}
	w.yard.Flags = w.serverFlags(w.yard.Address)

	if w.store == postgres {
		w.startDatabase()

		_, err := w.db.NewDatabase("yard")
		w.must(err)

		w.yard.Store = w.db.NetworkURL("yard")
	}

	w.must(w.host("s1").Do(func() error { return w.yard.Open(w.ctx) }))
	w.must(w.yard.LogIn(w.ctx))
	w.token, err = w.yard.JoinToken(w.ctx, 2*len(nodeNames))
	w.must(err)

	if w.row.standby {
		w.openSecond()
	}

	for _, name := range nodeNames {
		w.startAgent(name)
	}

	for _, name := range nodeNames {
		w.must(w.yard.AwaitAgent(w.ctx, name))
	}
}

// serverFlags are those of a server at an address.
func (w *world) serverFlags(address string) []string {
	flags := []string{
		"--rate", "0", "--report-every", reportEvery.String(), "--retry-wait", "100ms",
		"--suspect-after", suspectAfter.String(), "--lost-after", lostAfter.String(),
	}

	if w.row.standby {
		flags = append(flags, "--advertise", "https://"+address)
	}

	return append(flags, w.row.flags...)
}

// clear ends all that is left of the yard, and keeps its folder if the test failed.
func (w *world) clear() {
	err := yardtest.KillAll(w.folder)
	if w.db != nil {
		err = errors.Join(err, w.db.Stop())
	}

	for _, m := range w.mounts {
		err = errors.Join(err, unix.Unmount(m, unix.MNT_DETACH))
	}

	if w.lab != nil {
		err = errors.Join(err, w.lab.Close())
	}

	if !w.t.Failed() && !*keepFlag {
		err = errors.Join(err, os.RemoveAll(w.folder))
	}

	if err != nil {
		w.t.Errorf("clean up: %v", err)
	}

	if w.t.Failed() {
		w.t.Logf("all of the yard is kept in %s", w.folder)
		w.t.Logf("end of the server's log:\n%s", yardtest.Tail(filepath.Join(w.folder, "server.log"), 15))
	}
}

func (w *world) host(name string) *netlab.Host { return w.lab.Host(name) }

// data is the data folder of the process on a host.
func (w *world) data(host string) string {
	switch host {
	case "s1":
		return filepath.Join(w.folder, "server")
	default:
		return filepath.Join(w.folder, host)
	}
}

// mount makes a small disk.
func (w *world) mount(path string, megabytes int) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}

	if err := unix.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", megabytes)); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}

	w.mounts = append(w.mounts, path)

	return nil
}

func (w *world) startServer() {
	w.yard.Binary = w.binary("s1")
	w.must(w.host("s1").Do(w.yard.StartServer))
}

func (w *world) awaitServer() {
	if err := w.yard.AwaitReady(w.ctx); err != nil {
		w.report(stuck, "%v", err)
	}
}

// binary is that of a host. Each has its own, so that each can have a clock of its own.
func (w *world) binary(host string) string {
	path := filepath.Join(w.folder, "bin", host, "trainyard")
	if _, err := os.Stat(path); err == nil {
		return path
	}

	w.must(os.MkdirAll(filepath.Dir(path), 0o700))
	w.must(os.Link(filepath.Join(binaries, "trainyard"), path))

	return path
}

// startAgent starts an agent, which does not start itself again if it is killed.
func (w *world) startAgent(name string) {
	w.yard.Binary = w.binary(name)
	w.must(w.host(name).Do(func() (err error) {
		w.agents[name], err = w.yard.StartAgent(name, w.token, agentFlags...)
		return err
	}))
}

// startAgentIn starts an agent under a name on a host, with a data folder other than the host's usual one.
func (w *world) startAgentIn(host, data, name string) (p *yardtest.Process) {
	args := []string{"agent", "join", "--isolation", "none", w.yard.URL(), "--data", data, "--name", name,
		"--token", w.token}
	args = append(args, agentFlags...)
	cmd := exec.CommandContext(context.Background(), w.binary(host), args...)
	w.must(w.host(host).Do(func() (err error) {
		p, err = yardtest.Start(cmd, data+".log")
		return err
	}))

	return p
}

// agentFlags make small nodes, so that each has some jobs. Their disks are smaller than the space that an agent
// usually wants to be free.
var agentFlags = []string{"--cpus", "3", "--fake-gpus", "none", "--probe", "off", "--min-free-disk", "1MB",
	"--mix-users", "yes"}

func (w *world) startDatabase() {
	dir := filepath.Join(w.folder, "pg")
	w.must(os.MkdirAll(dir, 0o700))

	// After a kill the server's other processes need a moment until they notice.
	var err error
	for range 50 {
		err = w.host("db").Do(func() (err error) {
			w.db, err = pgtest.StartOn(w.host("db").Address, dir, false)
			return err
		})
		if err == nil {
			return
		}

		if errors.Is(err, pgtest.ErrMissing) {
			break
		}

		w.sleep(200 * time.Millisecond)
	}

	if errors.Is(err, pgtest.ErrMissing) {
		w.missing = err
	}

	w.must(err)
}

// sleep lets a fault last.
func (w *world) sleep(d time.Duration) {
	select {
	case <-w.ctx.Done():
		w.must(w.ctx.Err())
	case <-time.After(d):
	}
}

// until waits for a condition and reports whether it came; ask returns what is still missing, or nothing.
func (w *world) until(column, what string, ask func() string) bool {
	missing := ""
	for end := time.Now().Add(patience); time.Now().Before(end); w.sleep(100 * time.Millisecond) {
		missing = ask()
		if missing == "" {
			return true
		}
	}

	w.report(column, "waited for %s: %s", what, missing)

	return false
}

// processes returns what the jobs noted so far.
func (w *world) processes() []*evidence.Process {
	all, err := evidence.Read(w.shared)
	w.must(err)

	return all
}

// on returns the newest process of each long job that is on a host.
func (w *world) on(host string) []*evidence.Process {
	newest := map[string]*evidence.Process{}
	for _, p := range w.processes() {
		newest[p.Job] = p
	}

	var there []*evidence.Process
	for _, p := range newest {
		if p.Host == w.host(host).Address && !p.Over() && strings.HasPrefix(p.Job, "long") {
			there = append(there, p)
		}
	}

	return there
}

// victim returns the node with the most long jobs.
func (w *world) victim() string {
	return slices.MaxFunc(nodeNames, func(a, b string) int { return len(w.on(a)) - len(w.on(b)) })
}

// awaitElsewhere waits until each of the processes has a successor.
func (w *world) awaitElsewhere(old []*evidence.Process) {
	w.until(stuck, "the start of the lost jobs elsewhere", func() string {
		all := w.processes()
		for _, p := range old {
			if !slices.ContainsFunc(all, func(q *evidence.Process) bool { return q.Job == p.Job && q.Begun > p.Begun }) {
				return p.Job + " has not started again"
			}
		}

		return ""
	})
}

// awaitTicks waits until the processes have noted something more.
func (w *world) awaitTicks(old []*evidence.Process) {
	w.until(stuck, "signs of life", func() string {
		all := w.processes()
		for _, p := range old {
			i := slices.IndexFunc(all, func(q *evidence.Process) bool { return q.PID == p.PID && q.Begun == p.Begun })
			if i < 0 || all[i].Last <= p.Last {
				return p.String() + " does nothing"
			}
		}

		return ""
	})
}

// sameProcesses reports those that were replaced although nothing was wrong with them.
func (w *world) sameProcesses(old []*evidence.Process) {
	all := w.processes()
	for _, p := range old {
		for _, q := range all {
			if q.Job == p.Job && q.Begun > p.Begun {
				w.report(lost, "%s was given up for %s", p, q)
			}
		}
	}
}

// awaitNode waits until a node is shown in one of the states.
func (w *world) awaitNode(name string, states ...string) {
	w.until(state, "node "+name+" "+strings.Join(states, " or "), func() string {
		n, err := w.node(name)
		if err != nil {
			return err.Error()
		}

		if !slices.Contains(states, n.State) {
			return "it is " + n.State + " (" + n.Reason + ")"
		}

		return ""
	})
}

// node asks the yard for a node.
func (w *world) node(name string) (api.Node, error) {
	return call(w.load, func(ctx context.Context, c *api.Client) (api.Node, error) { return c.Node(ctx, id.Node(name)) })
}

// ready are the states of a node that takes jobs.
var ready = []string{"idle", "running"}

// breakLink breaks the link of a host.
func (w *world) breakLink(host string, rules ...netlab.Rule) { w.must(w.host(host).Break(rules...)) }

// heal heals the link of a host.
func (w *world) heal(host string) { w.must(w.host(host).Heal()) }

// The kinds of processes on a node.
const (
	anAgent      = "agent"
	aSupervisor  = "supervisor"
	aProgram     = "program"
	supervisorIn = " supervise "
)

// pids returns the processes of some kinds on a node.
func (w *world) pids(node string, kinds ...string) []int {
	found, err := yardtest.Processes(w.data(node))
	w.must(err)

	var pids []int
	for _, p := range found {
		is := aProgram

		switch {
		case p.PID == w.agents[node].PID():
			is = anAgent
		case strings.Contains(p.Command, supervisorIn):
			is = aSupervisor
		}

		if slices.Contains(kinds, is) {
			pids = append(pids, p.PID)
		}
	}

	return pids
}

// signal sends a signal to processes.
func (w *world) signal(sig syscall.Signal, pids ...int) {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			w.must(fmt.Errorf("send %s to process %d: %w", sig, pid, err))
		}
	}
}

// fill fills the disk of a host, keeps it full when something there is removed, and returns how to free it.
func (w *world) fill(host string) (free func()) {
	path := filepath.Join(w.data(host), "filler")
	f, err := os.Create(path)
	w.must(err)
	w.must(topUp(f))

	var keeper sync.WaitGroup

	stop := make(chan struct{})

	keeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}

			if err := topUp(f); err != nil {
				w.report(harness, "keep the disk of %s full: %v", host, err)
				return
			}
		}
	})

	return func() {
		close(stop)
		keeper.Wait()
		w.must(errors.Join(f.Close(), os.Remove(path)))
	}
}

// topUp writes to a file until the disk is full.
func topUp(f *os.File) error {
	for _, size := range []int{1 << 20, 1 << 12, 1} { // what is left is less than the smallest write
		for {
			if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				return fmt.Errorf("fill a disk: %w", err)
			}
		}
	}

	return nil
}
