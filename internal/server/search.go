package server

import (
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/logs/archive"
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
	*turnstile
	clock clock.Clock
	steps int64
}

func newSearches(clk clock.Clock) *searches {
	return &searches{
		turnstile: newTurnstile(searchesEach, searchesAtAll, searchWait, api.CodeTooManySearches, "searches of output"),
		clock:     clk,
		steps:     searchSteps,
	}
}

// budget is what one request may spend.
func (s *searches) budget() *archive.Budget {
	until := s.clock.Now().Add(searchTime)

	return archive.NewBudget(s.steps, func() bool { return s.clock.Now().After(until) })
}
