package server

import (
	"context"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/httpapi"
)

// What a search of output may cost. Whoever asks for more goes on from the cursor of the answer.
const (
	searchSteps   = 200_000_000 // of one request: 200 MB of plain text, or less with a larger expression
	searchTime    = 2 * time.Second
	searchesAtAll = 2 // that run at the same time
	searchesEach  = 4 // of one user, with those that wait for their turn
	searchWait    = 5 * time.Second
)

// searches bounds what searching output costs the server.
type searches struct {
	clock clock.Clock
	steps int64
	mine  *httpapi.Slots
	turns chan struct{} // holds a value for each search that may begin
}

func newSearches(clk clock.Clock) *searches {
	s := &searches{
		clock: clk,
		steps: searchSteps,
		mine:  httpapi.NewSlots(searchesEach, 0, api.CodeTooManySearches, "searches"),
		turns: make(chan struct{}, searchesAtAll),
	}

	for range searchesAtAll {
		s.turns <- struct{}{}
	}

	return s
}

// begin waits until a search of a user may begin. The caller calls end when it has done a part of it that
// fits a budget.
func (s *searches) begin(ctx context.Context, user id.User) (end func(), err error) {
	leave, err := s.mine.Take(string(user))
	if err != nil {
		return nil, err
	}

	switch clock.Wait(ctx, searchWait, s.turns) {
	case clock.Woken:
		return func() {
			s.turns <- struct{}{}

			leave()
		}, nil
	case clock.Ended:
		leave()
		return nil, ctx.Err()
	case clock.Passed:
	}

	leave()

	return nil, fault.New(fault.OverLimit, api.CodeTooManySearches,
		"too many searches of output: the server has %d under way", searchesAtAll).
		WithRemedy("try again in a few seconds")
}

// budget is what one request may spend.
func (s *searches) budget() *archive.Budget {
	until := s.clock.Now().Add(searchTime)

	return archive.NewBudget(s.steps, func() bool { return s.clock.Now().After(until) })
}
