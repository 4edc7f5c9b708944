package api

import (
	"context"
	"time"
)

// Info says what this server is.
type Info struct {
	Version    string    `json:"version"`
	Capability int       `json:"capability"`
	CAHash     string    `json:"ca_hash"`
	Policy     string    `json:"policy"`
	Store      string    `json:"store" enum:"sqlite,postgres"`
	Started    time.Time `json:"started"`
	Now        time.Time `json:"now"`
	Demo       bool      `json:"demo,omitempty" doc:"whether the jobs, nodes and people of the yard are simulated, as trainyard up --demo makes them"`
}

// Info says what the server is. It needs no token.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return get[Info](ctx, c, at("info"), nil)
}
