package server

import (
	"context"
	"time"

	"trainyard/internal/clock"
)

// What reports may cost. They read on connections of their own, of which the store has one more.
const (
	reportsAtAll = 2 // that run at the same time
	reportsEach  = 4 // of one user, with those that wait for their turn
	reportWait   = 10 * time.Second
)

// Postings are added to the totals of the ledger in parts, so that commits wait for none of them for long, and often:
// every report reads those that are in no total one by one.
const (
	rollUpEvery = 30 * time.Second
	rollUpPart  = 5_000
)

// rollUp keeps the totals of the ledger up to date until ctx ends. Reports are right whenever it does so: they read
// what is in no total from the postings.
func (s *Server) rollUp(ctx context.Context) {
	s.rollUpAll(ctx)
	clock.Every(ctx, s.Clock, rollUpEvery, func(time.Time) { s.rollUpAll(ctx) })
}

func (s *Server) rollUpAll(ctx context.Context) {
	for {
		n, err := s.Store.RollUp(ctx, rollUpPart)
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "adding up the ledger failed; trying again soon", "error", err)
		}
		if err != nil || n == 0 {
			return
		}
	}
}
