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

// probeGPUs finds out how fast the GPUs are, if that is not known. It is called
// before the yard can give this machine anything to run, so that no run starts
// meanwhile; GPUs on which an adopted run or anybody else works are left alone until
// the agent starts again.
func (a *Agent) probeGPUs(ctx context.Context) {
	if a.machine == nil || a.cfg.Probe == ProbeOff {
		return
	}

	count, err := a.machine.Probe(ctx)
	a.noteProblem("GPU probe", err)

	if count == 0 {
		return
	}

	a.log.Info("GPUs measured", "count", count)
	a.refreshInventory(ctx)
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
	found.Inventory.Isolation = a.isolation()
	found.Inventory.MixUsers = a.cfg.MixUsers
	found.Inventory.Metadata = a.cfg.Metadata
	found.Inventory.Shared = a.shared.list()
	a.mu.Lock()
	defer a.mu.Unlock()

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
