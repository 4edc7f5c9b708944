package api

import (
	"context"
	"net/http"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// User is a person who may use the yard.
type User struct {
	ID id.User `json:"id"`
	// Number gives the user's jobs the same user id on all nodes that run jobs as users: the first of the range plus it.
	Number   int         `json:"number,omitempty" doc:"never given to another user"`
	Role     tenant.Role `json:"role"`
	Disabled bool        `json:"disabled"`
	Created  time.Time   `json:"created"`
	Usage    float64     `json:"usage" doc:"decayed usage in GPU-seconds, the basis of fair share"`
	// MaxPriority is a cap of their own.
	MaxPriority *int `json:"max_priority,omitempty" doc:"highest priority of their jobs; absent if that of the role applies"`
}

// UserPage is one page of a list of users, by name.
type UserPage struct {
	Users []User `json:"users"`
	Next  string `json:"next,omitempty"`
}

// UserRequest makes or changes a user.
type UserRequest struct {
	Role     tenant.Role `json:"role" enum:"admin,operator,researcher,viewer"`
	Disabled bool        `json:"disabled,omitempty"`
	// MaxPriority is left as it is if nil.
	MaxPriority *int `json:"max_priority,omitempty" minimum:"-1" maximum:"100" doc:"highest priority of their jobs; -1 for that of the role; default: as before"`
}

// Users returns one page of the users, by name.
func (c *Client) Users(ctx context.Context, p Page) (UserPage, error) {
	return get[UserPage](ctx, c, at("users"), p.query())
}

// User returns one user.
func (c *Client) User(ctx context.Context, u id.User) (User, error) {
	return get[User](ctx, c, at("users", string(u)), nil)
}

// PutUser makes or changes a user.
func (c *Client) PutUser(ctx context.Context, u id.User, in UserRequest) (User, error) {
	var out User
	err := c.call(ctx, http.MethodPut, at("users", string(u)), nil, in, &out)
	return out, err
}
