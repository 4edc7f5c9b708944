package server

import (
	"context"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
)

// awaitEvery is how often those who wait as long as it takes try again.
const awaitEvery = 100 * time.Millisecond

// turnstile lets a few things that cost much be done at the same time; others wait for their turn.
type turnstile struct {
	mine        *httpapi.Slots
	turns       chan struct{} // holds a value for each that may begin
	wait        time.Duration
	code, thing string
}

// newTurnstile lets so many of each user in, with those that wait, and so many in all begin. Code and thing, in the
// plural, are for the error of those who have waited long enough.
func newTurnstile(each, atAll int, wait time.Duration, code, thing string) *turnstile {
	t := &turnstile{
		mine:  httpapi.NewSlots(each, 0, code, thing),
		turns: make(chan struct{}, atAll),
		wait:  wait,
		code:  code,
		thing: thing,
	}

	for range atAll {
		t.turns <- struct{}{}
	}

	return t
}

// begin waits until it is a user's turn. The caller calls end when it is over.
func (t *turnstile) begin(ctx context.Context, user id.User) (end func(), err error) {
	leave, err := t.mine.Take(string(user))
	if err != nil {
		return nil, err
	}

	switch clock.Wait(ctx, t.wait, t.turns) {
	case clock.Woken:
		return func() {
			t.turns <- struct{}{}

			leave()
		}, nil
	case clock.Ended:
		leave()
		return nil, ctx.Err()
	case clock.Passed:
	}

	leave()

	return nil, fault.New(fault.OverLimit, t.code, "too many %s: the server has %d under way", t.thing, cap(t.turns)).
		WithRemedy("try again in a few seconds")
}

// await is begin for those who have all the time: a live feed is not ended because others search just now. How many
// feeds a user has is limited elsewhere.
func (t *turnstile) await(ctx context.Context, user id.User) (end func(), err error) {
	for {
		end, err := t.begin(ctx, user)
		if err == nil || fault.KindOf(err) != fault.OverLimit || !clock.Sleep(ctx, awaitEvery) {
			return end, err
		}
	}
}
