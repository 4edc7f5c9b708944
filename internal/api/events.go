package api

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Event is one entry of the feed.
type Event struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Actor  string    `json:"actor"`
	Owner  id.User   `json:"owner,omitempty"`
	Job    id.Job    `json:"job,omitempty"`
	Run    id.Run    `json:"run,omitempty"`
	Node   id.Node   `json:"node,omitempty"`
	Lease  id.Lease  `json:"lease,omitempty"`
	From   string    `json:"from,omitempty"`
	To     string    `json:"to,omitempty"`
	Reason string    `json:"reason,omitempty"`

	Token   id.Token `json:"token,omitempty" doc:"token with which the actor caused it"`
	Address string   `json:"address,omitempty" doc:"address from which the actor caused it; absent if the yard did by itself"`
	Count   int      `json:"count,omitempty" doc:"number of calls that the entry stands for, for kinds of access"`

	Question id.Question `json:"question,omitempty" doc:"question that it asks or ends; the inbox has its options"`
	// Hold and NotBefore are for programs: the reason says the same to people.
	Hold      tenant.Hold `json:"hold,omitempty" doc:"kind of quota or budget that holds the job, for job.held"`
	NotBefore *time.Time  `json:"not_before,omitempty" doc:"time before which the job is not retried, or its quota does not reset"`
	// Spec is what a submitted job asked for, where the list was asked to say it.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// EventPage is one page of the feed, oldest first.
type EventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next" doc:"cursor to continue from, also for the live feed"`
}

// Events returns one page of the feed, oldest first.
func (c *Client) Events(ctx context.Context, f EventFilter) (EventPage, error) {
	return get[EventPage](ctx, c, at("events"), f.query())
}

// FollowEvents calls fn for each entry of the feed from the filter's cursor on,
// with the cursor to go on after it, until fn fails, the feed breaks off or ctx ends.
func (c *Client) FollowEvents(ctx context.Context, f EventFilter, fn func(ev Event, cursor string) error) error {
	return c.follow(ctx, at("events", "follow"), f.query(), func(item FeedItem) error {
		switch item.Kind {
		case "":
		case feedError:
			return feedFault(item)
		default:
			return nil // of a newer server
		}

		var ev Event
		if err := json.Unmarshal(item.Data, &ev); err != nil {
			return fmt.Errorf("read event: %w", err)
		}

		return fn(ev, item.ID)
	})
}
