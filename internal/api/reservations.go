package api

import (
	"context"
	"net/url"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Reservation sets nodes aside for one user for a time.
type Reservation struct {
	ID     id.Reservation `json:"id"`
	User   id.User        `json:"user"`
	Nodes  []id.Node      `json:"nodes"`
	From   time.Time      `json:"from"`
	Until  time.Time      `json:"until"`
	Notice job.Duration   `json:"notice,omitempty" doc:"how long before it begins no jobs of others start on the nodes"`
	Why    string         `json:"why,omitempty"`
	By     id.User        `json:"by" doc:"who added it"`
	Ended  *time.Time     `json:"ended,omitempty" doc:"when it was over or removed; absent until then"`
}

// ReservationRequest sets nodes aside.
type ReservationRequest struct {
	User   string       `json:"user" maxLength:"63" doc:"for whom"`
	Nodes  []string     `json:"nodes" minItems:"1" maxItems:"1000" doc:"names of nodes"`
	From   *time.Time   `json:"from,omitempty" doc:"absent for now"`
	Until  time.Time    `json:"until"`
	Notice job.Duration `json:"notice,omitempty" doc:"how long before it begins no jobs of others start on the nodes, e.g. 1h"`
	Why    string       `json:"why,omitempty" maxLength:"200"`
}

// ReservationList lists reservations by the time at which they begin.
type ReservationList struct {
	Reservations []Reservation `json:"reservations"`
}

// Reservations returns the reservations that are not over, or all.
func (c *Client) Reservations(ctx context.Context, all bool) (ReservationList, error) {
	q := url.Values{}
	if all {
		q.Set("all", "true")
	}

	return get[ReservationList](ctx, c, at("reservations"), q)
}

// Reserve sets nodes aside for a user.
func (c *Client) Reserve(ctx context.Context, in ReservationRequest) (Reservation, error) {
	return post[Reservation](ctx, c, at("reservations"), in)
}

// RemoveReservation ends a reservation before its time.
func (c *Client) RemoveReservation(ctx context.Context, r id.Reservation) (Reservation, error) {
	return post[Reservation](ctx, c, at("reservations", string(r), "end"), nil)
}
