package api

import (
	"context"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// LoginRequest exchanges a bootstrap token for an access token.
type LoginRequest struct {
	Token string `json:"token" maxLength:"300"`
	Note  string `json:"note,omitempty" maxLength:"200"`
}

// Whoami says who the caller is.
type Whoami struct {
	User    id.User      `json:"user"`
	Role    tenant.Role  `json:"role"`
	Scope   tenant.Scope `json:"scope"`
	Token   id.Token     `json:"token"`
	Expires time.Time    `json:"expires"`
	Parent  id.Token     `json:"parent,omitempty" doc:"token with which the token ends; absent if it stands for itself"`
	Leads   []id.Project `json:"leads,omitempty" doc:"projects that the user leads"`
	Member  []id.Project `json:"member,omitempty" doc:"projects that the user is a member of"`
	Demo    bool         `json:"demo,omitempty" doc:"whether the jobs, nodes and people of the yard are simulated"`
}

// SignInRequest begins a session of a browser: with an access token, or with the code of a link that trainyard up has
// printed.
type SignInRequest struct {
	Token string `json:"token,omitempty" maxLength:"300" doc:"access token; the session ends with it"`
	Code  string `json:"code,omitempty" maxLength:"80" doc:"code of a link; works once, on the machine of the server"`
}

// Login exchanges a bootstrap token for an access token.
func (c *Client) Login(ctx context.Context, in LoginRequest) (NewToken, error) {
	return post[NewToken](ctx, c, at("login"), in)
}

// Whoami says who the client's token stands for.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	return get[Whoami](ctx, c, at("whoami"), nil)
}
