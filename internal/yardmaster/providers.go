package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Granted says that a provider has created a machine for a lease.
type Granted struct {
	Lease    id.Lease
	Provider string
	Machine  fleet.Instance
}

func (m Granted) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Granted(y.now, m.Lease, m.Provider, m.Machine)
	return nil, nil
}

// Refused says that a provider gives no machine for a lease, for certain.
type Refused struct {
	Lease id.Lease
	Code  string
	Why   string
}

func (m Refused) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Refused(y.now, m.Lease, m.Code, m.Why)
	y.round = true
	return nil, nil
}

// Unclear says that it is not known whether a provider has created a machine.
type OutcomeUnknown struct {
	Lease id.Lease
	Why   string
}

func (m OutcomeUnknown) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Unclear(y.now, m.Lease, m.Why)
	return nil, nil
}

// Accepted says that a provider has taken the order to end a lease's machine.
type Accepted struct{ Lease id.Lease }

func (m Accepted) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Accepted(y.now, m.Lease)
	return nil, nil
}

// MachineGone says that a lease's machine has ended, as its provider told of it alone.
type MachineGone struct {
	Lease id.Lease
	Why   string // "spot" if the provider took it back
}

func (m MachineGone) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Gone(y.now, m.Lease, m.Why)
	return nil, nil
}

// Listed is what a provider shows of the yard's machines.
type InstancesListed struct {
	Provider string
	Asked    time.Time // before the answer
	Machines []fleet.Instance
}

func (m InstancesListed) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Listed(y.now, m.Asked, m.Provider, m.Machines)
	return nil, nil
}

// ProviderFailed says that a call went wrong that will be made again.
type ProviderFailed struct {
	Provider string
	Lease    id.Lease // "" if it was a list
	Why      string
}

func (m ProviderFailed) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Failed(y.now, m.Provider, m.Lease, m.Why)
	return nil, nil
}
