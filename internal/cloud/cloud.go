// Package cloud is the interface through which nodes are provisioned and released.
//
// A provider is thin: it creates a machine for a lease, ends one, and lists those
// that carry the yard's name. It decides nothing, remembers nothing and retries
// nothing that changes something. What to provision and what to give back is decided by
// the yardmaster, whose leases are the desired state; Desk carries them out.
// Adapters are the folders below; the contract is written as tests in cloudtest.
package cloud

import (
	"context"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Provider provisions and returns machines. Its methods may be called at once by many,
// and each call ends when its context does.
type Provider interface {
	Name() string

	// Create asks for one machine. The lease names the request: asking again with
	// the same lease gives the same machine where the provider can do that. An
	// error of kind fault.OverLimit means that there is none to be had now, or not
	// for us (Refused tells which); fault.Invalid that there never will be;
	// fault.Denied that we may not; any other that it is not known whether a
	// machine was created.
	Create(ctx context.Context, r Request) (Instance, error)

	// Terminate ends a machine. Ending one that has ended is no error. One that the
	// provider does not know is fault.NotFound: it ended long ago, or it is so new
	// that the provider has not caught up; who asks knows how old it is. That it
	// was asked is not that it is over: List says so.
	Terminate(ctx context.Context, region, instance string) error

	// List returns every machine of this yard that has not ended, and those that
	// ended lately as far as the provider still tells, in all regions it is set
	// up for. It may lag behind what Create and Terminate have done.
	List(ctx context.Context) ([]Instance, error)
}

// Request is what is asked of a provider.
type Request struct {
	Yard  string // names this yard among others in the same account
	Lease id.Lease
	Offer fleet.Offer
	Name  string // for people who look at the provider's own pages, and the node's name
	Boot  Boot
	// Until is when the machine must end itself if nobody tells it otherwise.
	Until time.Time
}

// Boot is what a machine needs to become a node.
type Boot struct {
	Server    string // where the yard's server is reached
	Token     string // lets one machine join
	AgentURL  string // where the agent's program is fetched from
	AgentHash string // its SHA-256
	// SpotNotice says where a spot machine reads that it will be reclaimed, as the agent's setting has it; "" if nowhere.
	SpotNotice string
	DataRoots  string // directories below which datasets may be read, as the agent's setting has them; "" if none
	Script     string // the whole, as a cloud-init script; see UserData
}

// Instance is a machine as its provider shows it.
type Instance = fleet.Instance

// State is where a machine stands with its provider.
type State = fleet.InstanceState

// The states of a machine.
const (
	Pending = fleet.InstancePending
	Up      = fleet.InstanceUp
	Ending  = fleet.InstanceEnding
	Gone    = fleet.InstanceGone
)

// Codes of refusals: errors of kind fault.OverLimit carry one of them.
const (
	CodeCapacity = fleet.RefusedCapacity
	CodeQuota    = fleet.RefusedQuota
	CodePrice    = fleet.RefusedPrice
)

// Tags that machines carry.
const (
	TagYard  = "trainyard-yard"
	TagLease = "trainyard-lease"
	TagUntil = "trainyard-until"
)
