// Package agent is the node side of Trainyard: it joins the server, carries out its
// assignments and delivers the state, output and metrics of the runs.
//
// It only dials out. The server sends the full set of ranks that this node is to run;
// the agent compares it with what the runtime has (reconcile.go), starts and stops
// ranks, and reports until the server has acknowledged every result and every byte of
// output. Everything it sends is idempotent, so a crash of either side, a lost
// connection or a lost reply needs no special handling. While the server is away the
// runs continue; the runtime stops them when the contact lease expires.
//
// Identity and state between starts are in identity.go and memory.go; the lease of a
// provisioned node is in nodelease.go, the notice that it is taken back in
// spot_notice.go; delivery is in report.go, upload_logs.go, upload_metrics.go,
// fetch_files.go, stage_data.go and save_checkpoints.go; people are let into runs in tunnels.go.
//
// The agent never decides what runs, never starts a rank twice, never starts one of an
// older epoch than it has seen of that job, and never stops a run because it restarts
// itself: the next agent adopts it. cmd/trainyard builds it, for `agent` and for `up`.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/agent/inventory"
	"trainyard/internal/agent/metrics/intake"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sampler"
	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/auth"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/contact"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/workdir"
)

// Runtime executes ranks on this machine; see package runtime.
type Runtime interface {
	Adopt() ([]rundir.Status, error)
	Start(ctx context.Context, s rundir.Spec) error
	Stop(run id.Run, rank int, mode job.StopMode) error
	RequestSave(run id.Run, rank, number int) error
	Suspend(run id.Run, rank int, order job.SuspendOrder) error
	Evict(run id.Run, rank int, reason string) error
	StartGang(run id.Run, rank int, start rundir.GangStart) error
	Forget(run id.Run, rank int) error
	SetAside(run id.Run, rank int) (string, error)
	List() []rundir.Status
	Watch() <-chan struct{}
	RenewContactLease(l contact.Lease, answered bool) error
	OpenLog(run id.Run, rank int, offset int64) (io.ReadCloser, int64, error)
	ProgressFile(run id.Run, rank int) (string, error)
	MetricSources(run id.Run, rank int) (runtime.MetricSources, error)
	Target(run id.Run, rank int) (sampler.Target, error)
	Visit(ctx context.Context, run id.Run, rank int, v runtime.Visit) (runtime.Visitor, error)
	DialPort(ctx context.Context, run id.Run, rank, port int, shared bool) (net.Conn, error)
	Limits() string
	Close() error
}

var _ Runtime = (*runtime.Runtime)(nil)

// Config is what an agent needs. Dir, NewRuntime, Log and Clock must be given,
// and Server and JoinToken the first time.
type Config struct {
	Dir       string // the data directory
	Server    string // address of the server, https://host:port; default: that of the last start
	JoinToken string // needed to join; ignored by a machine that has already joined this server
	Name      string // requested node name; default: the host name

	// NewRuntime opens the runtime. Its argument prepares ranks.
	NewRuntime func(runtime.Preparation) (Runtime, error)
	// Inventory scans the machine; default: package inventory.
	Inventory      func(context.Context) (inventory.Found, error)
	InventoryEvery time.Duration // 30 seconds if left out
	MetricsEvery   time.Duration // how often programs' metrics are looked for; 2 seconds if left out
	// CheckpointEvery is how often checkpoint directories are looked at, CheckpointRest for how long files of an unknown
	// layout must be unchanged before they count as complete, and CheckpointPatience how long the end of a rank is held
	// back while nothing of its last checkpoint moves; 2 seconds, 10 seconds and 10 minutes if left out.
	CheckpointEvery    time.Duration
	CheckpointRest     time.Duration
	CheckpointPatience time.Duration

	FakeGPUs    string          // declared GPUs, see inventory.ParseFake; NoGPUs for none, whatever is there
	Address     string          // how other nodes reach this one, or the network that has it; found out if left out
	Topology    string          // where the machine is, see fleet.CheckTopology; unknown if left out
	Labels      []string        // what jobs can ask for, see fleet.CheckLabels
	CPUs        job.CPUs        // declared, for machines that are played; found out if left out
	Memory      job.Bytes       // likewise
	Probe       string          // whether GPUs are measured at the start: ProbeAuto, also if left out, or ProbeOff
	ProbePython string          // measures them if it has PyTorch; python3 if left out
	CRIU        string          // name or path of CRIU, for snapshots; criu if left out
	Isolated    bool            // programs run as users of their own
	Containers  ContainerEngine // says whether jobs can run in containers; nothing is said if left out
	Version     string
	Metadata    string // whether jobs can reach the cloud's metadata service, as the inventory says it
	MixUsers    bool   // the operator allows jobs of several users at a time although nothing separates them

	// SDK is the wheel of the Python SDK, on the path of every program; none if left out.
	SDK SDK
	// ShareLibrary is the library with which GPUs are divided among jobs, native/gpushare; none are if left out.
	ShareLibrary []byte
	// MPSControl is the name or path of NVIDIA's program that starts MPS; nvidia-cuda-mps-control if left out.
	MPSControl string
	// GPUBypass is what is done about ranks that get around it: BypassWarn, also if left out, or BypassEvict.
	GPUBypass string

	StoreLimit job.Bytes // of the content store; 20GB if left out
	DataLimit  job.Bytes // of the datasets that are kept; as much as the disk has if left out
	// DataRoots are the directories below which datasets may be read from the file system; none if left out.
	DataRoots []string
	// DataHosts are hosts that datasets may be fetched from although their addresses are loopback, link-local or
	// metadata addresses; none if left out.
	DataHosts []string
	// Private are directories that datasets are never read from, besides Dir.
	Private []string
	// MinFree is how much of the disk with the data directory must be free for new jobs. Datasets that are
	// fetched and working directories that are kept leave twice that free.
	MinFree diskspace.Floor
	// Free measures a disk; default: package diskspace.
	Free func(dir string) (free, total job.Bytes, err error)
	// OnLeaseEnd is the command that shuts a provisioned node down when its lease has
	// expired; ExitOnLeaseEnd, or nothing, if it is enough that the agent exits.
	OnLeaseEnd string
	// SpotNotice is where the cloud gives notice that it takes this machine back: aws, gcp, azure or file=PATH; nothing
	// if it is not a spot instance.
	SpotNotice string
	// Moment is the clock of node leases and contact leases; default: that of the machine.
	Moment func() (cloud.Moment, error)
	// StopRunsOnExit stops all runs before Run returns and delivers their ends.
	// Otherwise they go on and the next agent adopts them.
	StopRunsOnExit bool

	Log     *slog.Logger
	Clock   clock.Clock
	Metrics prometheus.Registerer // nil for none
}

// Agent is the node side of Trainyard. Make it with New and run it once.
type Agent struct {
	cfg           Config
	log           *slog.Logger
	clk           clock.Clock
	process       fleet.Agent // says to the server which process this is
	fakeGPUs      []fleet.GPU
	machine       *inventory.Machine // nil if the configuration brings its own Inventory
	abilities     abilities          // which snapshots it can take
	containers    containers         // whether it runs jobs in containers
	environments  environments       // with what it makes Python environments
	identity      *auth.NodeIdentity
	client        atomic.Pointer[api.Client]
	servers       *servers
	rt            Runtime
	files         *files
	data          *data
	checkpoints   *savedCheckpoints
	outputs       *keptOutputs
	tunnels       *openTunnels
	probes        map[key]*gangProbe // of ranks that wait for others; the reconcile loop's own
	shared        sharedFolders
	gpuShares     *gpuShares
	contents      *workdir.Store
	leave         context.CancelCauseFunc // ends the agent because the server has refused it
	expired       atomic.Bool             // the server has refused the certificate as expired
	takesSilent   atomic.Bool             // the server takes from reports which ranks have printed nothing
	fence         *fence
	nodeLease     *nodeLease
	results       *results
	metrics       *metrics
	memory        memory                   // the report loop's own once it runs
	progressFiles map[id.Run]*progressFile // by runs whose first rank is here; the report loop's own
	intake        *intake.Intake           // nil if this machine has no loopback address to listen at
	sdk           string                   // the file of the Python SDK, "" if there is none
	curves        curves
	uses          uses
	activities    activities
	space         space
	clockOffset   *fleet.ClockOffset // that the last answer showed; nil if none did; the report loop's own
	reportSeq     uint64             // of the last report; Run's own, and the report loop's after that
	spotLook      spotLook           // nil if this machine is not taken back

	reconcileSoon chan struct{}
	reportSoon    chan struct{}
	reportLater   chan struct{} // what there is to report can wait a moment for more
	inventorySoon chan struct{} // look at the machine again
	renewSoon     chan struct{} // the server has refused the certificate as expired
	uploads       chan struct{} // a place for each upload at a time
	tunnelSlots   chan struct{} // and for each tunnel

	starting sync.Mutex          // held while a rank is given to the runtime
	closing  bool                // nothing is started any more; guarded by starting
	granted  *contact.Generation // of the newest grant, nil before the first one of this process; guarded by starting
	probe    *probe              // that measures the GPUs now, nil if none does; guarded by starting

	mu                    sync.Mutex
	assignments           assignments
	startedRanks          map[key]bool         // given to the runtime by this process
	uploaders             map[key]*logUploader // of every rank the runtime knows
	rankReports           []api.RankReport     // to report next
	acknowledgedRanks     []api.RankReport     // what the server has acknowledged
	latestScan            *inventory.Found     // newest inventory of the machine
	activity              string               // what the agent does beside running jobs
	scanGPUs              []int                // GPUs that were allocated to ranks at that scan
	acknowledgedInventory *fleet.Inventory     // what the server has, nil before the first report
	restream              func()               // ends the current stream so that a new one begins
	behindSince           time.Time            // since when the server has newer assignments than the stream delivered
	lastContact           time.Time            // last answer of the server
	contactSince          time.Time            // start of the current period of contact
	problems              map[string]string    // newest error by operation, see noteProblem
	metricsComplete       map[id.Run]bool      // runs that have ended and whose metrics are all delivered
	seen                  api.Seen             // of the yard's history
	setAside              []api.SetAsideRun    // to report
	reclaimAt             time.Time            // when the cloud takes this machine back, zero if no notice was given
}

// key names one rank of a run.
type key struct {
	run  id.Run
	rank int
}

// assignments is the newest set of assignments that was applied.
type assignments struct {
	known      bool
	server     string
	generation uint64
	ranks      map[key]api.Assignment
	// incarnation is that of the yard, zero if its server does not say.
	incarnation api.Incarnation
}

// identity names the generation of the assignments.
func (as assignments) identity() contact.Generation {
	return contact.Generation{Server: as.server, Number: as.generation}
}

// New checks the configuration and opens the data directory. It does not talk
// to anyone yet.
func New(cfg Config) (*Agent, error) {
	fake, err := declaredGPUs(cfg.FakeGPUs)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkProbe(cfg.Probe), checkBypass(cfg.GPUBypass)); err != nil {
		return nil, err
	}

	look, err := parseSpotNotice(cfg.SpotNotice)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}

	cfg.InventoryEvery = cmp.Or(cfg.InventoryEvery, 30*time.Second)
	cfg.MetricsEvery = cmp.Or(cfg.MetricsEvery, 2*time.Second)
	cfg.StoreLimit = cmp.Or(cfg.StoreLimit, 20<<30)

	if cfg.Free == nil {
		cfg.Free = diskspace.Free
	}

	a := &Agent{
		cfg:      cfg,
		log:      cfg.Log,
		clk:      cfg.Clock,
		fakeGPUs: fake,
		spotLook: look,
		reconcileSoon: make(
			chan struct{},
			1,
		),
		reportSoon:      make(chan struct{}, 1),
		reportLater:     make(chan struct{}, 1),
		inventorySoon:   make(chan struct{}, 1),
		renewSoon:       make(chan struct{}, 1),
		uploads:         make(chan struct{}, maxUploads),
		tunnelSlots:     make(chan struct{}, maxTunnels),
		tunnels:         &openTunnels{asked: map[string]bool{}},
		probes:          map[key]*gangProbe{},
		startedRanks:    map[key]bool{},
		uploaders:       map[key]*logUploader{},
		problems:        map[string]string{},
		progressFiles:   map[id.Run]*progressFile{},
		curves:          curves{runs: map[id.Run]*curve{}},
		metricsComplete: map[id.Run]bool{},
		space:           space{dir: cfg.Dir, floor: cfg.MinFree, free: cfg.Free},
	}

	a.memory, err = loadMemory(cfg.Dir)
	if err != nil {
		return nil, err
	}

	a.cfg.Server = cmp.Or(cfg.Server, a.memory.Server)
	if a.cfg.Server != a.memory.Server {
		a.memory.Server = "" // the server has moved: a connection that the old address refuses says nothing
	}

	if a.cfg.Server == "" {
		return nil, fault.New(fault.Invalid, "server_missing", "server address is missing").
			WithField("server").WithRemedy("write it as https://yard.example.org:7443")
	}

	if a.cfg.Inventory == nil {
		a.cfg.Inventory = a.scanMachine
		a.machine = inventory.Open(inventory.Options{
			DataDir: a.cfg.Dir, Server: a.cfg.Server, Address: a.cfg.Address, Version: a.cfg.Version,
			FakeGPUs: a.fakeGPUs, NoGPUs: a.cfg.FakeGPUs == NoGPUs, Python: a.cfg.ProbePython, Clock: a.clk,
		})
	}

	if a.cfg.Moment == nil {
		a.cfg.Moment = cloud.MomentOf
	}

	a.process, err = a.describeProcess()
	if err != nil {
		return nil, err
	}

	return a, nil
}

// scanMachine is the inventory of this machine.
func (a *Agent) scanMachine(ctx context.Context) (inventory.Found, error) {
	found, err := a.machine.Look(ctx, a.allocatedGPUsNow())
	a.applyDeclared(&found)

	if err == nil {
		found.Inventory.Snapshots = a.abilities.of(ctx, &a.cfg, found.Inventory.GPUs)
		found.Inventory.Containers = a.containers.look(ctx, a.cfg.Containers, a.clk.Now())
		found.Inventory.Environments = a.environments.look(ctx, a.cfg.Isolated, a.clk.Now())
	}

	return found, err
}

// Run joins if necessary, adopts the runs of an earlier agent, and works until ctx
// ends. It fails if the machine cannot join, its data cannot be read or the server refuses
// it as a copy of another agent; an unreachable server is not a failure.
func (a *Agent) Run(ctx context.Context) (err error) {
	if err := a.open(); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, a.close()) }()

	found, err := a.cfg.Inventory(ctx)
	if err != nil {
		return fmt.Errorf("take inventory: %w", err)
	}

	a.noteInventory(found, nil)
	a.noteProblem("inventory", errors.Join(found.Problems...))

	if err := a.join(ctx); err != nil {
		if !a.nodeLease.endedBy(err) && !a.nodeLease.expired() {
			return err
		}

		a.log.Warn("node lease has ended, cannot join", "error", err)
		a.shutDownMachine(ctx)

		return nil
	}

	ctx, a.leave = context.WithCancelCause(ctx)
	defer a.leave(nil)

	if err := a.awaitAdmission(ctx); err != nil || ctx.Err() != nil {
		return err
	}

	adopted, err := a.rt.Adopt()
	if err != nil {
		return fmt.Errorf("adopt runs: %w", err)
	}

	a.pruneIntake(adopted)
	a.gpuShares.adopted()
	a.log.Info("agent started", "node", a.identity.Node(), "server", a.cfg.Server, "adopted", len(adopted))

	// The loops outlive ctx for as long as the exit takes.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))

	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){a.reconcileLoop, a.streamLoop, a.reportLoop, a.inventoryLoop,
		a.renewLoop, a.curvesLoop, a.sweepLoop, a.spotLoop, a.probeLoop, a.useLoop, a.gpuUseLoop} {
		loops.Go(func() { loop(inner) })
	}

	over := a.awaitShutdown(ctx)
	refusal := refused(context.Cause(ctx))

	switch {
	case refusal != nil:
		// Its runs may belong to the agent that was admitted.
	case over:
		a.stopRuns(inner, nodeLeaseGrace)
	case a.cfg.StopRunsOnExit:
		a.stopRuns(inner, math.MaxInt64)
	}

	cancel()
	loops.Wait()
	a.tunnels.serving.Wait()
	a.endGangProbes()
	a.stopUploaders()
	a.outputs.stop()
	a.checkpoints.stop()

	if refusal != nil {
		a.log.Error("agent ends: the server has admitted another one", "node", a.identity.Node(), "error", refusal)
		return refusal
	}

	if over {
		a.shutDownMachine(ctx)
	}

	a.log.Info("agent stopped", "node", a.identity.Node())

	return nil
}

// open opens what lies in the data directory. The runtime comes first: it
// refuses a second agent on the same directory.
func (a *Agent) open() error {
	a.files = &files{agent: a}
	a.checkpoints = a.openCheckpoints()
	a.outputs = newKeptOutputs()
	a.gpuShares = newGPUShares(a)
	a.noteProblem("GPU sharing library", a.gpuShares.install())

	rt, err := a.cfg.NewRuntime(runtime.Preparation{
		Files: a.files.materialise, Restore: a.restore,
		Begin:    func(s rundir.Spec) error { return a.fence.recordBegin(key{s.Run, s.Rank}) },
		Endpoint: a.endpoint,
		Shares:   a.gpuShares,
	})
	if err != nil {
		return fmt.Errorf("open runtime: %w", err)
	}

	a.rt = rt
	a.contents, err = workdir.OpenStore(a.path("contents"), int64(a.cfg.StoreLimit), a.clk)
	if err != nil {
		return errors.Join(err, rt.Close())
	}

	a.data, err = a.openData()
	if err != nil {
		return errors.Join(err, rt.Close())
	}

	a.nodeLease, err = openNodeLease(a.path(cloud.DeadlineFile), a.cfg.Moment)
	if err != nil {
		a.noteProblem("node lease", err)
	}

	a.fence, err = a.openFence()
	if err != nil {
		return errors.Join(err, rt.Close())
	}

	a.seen = a.fence.seen()

	a.results, err = openResults(a.path("results"))
	if err != nil {
		return errors.Join(err, a.fence.close(), rt.Close())
	}

	a.metrics, err = a.register(a.cfg.Metrics)
	if err != nil {
		return errors.Join(err, a.fence.close(), rt.Close())
	}

	a.openIntake()
	a.noteProblem("Python SDK installation", a.placeSDK())

	return nil
}

func (a *Agent) openFence() (*fence, error) {
	now, err := a.moment()
	if err != nil {
		return nil, err
	}

	return openFence(atomicfile.OS{}, a.path("fence"), now.Boot)
}

func (a *Agent) close() error {
	if yard := a.client.Load(); yard != nil {
		yard.Close()
	}

	a.metrics.unregister()
	a.data.close()

	// The runtime first: what it prepares writes to the fence.
	return errors.Join(a.closeIntake(), a.closeMachine(), a.rt.Close(), a.gpuShares.close(), a.fence.close())
}

// notify wakes a loop. The channel holds one element: several notifications before the
// loop runs are one, because each run of a loop looks at everything.
func notify(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}

// pause waits for d, a wake or the end of ctx.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()

	select {
	case <-ctx.Done():
	case <-woken:
	}
}
