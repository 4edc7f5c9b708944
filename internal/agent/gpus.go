package agent

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"trainyard/internal/agent/inventory"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// Whether the GPUs of a machine are measured when its agent starts.
const (
	ProbeAuto = "auto" // where PyTorch is there to do it
	ProbeOff  = "off"
)

// maxForeign bounds how many processes a report names, by the contract.
const maxForeign = 1000

func checkProbe(probe string) error {
	if probe != "" && probe != ProbeAuto && probe != ProbeOff {
		return fault.New(fault.Invalid, "bad_setting", "probe must be %s or %s, got %.40q", ProbeAuto, ProbeOff, probe).
			WithField("probe")
	}

	return nil
}

// probe is a measurement of the GPUs that is under way.
type probe struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has left the GPUs
}

// probeLoop finds out how fast the GPUs are, if that is not known. The node takes jobs meanwhile: until then their
// speed is that of the table of GPU models. Programs and a measurement would disturb each other, so a start ends
// the measurement, and it begins again when no GPU is in use.
func (a *Agent) probeLoop(ctx context.Context) {
	if a.machine == nil || a.cfg.Probe == ProbeOff {
		return
	}

	for !a.probeGPUs(ctx) {
		if !clock.Sleep(ctx, a.cfg.InventoryEvery) {
			return
		}
	}
}

// probeGPUs measures the GPUs, and reports whether that is done with. GPUs on which somebody outside the yard works are
// left alone until the agent starts again.
func (a *Agent) probeGPUs(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	p := &probe{cancel: cancel, done: make(chan struct{})}
	if !a.beginProbe(p) {
		return false
	}

	count, err := a.machine.Probe(ctx, func() { a.setActivity("measuring its GPUs") })

	a.starting.Lock()
	a.probe = nil
	a.starting.Unlock()
	close(p.done)
	a.setActivity("")

	if ctx.Err() != nil {
		return false // a start has ended it
	}

	a.noteProblem("GPU probe", err)

	if count > 0 {
		a.log.Info("GPUs measured", "count", count)
		a.refreshInventory(ctx)
	}

	return true
}

// beginProbe lets a measurement begin, unless a rank has GPUs or is about to get some.
func (a *Agent) beginProbe(p *probe) bool {
	a.starting.Lock()
	defer a.starting.Unlock()

	a.mu.Lock()
	defer a.mu.Unlock()

	if !a.assignments.known || len(a.allocatedGPUs()) > 0 {
		return false
	}

	for _, rank := range a.assignments.ranks {
		if len(rank.Launch.GPUs) > 0 {
			return false
		}
	}

	a.probe = p

	return true
}

// endProbe ends a measurement, so that a rank can have the GPUs. The caller holds starting.
func (a *Agent) endProbe() {
	p := a.probe
	if p == nil {
		return
	}

	p.cancel()
	a.starting.Unlock()
	<-p.done
	a.starting.Lock()
}

// setActivity says what the agent does beside running jobs, for those who look at the node.
func (a *Agent) setActivity(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.activity = text
	if a.latestScan == nil || a.latestScan.Inventory.Activity == text {
		return
	}

	found := *a.latestScan
	found.Inventory.Activity = text
	a.latestScan = &found
	notify(a.reportSoon)
}

// inventoryLoop refreshes the inventory periodically and on request.
func (a *Agent) inventoryLoop(ctx context.Context) {
	for clock.Wait(ctx, a.cfg.InventoryEvery, a.inventorySoon) != clock.Ended {
		a.refreshInventory(ctx)
	}
}

func (a *Agent) refreshInventory(ctx context.Context) {
	had := a.allocatedGPUsNow()
	found, err := a.cfg.Inventory(ctx)

	if ctx.Err() != nil {
		return
	}

	if err == nil {
		a.shared.lookAll(ctx)
		a.noteInventory(found, had)
		a.gpuShares.observe(&found)
		a.gpuShares.tidyMPS()
	}

	a.noteProblem("inventory", errors.Join(append(found.Problems, err)...))
}

// isolation is what separates the jobs of different users here.
func (a *Agent) isolation() fleet.Isolation {
	if a.cfg.Isolated {
		return fleet.IsolationUsers
	}

	return fleet.IsolationNone
}

// noteInventory keeps what was found and reports it if it is new. had are the
// GPUs that ranks here had when the look began.
func (a *Agent) noteInventory(found inventory.Found, had []int) {
	found.Inventory.Limits = a.rt.Limits()
	found.Inventory.Shares = a.gpuShares.version(found.Inventory.GPUs)
	found.Inventory.MPS = found.Inventory.Shares != "" && a.gpuShares.noMPS() == nil
	found.Inventory.Isolation = a.isolation()
	found.Inventory.MixUsers = a.cfg.MixUsers
	found.Inventory.Metadata = a.cfg.Metadata
	found.Inventory.Shared = a.shared.list()
	a.mu.Lock()
	defer a.mu.Unlock()

	found.Inventory.Activity = a.activity
	a.scanGPUs = append(had, a.allocatedGPUs()...)
	if a.latestScan == nil || !reflect.DeepEqual(*a.latestScan, found) {
		a.latestScan = &found
		notify(a.reportSoon)
	}
}

// allocatedGPUs lists the GPUs that ranks here have. The caller holds mu.
func (a *Agent) allocatedGPUs() []int {
	var all []int
	for _, r := range a.rankReports {
		all = append(all, a.assignments.ranks[key{r.Run, r.Rank}].Launch.GPUs...)
	}

	return all
}

func (a *Agent) allocatedGPUsNow() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allocatedGPUs()
}

// foreignProcesses lists the GPUs that processes outside the yard use, and those
// processes as far as they can be seen. A GPU that a rank has stays that rank's,
// and one that it had at the newest look was in use by it; there only a process that
// is plainly not of a run is foreign. Before the assignments are known nothing
// can be told. The caller holds mu.
func (a *Agent) foreignProcesses() (gpus []int, procs []api.ForeignProcess) {
	if !a.assignments.known {
		return nil, nil
	}

	held := a.allocatedGPUs()
	ours := slices.Concat(held, a.scanGPUs)
	for _, gpu := range a.latestScan.Busy {
		if !slices.Contains(ours, gpu) {
			gpus = append(gpus, gpu)
		}
	}

	for _, p := range a.latestScan.Processes {
		if slices.Contains(ours, p.GPU) {
			if p.Ours || !p.Seen {
				continue
			}

			if !slices.Contains(held, p.GPU) {
				gpus = append(gpus, p.GPU)
			}
		}

		if len(procs) < maxForeign {
			procs = append(procs, api.ForeignProcess{GPU: p.GPU, PID: p.PID, User: p.User, Program: p.Program, Memory: p.Memory})
		}
	}

	slices.Sort(gpus)

	return slices.Compact(gpus), procs
}

// releaseGPUs lets GPUs out of quarantine that an operator has released. The server
// tells of a release again and again; the machine knows which it has heeded.
func (a *Agent) releaseGPUs(list []api.GPURelease) {
	if a.machine == nil {
		return
	}

	var errs []error
	for _, r := range list {
		news, err := a.machine.Release(r.UUID, r.At)
		errs = append(errs, err)

		if news {
			a.log.Info("GPU released by an operator", "gpu", r.UUID)
			notify(a.inventorySoon)
		}
	}

	a.noteProblem("GPU release", errors.Join(errs...))
}

func (a *Agent) closeMachine() error {
	if a.machine == nil {
		return nil
	}

	return a.machine.Close()
}
