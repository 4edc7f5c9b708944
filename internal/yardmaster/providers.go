package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// LeaseGranted says that a provider has created a machine for a lease.
type LeaseGranted struct {
	Lease    id.Lease
	Provider string
	Machine  fleet.Instance
}

func (m LeaseGranted) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Granted(y.now, m.Lease, m.Provider, m.Machine)
	return nil, nil
}

// LeaseRefused says that a provider has definitely refused a machine for a lease.
type LeaseRefused struct {
	Lease id.Lease
	Code  string
	Why   string
}

func (m LeaseRefused) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Refused(y.now, m.Lease, m.Code, m.Why)
	y.planDue = true
	return nil, nil
}

// OutcomeUnknown says that it is unknown whether a provider has created a machine.
type OutcomeUnknown struct {
	Lease id.Lease
	Why   string
}

func (m OutcomeUnknown) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Unclear(y.now, m.Lease, m.Why)
	return nil, nil
}

// ReleaseAccepted says that a provider has accepted the order to end a lease's machine.
type ReleaseAccepted struct{ Lease id.Lease }

func (m ReleaseAccepted) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Accepted(y.now, m.Lease)
	return nil, nil
}

// MachineGone says that a lease's machine has ended, as its provider reports.
type MachineGone struct {
	Lease id.Lease
	Why   string // "spot" if the provider reclaimed it
}

func (m MachineGone) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Gone(y.now, m.Lease, m.Why)
	return nil, nil
}

// InstancesListed is the yard's machines as a provider lists them.
type InstancesListed struct {
	Provider string
	CalledAt time.Time // when the provider was called
	Machines []fleet.Instance
}

func (m InstancesListed) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Listed(y.now, m.CalledAt, m.Provider, m.Machines)
	return nil, nil
}

// ProviderFailed says that a call failed and will be retried.
type ProviderFailed struct {
	Provider string
	Lease    id.Lease // "" if it was a list
	Why      string
}

func (m ProviderFailed) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Failed(y.now, m.Provider, m.Lease, m.Why)
	return nil, nil
}
