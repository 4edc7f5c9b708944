package fleet

import (
	"time"

	"trainyard/internal/id"
)

// InstanceState is where a machine stands with its provider.
type InstanceState string

// The states of a machine.
const (
	InstancePending InstanceState = "pending" // created, does not run yet
	InstanceUp      InstanceState = "up"
	InstanceEnding  InstanceState = "ending" // is being ended
	InstanceGone    InstanceState = "gone"   // ended
)

// Instance is a machine as its provider shows it.
type Instance struct {
	ID       string
	Lease    id.Lease // by its tag; "" if it carries the yard's tag and no lease's
	Region   string
	Zone     string
	Type     string
	Spot     bool
	State    InstanceState
	Why      string // why it ended, as far as the provider says: "spot" if it was taken back
	Address  string
	Launched time.Time // as the provider's clock has it
	Ended    time.Time
	Billed   float64 // what the provider says it has charged; negative if it does not say
}

// Why a provider gives no machine.
const (
	RefusedCapacity = "no_capacity" // it has none of this type there now
	RefusedQuota    = "no_quota"    // the account may not have more
	RefusedPrice    = "spot_price"  // the spot price is above what we would pay
	RefusedInvalid  = "bad_offer"   // it does not know such a type or image
	RefusedDenied   = "denied"      // the account may not do this at all
)
