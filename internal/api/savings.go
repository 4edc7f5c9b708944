package api

import (
	"context"
	"time"

	"trainyard/internal/id"
)

// Savings is what decisions about jobs that have ended saved against what would have been done instead.
type Savings struct {
	From      *time.Time     `json:"from,omitempty"`
	To        *time.Time     `json:"to,omitempty"`
	Group     []string       `json:"group"`
	Rows      []SavingRow    `json:"rows"`
	Total     SavingRow      `json:"total"`
	Decisions []SavingReason `json:"decisions" doc:"largest savings and losses with what would have been done instead; at most 20"`
}

// SavingRow is one line of it.
type SavingRow struct {
	Keys    []string `json:"keys,omitempty"`
	Count   int      `json:"decisions"`
	Money   float64  `json:"saved_usd" doc:"negative if it cost more than the alternative would have"`
	Seconds float64  `json:"saved_seconds" doc:"time saved in seconds; negative if jobs finished later"`
}

// SavingReason is what one decision saved, and why.
type SavingReason struct {
	At      time.Time `json:"at" doc:"when the job ended and the decision was settled"`
	Job     id.Job    `json:"job"`
	Owner   id.User   `json:"owner"`
	Kind    string    `json:"kind" doc:"placement, wait, preemption, move or power; estimate for those that version 0.1.0 recorded when jobs started"`
	Money   float64   `json:"saved_usd"`
	Seconds float64   `json:"saved_seconds"`
	Reason  string    `json:"reason" doc:"what would have been done instead"`
}

// Savings returns what decisions saved.
func (c *Client) Savings(ctx context.Context, q UsageQuery) (Savings, error) {
	return get[Savings](ctx, c, at("savings"), q.query())
}
