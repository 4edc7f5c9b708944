package advise

import (
	"context"
	"time"

	"trainyard/internal/fleet"
)

// Again replays the yard as it was twice and compares the two.
func Again(ctx context.Context, q Question) (Advice, error) {
	work, err := newWorkload(q.History, q.ExtraOffers)
	if err != nil {
		return Advice{}, err
	}

	v := asItWas(q.History)
	bills, err := q.replay(ctx, work, []*variant{v, v.with(AsItWas, "as it was")})
	if err != nil {
		return Advice{}, err
	}

	return q.judge(v, bills[0], bills[1]), nil
}

// Machine is a spot node with its losses an hour and the hours in which it is there.
type Machine struct{ Losses, From, To float64 }

// Takes returns when spot nodes are reclaimed.
func Takes(seed uint64, machines ...Machine) []time.Duration {
	var list []provisioned
	for i, m := range machines {
		from := time.Duration(m.From * float64(time.Hour))
		list = append(
			list,
			provisioned{
				number: uint64(i),
				offer:  &fleet.Offer{Spot: true},
				losses: m.Losses,
				from:   from,
				ready:  from,
				to:     time.Duration(m.To * float64(time.Hour)),
			},
		)
	}

	return newStorm(seed).takes(list)
}
