package moves_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// The fault matrix: a training runs on a provisioned machine, and the yard brings it home as soon as the local node is
// open. At each step of that move each fault happens, and its cause is repaired a moment later. Whatever happens, the
// training ends as if nobody had disturbed it: it has continued where it was, or from its last good checkpoint, never
// twice at once, and the machine is released only when it runs elsewhere or has ended.

// step is a step of a move.
type step string

// The steps, in their order.
const (
	asked      step = "asked to save"
	saving     step = "saving"
	uploading  step = "uploading"
	catalogued step = "catalogued"
	stopped    step = "stopped"
	ordered    step = "ordered on the target"
	restoring  step = "restoring"
	started    step = "started"
	released   step = "old node released"
)

var steps = []step{asked, saving, uploading, catalogued, stopped, ordered, restoring, started, released}

// beforeTheStop are the steps in which a move can still be abandoned.
var beforeTheStop = steps[:3]

// fault is something that happens.
type fault struct {
	name   string
	strike func(*trip, step) (repair func())
	// abandons says that the move is abandoned if this happens before the job was stopped for it.
	abandons bool
	// most is how many steps may be repeated at most.
	most int
	// ends says that the provisioned machine is gone with its disk if this happens before the job was stopped there.
	// What was not stored by then is lost, too.
	ends bool
}

// mostAt is how many steps may be repeated at most if the fault strikes at a step.
func (f *fault) mostAt(at step) int {
	if f.ends && beforeOrder(at) {
		return every + slack
	}

	return f.most
}

// beforeOrder reports whether a step of a move is one on the old node.
func beforeOrder(at step) bool { return slices.Index(steps, at) < slices.Index(steps, ordered) }

var faults = []fault{
	{name: "agent killed", strike: (*trip).killAgent, most: every, ends: true},
	{name: "server killed", strike: (*trip).killServer, most: every},
	{name: "network cut", strike: (*trip).cutNetwork, most: every},
	{name: "disk full", strike: (*trip).fillDisk, most: every},
	{name: "blob store down", strike: (*trip).breakStore, abandons: true, most: every},
	{name: "blob store slow", strike: (*trip).slowNetwork, most: every},
	{name: "corrupt upload", strike: (*trip).corruptStore, most: 2*every + slack},
	{name: "target dies", strike: (*trip).killTarget, most: every},
}

// slack is how many steps a training may take while a checkpoint is saved and stored.
const slack = 2 * every

// brief are the cells that every test run tries; make test-moves tries all.
var brief = []string{"asked to save/blob store down", "stopped/server killed"}

// parallel bounds how many yards there are at a time: more would only wait for each other.
var parallel = make(chan struct{}, 3)

func TestFaultsDuringAMove(t *testing.T) {
	t.Parallel()

	for _, at := range steps {
		for _, f := range faults {
			name := string(at) + "/" + f.name
			if *killsFlag == 0 && !slices.Contains(brief, name) {
				continue
			}

			t.Run(name, func(t *testing.T) {
				t.Parallel()
				parallel <- struct{}{}
				defer func() { <-parallel }()

				tr := newTrip(t)
				tr.reach(at)
				repair := f.strike(tr, at)
				time.Sleep(time.Second)
				tr.checkAbandoned(at, f)
				repair()
				tr.arrive(at, f)
			})
		}
	}
}

// trip is a training that moves from a provisioned machine home.
type trip struct {
	*yard
	net   *relay
	cloud *yardtest.Cloud
	disk  string // of the agent at home
	of    *program
	job   id.Job
}

// home is the local node.
const home = "home"

// tripSeed is the seed of all trips, so that one undisturbed training is enough.
const tripSeed = 7

// undisturbedTrip is the undisturbed training.
var undisturbedTrip struct {
	once sync.Once
	printed
}

func newTrip(t *testing.T) *trip {
	t.Helper()
	tr := &trip{yard: &yard{t: t, nodes: []string{home}}, of: plainPython(), disk: smalldisk.Mount(t, 96)}
	tr.of.find(t)
	tr.of.steps = 400
	undisturbedTrip.once.Do(func() { undisturbedTrip.printed = tr.of.undisturbed(t, tripSeed) })

	folder, err := yardtest.NewFolder("moves-")
	tr.must(err)

	tr.cloud = &yardtest.Cloud{
		Folder: folder, Boot: "100ms", Provision: "{idle: 1s, margin: 200ms, list_every: 300ms, settle: 1s}",
		Offers: "{type: big, gpu: A100, gpu_memory: 80GB, gpus: 1, cpus: 2, memory: 4GB, hourly: $9.00}",
	}
	flags, err := tr.cloud.Flags()
	tr.must(err)

	address, err := yardtest.FreeAddress(t.Context())
	tr.must(err)

	tr.net = newRelay(t, address)
	tr.Yard = &yardtest.Yard{Address: address}
	tr.open(folder, append(flags, "--advertise", "https://"+tr.net.address(), "--save-wait", "3s", "--policy",
		"rules:relocate_left=1s:relocate_stay=1s:relocate_margin=0:relocate_delay=1000")...)
	tr.must(os.Symlink(tr.disk, tr.AgentData(home)))
	tr.joinHome()
	tr.begin()

	return tr
}

// joinHome starts the agent at home, which reaches the server through the relay, and cordons its node.
func (tr *trip) joinHome() {
	tr.t.Helper()
	server := tr.Address
	tr.Address = tr.net.address()
	tr.join("--min-free-disk", "4MB")
	tr.Address = server
	call(tr.yard, "cordon", func(ctx context.Context) (api.Node, error) { return tr.client.CordonNode(ctx, home) })
}

// restartHome starts the agent at home again.
func (tr *trip) restartHome() {
	tr.t.Helper()
	server := tr.Address
	tr.Address = tr.net.address()
	tr.startAgent(home, "--min-free-disk", "4MB")
	tr.Address = server
}

// begin submits the training and waits until it runs on a machine and has saved a checkpoint.
func (tr *trip) begin() {
	tr.t.Helper()
	program, err := filepath.Abs("program.py")
	tr.must(err)

	file := fmt.Sprintf("name: training\nrun: exec %s %s %s %s %d %d %d >> %s/$TRAINYARD_RUN 2>&1\nretry: 20\ngrace: 60s\n"+
		"resources: {gpus: 1, cpus: 0.1, memory: 64MB}\ncheckpoint: {dir: ckpt, every: 1h}\nobjective: cost\nexpect: 10h\n",
		tr.of.python, program, filepath.Dir(tr.of.path), tr.shared, tr.of.steps, every, tripSeed, tr.shared)
	reply := call(tr.yard, "submit", func(ctx context.Context) (api.SubmitReply, error) {
		return tr.client.Submit(ctx, api.SubmitRequest{File: file}, "training")
	})

	tr.job = reply.Jobs[0].ID
	tr.awaitEvent("checkpoint.stored")
}

// events returns the events of the training, oldest first.
func (tr *trip) events() []api.Event {
	tr.t.Helper()
	page := call(tr.yard, "read the feed", func(ctx context.Context) (api.EventPage, error) {
		return tr.client.Events(ctx, api.EventFilter{Page: api.Page{Limit: 500, Cursor: "0"}})
	})

	return page.Events
}

func (tr *trip) has(kind string, of ...id.Run) bool {
	return slices.ContainsFunc(tr.events(), func(e api.Event) bool {
		return e.Kind == kind && (len(of) == 0 || e.Run == of[0])
	})
}

// count counts the events of a kind.
func (tr *trip) count(kind string) int {
	n := 0
	for _, e := range tr.events() {
		if e.Kind == kind {
			n++
		}
	}

	return n
}

func (tr *trip) awaitEvent(kind string, of ...id.Run) {
	tr.t.Helper()
	tr.await(kind, func() bool { return tr.has(kind, of...) })
}

// marks counts the files of a name that the program has left.
func (tr *trip) marks(prefix string) int {
	tr.t.Helper()
	found, err := filepath.Glob(filepath.Join(tr.shared, prefix+"-*"))
	tr.must(err)

	return len(found)
}

// reach opens the node at home and waits until the move has come to a step.
func (tr *trip) reach(at step) {
	tr.t.Helper()
	next := id.NewRun(tr.job, 2)
	call(tr.yard, "uncordon", func(ctx context.Context) (api.Node, error) { return tr.client.UncordonNode(ctx, home) })
	tr.awaitEvent("run.save_requested")
	begun, done := tr.marks("saving"), tr.marks("saved")

	switch at {
	case asked:
	case saving:
		tr.await("a save", func() bool { return tr.marks("saving") > begun })
	case uploading:
		tr.await("a checkpoint", func() bool { return tr.marks("saved") > done })
	case catalogued:
		tr.awaitEvent("run.stopping")
	case stopped:
		tr.await("the end of the program", func() bool { return tr.marks("stopping") > 0 })
	case ordered:
		tr.awaitEvent("job.starting", next)
	case restoring:
		tr.await("the restore", func() bool {
			d := tr.yard.job(tr.job)
			return len(d.Runs) > 1 && d.Runs[1].State != job.RunOrdered
		})
	case started:
		tr.awaitEvent("job.running", next)
	case released:
		tr.awaitEvent("lease.releasing")
	}
}

// arrive waits for the end of the training and checks that all went as promised.
func (tr *trip) arrive(at step, f fault) {
	tr.t.Helper()
	tr.await("the end of the training", func() bool { return tr.yard.job(tr.job).State.Final() })

	d := tr.yard.job(tr.job)
	if d.State != job.Succeeded {
		tr.t.Fatalf("the training %s: %s", d.State, d.Reason)
	}

	if text, err := os.ReadFile(filepath.Join(tr.shared, "two-runs-at-once")); err == nil {
		tr.t.Errorf("run %s found another run of its job alive", text)
	}

	var nodes []id.Node
	for _, r := range d.Runs {
		nodes = append(nodes, r.Ranks[0].Node)
	}

	tr.compare(tr.t, tr.job, nodes, f.mostAt(at), undisturbedTrip.printed)
	tr.checkRelease()
	tr.t.Logf("%v; %s", nodes, &tr.account)
}

// checkRelease checks that a machine was released only after a later run ran or the training had ended, or because it
// was idle: its run had ended, and what follows took longer to start than machines are kept.
func (tr *trip) checkRelease() {
	tr.t.Helper()
	first := id.NewRun(tr.job, 1)
	left := false

	for _, e := range tr.events() {
		switch {
		case e.Kind == "job.running" && e.Run != first, e.Kind == "job.succeeded":
			return
		case e.Kind == "run.ended" && e.Run == first:
			left = true
		case e.Kind == "lease.releasing" && left && strings.HasPrefix(e.Reason, "idle for "):
		case e.Kind == "lease.releasing":
			tr.t.Errorf("machine released before the training ran elsewhere: %s", e.Reason)
			return
		}
	}
}

// checkAbandoned checks that a fault that makes a move pointless before its job was stopped leaves the job alone.
func (tr *trip) checkAbandoned(at step, f fault) {
	tr.t.Helper()

	if !f.abandons || !slices.Contains(beforeTheStop, at) {
		return
	}

	// The checkpoint may be stored just before the fault strikes: then the move rightly goes on.
	tr.await("the move to be abandoned", func() bool { return tr.has("run.move_abandoned") || tr.has("run.stopping") })

	if tr.has("run.stopping") && (tr.has("run.move_abandoned") || tr.count("checkpoint.stored") < 2) {
		tr.t.Error("the job was stopped although the move was abandoned or its checkpoint was not stored")
	}
}

// killAgent kills the agent whose turn it is. With its agent a machine of the process provider ends, disk and all.
func (tr *trip) killAgent(at step) func() {
	tr.t.Helper()

	if beforeOrder(at) {
		found, err := yardtest.Processes(tr.cloud.Dir())
		tr.must(err)

		for _, p := range found {
			if strings.Contains(p.Command, "agent join") || strings.Contains(p.Command, "agent run") {
				tr.must(syscall.Kill(p.PID, syscall.SIGKILL))
			}
		}

		return func() {}
	}

	tr.must(tr.agents[home].Kill())

	return tr.restartHome
}

func (tr *trip) killServer(step) func() {
	tr.t.Helper()
	tr.must(tr.Server().Kill())

	return func() {
		tr.must(tr.StartServer())
		tr.must(tr.AwaitReady(tr.t.Context()))
	}
}

func (tr *trip) cutNetwork(step) func() {
	tr.net.set(true, 0)

	return func() { tr.net.set(false, 0) }
}

func (tr *trip) slowNetwork(step) func() {
	tr.net.set(false, 10*time.Millisecond)

	return func() { tr.net.set(false, 0) }
}

func (tr *trip) fillDisk(step) func() {
	tr.t.Helper()
	return smalldisk.Fill(tr.t, tr.disk)
}

// chunks is the folder of the server's chunks.
func (tr *trip) chunks() string { return filepath.Join(tr.Folder, "server", "blobs", "chunks") }

// breakStore takes the folder of the blobs away, like a volume that is no longer mounted.
func (tr *trip) breakStore(step) func() {
	tr.t.Helper()
	blobs := filepath.Join(tr.Folder, "server", "blobs")
	aside := blobs + ".aside"
	tr.must(os.Rename(blobs, aside))

	return func() {
		tr.must(os.RemoveAll(blobs)) // what was written to where it would be mounted
		tr.must(os.Rename(aside, blobs))
	}
}

// corruptStore changes a byte of the chunk that was stored last.
func (tr *trip) corruptStore(step) func() {
	tr.t.Helper()
	newest, at := "", time.Time{}
	tr.must(filepath.WalkDir(tr.chunks(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		if info, err := e.Info(); err == nil && info.ModTime().After(at) {
			newest, at = path, info.ModTime()
		}

		return nil
	}))

	text, err := os.ReadFile(newest)
	tr.must(err)
	text[len(text)/2] ^= 1
	tr.must(os.Chmod(newest, 0o600))
	tr.must(os.WriteFile(newest, text, 0o600))

	return func() {}
}

// killTarget kills everything at home, as the death of the machine would. It is repaired and starts again.
func (tr *trip) killTarget(step) func() {
	tr.t.Helper()
	tr.must(yardtest.KillAll(tr.AgentData(home)))
	<-tr.agents[home].Gone()

	return tr.restartHome
}
