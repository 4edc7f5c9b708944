package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/agent/inventory"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/share"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// gpuShares divides GPUs among ranks: it has a broker for each GPU that some share, as long as there are some. Ranks
// that an earlier agent process started are given their shares again; until then they run without.
type gpuShares struct {
	agent   *Agent
	library string // its file; "" if GPUs cannot be shared here
	mps     share.Daemons

	mu       sync.Mutex
	complete bool                     // all ranks are known, also those that an earlier agent process started
	gpus     map[string]*share.Broker // by UUID
	ranks    map[string]*sharingRank  // by name of the run directory
	// ended is what ranks have had that have ended, by the name under which their use is reported.
	ended map[string]*job.ShareUse
}

// sharingRank is a rank that shares a GPU.
type sharingRank struct {
	key
	uuid     string // of the GPU
	quiesced string // the order before which its processes were last disconnected
	// loose are its processes on the GPU that are not held back, and how often in a row they were seen; bypassed is how
	// many of them were seen often enough.
	loose    map[int]int
	bypassed int
}

func newGPUShares(a *Agent) *gpuShares {
	return &gpuShares{
		agent: a, mps: share.Daemons{Dir: a.cfg.Dir, Program: cmp.Or(a.cfg.MPSControl, "nvidia-cuda-mps-control")},
		gpus: map[string]*share.Broker{}, ranks: map[string]*sharingRank{}, ended: map[string]*job.ShareUse{},
	}
}

// install unpacks the library that programs are started with. Without one nothing is installed.
func (g *gpuShares) install() error {
	content := g.agent.cfg.ShareLibrary
	if len(content) == 0 {
		return nil
	}

	path, err := share.Install(g.agent.cfg.Dir, content)
	if err != nil {
		return err
	}

	// LD_PRELOAD separates libraries by these, and knows no way to quote them.
	if strings.ContainsAny(path, ": \t\n") {
		return fmt.Errorf("GPUs cannot be shared: the data directory has a colon or a space in its path, %s", path)
	}

	g.library = path

	return nil
}

// version names the library if this machine can share GPUs, "" if not.
func (g *gpuShares) version(gpus []fleet.GPU) string {
	if g.library == "" || !slices.ContainsFunc(gpus, func(gpu fleet.GPU) bool { return divisible(&gpu) }) {
		return ""
	}

	return share.Version(g.agent.cfg.ShareLibrary)
}

// divisible reports whether a GPU can be shared: one of NVIDIA's that exists.
func divisible(gpu *fleet.GPU) bool { return !gpu.Fake && strings.HasPrefix(gpu.UUID, uuidPrefix) }

// uuidPrefix is what the names of NVIDIA's GPUs begin with.
const uuidPrefix = "GPU-"

// libraryFor returns the library with which a rank must be started, "" if it has its GPUs to itself. Declared GPUs do
// not exist, and need not be divided.
func (g *gpuShares) libraryFor(s *rundir.Spec) (string, error) {
	if s.Launch.Share <= 0 || s.Fake {
		return "", nil
	}

	if g.library == "" || len(s.Devices) != 1 {
		return "", fault.New(fault.Invalid, "no_shares",
			"this node cannot give the job a share of a GPU: see trainyard doctor on it")
	}

	return g.library, nil
}

// Open gives a rank its share of a GPU.
func (g *gpuShares) Open(s rundir.Spec, folder string, user *sandbox.User) error {
	if len(s.Devices) != 1 {
		return fmt.Errorf("rank %s shares one GPU and has %d", s.Name(), len(s.Devices))
	}

	terms, err := termsOf(&s.Launch)
	if err != nil {
		return err
	}

	uuid := s.Devices[0]
	mode := share.Whole

	if s.MPS != "" {
		if err := g.mps.Use(context.Background(), uuid, s.Name()); err != nil {
			return err
		}

		mode = share.MPS
	}

	tenant := share.Job{
		ID: s.Name(), Folder: folder, UUID: uuid, Terms: terms, Cap: g.capOf(&s.Launch, uuid), UID: -1, GID: -1,
	}

	if user != nil {
		tenant.UID, tenant.GID = user.UID, user.GID
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	broker := g.gpus[uuid]
	if broker == nil {
		broker = share.New(share.Options{
			Clock: g.agent.clk, Log: g.agent.log.With("gpu", uuid), Tuning: share.DefaultTuning(), Denied: g.denied,
		})
		g.gpus[uuid] = broker
	}

	if err := broker.Add(tenant); err != nil {
		return errors.Join(err, g.closeIfUnused(uuid))
	}

	// All on this GPU share it in the same way. One in another way may be about to end.
	broker.Fix(mode)
	g.ranks[s.Name()] = &sharingRank{key: key{s.Run, s.Rank}, uuid: uuid}

	return nil
}

// End takes the share of a rank back.
func (g *gpuShares) End(s rundir.Spec) {
	g.endShare(s)

	if s.MPS != "" {
		g.tidyMPS()
	}
}

func (g *gpuShares) endShare(s rundir.Spec) {
	g.mu.Lock()
	defer g.mu.Unlock()

	rank := g.ranks[s.Name()]
	if rank == nil {
		return
	}

	g.ended[rank.key.name()] = g.usesOf(rank.uuid)[rank.key.name()]
	delete(g.ranks, s.Name())

	err := errors.Join(g.gpus[rank.uuid].Remove(s.Name()), g.closeIfUnused(rank.uuid))
	if err != nil {
		g.agent.log.Warn("cannot take back a share of a GPU", "run", s.Run, "rank", s.Rank, "error", err)
	}
}

// closeIfUnused ends the broker of a GPU that nobody shares any more. The caller holds mu.
func (g *gpuShares) closeIfUnused(uuid string) error {
	for _, rank := range g.ranks {
		if rank.uuid == uuid {
			return nil
		}
	}

	broker := g.gpus[uuid]
	delete(g.gpus, uuid)

	return broker.Close()
}

// close ends all brokers. Programs go on without shares until the next agent.
func (g *gpuShares) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()

	var errs []error
	for uuid, broker := range g.gpus {
		errs = append(errs, broker.Close())
		delete(g.gpus, uuid)
	}

	clear(g.ranks)

	return errors.Join(errs...)
}

// termsOf returns what a launch says about its share.
func termsOf(l *api.Launch) (share.Terms, error) {
	terms := share.Terms{Weight: l.Share, Limit: l.ShareLimit, Interactive: l.Input}

	switch l.ShareClass {
	case job.ShareGuaranteed:
		terms.Class = share.Guaranteed
	case job.ShareNormal, "":
		terms.Class = share.Normal
	case job.ShareOpportunistic:
		terms.Class = share.Opportunistic
	default:
		return terms, fault.New(fault.Invalid, "bad_share_class", "unknown share class %q", l.ShareClass)
	}

	return terms, nil
}

// capOf returns how many bytes of a GPU's memory a rank may have: what its launch says, or as large a part as its
// share. It is 0, for no cap, if that is unknown.
func (g *gpuShares) capOf(l *api.Launch, uuid string) uint64 {
	if l.ShareCap > 0 {
		return uint64(l.ShareCap)
	}

	for _, gpu := range g.agent.inventory().GPUs {
		if gpu.UUID == uuid {
			return uint64(l.Share * float64(gpu.Memory))
		}
	}

	return 0
}

// denied is called when a rank is refused memory. It is about to fail, or to make do with less.
func (g *gpuShares) denied(d share.Denial) {
	g.agent.log.Info("memory of a shared GPU refused", "rank", d.Job, "pid", d.PID, "bytes", d.Bytes, "used", d.Used,
		"cap", d.Cap, "free", d.Free)
}

// measure returns what each rank has had of the GPU that it shares, by the name under which its use is reported.
func (g *gpuShares) measure() map[string]*job.ShareUse {
	g.mu.Lock()
	defer g.mu.Unlock()

	found := map[string]*job.ShareUse{}
	for uuid := range g.gpus {
		maps.Copy(found, g.usesOf(uuid))
	}

	return found
}

// usesOf is measure for one GPU. The caller holds mu.
func (g *gpuShares) usesOf(uuid string) map[string]*job.ShareUse {
	broker := g.gpus[uuid]
	mode := broker.Mode()

	uses, err := broker.Uses()
	if err != nil { // of what one of them has made of its accounts
		g.agent.log.Warn("cannot read the memory accounts of a shared GPU", "gpu", uuid, "error", err)
	}

	found := map[string]*job.ShareUse{}

	for name, use := range uses {
		rank := g.ranks[name]
		if rank == nil {
			continue
		}

		if mode == share.MPS { // nobody sees which of them has the GPU when
			use.Held, use.Demanded, use.Entitled = 0, 0, 0
		}

		found[rank.key.name()] = &job.ShareUse{
			Mode: mode.String(),
			Held: use.Held.Seconds(), Demanded: use.Demanded.Seconds(), Entitled: use.Entitled.Seconds(),
			Memory: bounded(use.Memory.Used()), Cap: bounded(use.Memory.Cap), Denials: use.Denials,
			Bypassed: rank.bypassed,
		}
	}

	return found
}

// addEnded adds to what is reported of a rank that has ended what it had of the GPU that it shared.
func (g *gpuShares) addEnded(report *api.RankReport) {
	name := key{report.Run, report.Rank}.name()

	g.mu.Lock()
	had := g.ended[name]
	if rank := g.ranks[rundir.RankName(report.Run, report.Rank)]; rank != nil { // its end was heard of just now
		had = g.usesOf(rank.uuid)[name]
	}
	g.mu.Unlock()

	if had == nil || report.Use == nil {
		return
	}

	use := *report.Use
	use.Share = had
	report.Use = &use
}

// forget drops what is known of a rank that has ended.
func (g *gpuShares) forget(k key) {
	g.mu.Lock()
	defer g.mu.Unlock()

	delete(g.ended, k.name())
}

// bounded converts bytes of memory accounts, which programs may have spoilt.
func bounded(n uint64) int64 { return int64(min(n, 1<<50)) }

const (
	// quiesceAway is for how long processes stay away that are to be saved or suspended.
	quiesceAway = 30 * time.Second
	// quiesceLimit is how long to wait until they have gone. One that does not is saved with its connection.
	quiesceLimit = 2 * time.Second
)

// quiesce makes the processes of a rank close their connections before an order that stops them: a snapshot cannot hold
// a connection, and whoever is suspended must not have the GPU. The same order may be named again.
func (g *gpuShares) quiesce(ctx context.Context, k key, order string) {
	name := rundir.RankName(k.run, k.rank)

	g.mu.Lock()
	rank := g.ranks[name]
	if rank == nil || rank.quiesced == order {
		g.mu.Unlock()
		return
	}

	rank.quiesced = order
	broker := g.gpus[rank.uuid]
	g.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, quiesceLimit)
	defer cancel()

	if err := broker.Quiesce(ctx, name, quiesceAway); err != nil {
		g.agent.log.Warn("a program on a shared GPU keeps its connection", "run", k.run, "rank", k.rank, "error", err)
	}
}

// What is done about a rank that uses a shared GPU with processes that are not held back.
const (
	BypassWarn  = "warn"
	BypassEvict = "evict"
)

// bypassLooks is how many looks in a row must find a process on a shared GPU without a connection. One that has just
// begun, or whose agent was just started again, connects within two seconds.
const bypassLooks = 3

func checkBypass(rule string) error {
	if rule != "" && rule != BypassWarn && rule != BypassEvict {
		return fault.New(fault.Invalid, "bad_setting", "gpu-bypass must be %s or %s, got %.40q", BypassWarn, BypassEvict,
			rule).WithField("gpu-bypass")
	}

	return nil
}

// observe compares the processes that the driver sees on shared GPUs with those that are held back. A process of a
// rank without a connection has dropped the library, or was never loaded with it.
func (g *gpuShares) observe(found *inventory.Found) {
	g.mu.Lock()
	defer g.mu.Unlock()

	for uuid, broker := range g.gpus {
		i := slices.IndexFunc(found.Inventory.GPUs, func(gpu fleet.GPU) bool { return gpu.UUID == uuid })
		if i < 0 {
			continue
		}

		used, owner := map[int]uint64{}, map[int]string{}

		for _, p := range found.Processes {
			if p.GPU == found.Inventory.GPUs[i].Index {
				used[p.PID], owner[p.PID] = uint64(p.Memory), p.Rank
			}
		}

		strangers, err := broker.Observe(used)
		if err != nil { // of what one of them has made of its accounts
			g.agent.log.Warn("cannot correct the memory accounts of a shared GPU", "gpu", uuid, "error", err)
		}

		for name, rank := range g.ranks {
			if rank.uuid == uuid {
				g.observeRank(name, rank, strangers, owner)
			}
		}
	}
}

// observeRank finds the processes of a rank among those that are not held back. The caller holds mu.
func (g *gpuShares) observeRank(name string, rank *sharingRank, strangers []int, owner map[int]string) {
	var group map[int]bool // what is in its cgroup belongs to it, whatever it says
	if target, err := g.agent.rt.Target(rank.run, rank.rank); err == nil {
		group = target.Group.Procs()
	}

	loose, count := map[int]int{}, 0

	for _, pid := range strangers {
		if owner[pid] != name && !group[pid] {
			continue
		}

		loose[pid] = rank.loose[pid] + 1
		if loose[pid] >= bypassLooks {
			count++
		}
	}

	before := rank.bypassed
	rank.loose, rank.bypassed = loose, count

	if count > before {
		g.bypassing(rank)
	}
}

// bypassing deals with a rank that has processes on a shared GPU that are not held back. The caller holds mu.
func (g *gpuShares) bypassing(rank *sharingRank) {
	g.agent.log.Warn("processes use a shared GPU without the library that keeps their share", "run", rank.run,
		"rank", rank.rank, "processes", rank.bypassed, "rule", cmp.Or(g.agent.cfg.GPUBypass, BypassWarn))

	if g.agent.cfg.GPUBypass != BypassEvict {
		return
	}

	reason := fmt.Sprintf("%d of its processes used its shared GPU without the library that keeps its share "+
		"(LD_PRELOAD was dropped, or a program is linked statically), which this node does not allow", rank.bypassed)

	if err := g.agent.rt.Evict(rank.run, rank.rank, reason); err != nil {
		g.agent.log.Error("cannot evict a run from a shared GPU", "run", rank.run, "rank", rank.rank, "error", err)
		rank.bypassed = 0 // the next look tries again
	}
}
