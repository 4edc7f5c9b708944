package fleet

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/money"
)

// InstanceState is the state of a machine at its provider.
type InstanceState string

// The states of a machine.
const (
	InstancePending InstanceState = "pending" // created, not running yet
	InstanceUp      InstanceState = "up"
	InstanceEnding  InstanceState = "ending" // is being ended
	InstanceGone    InstanceState = "gone"   // ended
)

// Instance is a machine as its provider lists it.
type Instance struct {
	ID       string
	Lease    id.Lease // by its tag; "" if it carries the yard's tag and no lease's
	Region   string
	Zone     string
	Type     string
	Spot     bool
	State    InstanceState
	Why      string // why it ended, if the provider says so: "spot" if it was reclaimed
	Address  string
	Launched time.Time // by the provider's clock
	Ended    time.Time
	Billed   money.Amount // what the provider says it has charged; negative if it does not say
}

// Reasons for which a provider refuses a machine.
const (
	RefusedCapacity = "no_capacity" // it has none of this type there now
	RefusedQuota    = "no_quota"    // the account may not have more
	RefusedPrice    = "spot_price"  // the spot price is above what we would pay
	RefusedInvalid  = "bad_offer"   // it does not know such a type or image
	RefusedDenied   = "denied"      // the account may not do this at all
)
