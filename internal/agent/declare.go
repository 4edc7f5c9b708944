package agent

import (
	"trainyard/internal/agent/inventory"
	"trainyard/internal/fleet"
)

// NoGPUs declares that the machine has no GPUs, also where there are some: a machine
// that is played on another one must not offer what that one has.
const NoGPUs = "none"

// declaredGPUs reads the declared GPUs of a configuration.
func declaredGPUs(text string) ([]fleet.GPU, error) {
	if text == NoGPUs {
		return nil, nil
	}

	return inventory.ParseFake(text)
}

// applyDeclared puts what was declared in the place of what was found.
func (a *Agent) applyDeclared(found *inventory.Found) {
	found.Inventory.Topology, found.Inventory.Labels = a.cfg.Topology, a.cfg.Labels

	if a.cfg.CPUs > 0 {
		found.Inventory.CPUs = a.cfg.CPUs
	}

	if a.cfg.Memory > 0 {
		found.Inventory.Memory = a.cfg.Memory
	}

	if a.cfg.FakeGPUs == NoGPUs {
		found.Inventory.GPUs, found.Busy = nil, nil
	}
}
