package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Token describes an issued token, without its secret.
type Token struct {
	ID       id.Token         `json:"id"`
	Kind     tenant.TokenKind `json:"kind"`
	Owner    id.User          `json:"owner"`
	Scope    tenant.Scope     `json:"scope,omitempty"`
	Note     string           `json:"note,omitempty"`
	Class    string           `json:"class,omitempty"`
	Pool     string           `json:"pool,omitempty"`
	UsesLeft int              `json:"uses_left,omitempty"`
	Created  time.Time        `json:"created"`
	Expires  time.Time        `json:"expires"`
	Revoked  bool             `json:"revoked"`
	LastUsed *time.Time       `json:"last_used,omitempty" doc:"last use since the server started"`
	Parent   id.Token         `json:"parent,omitempty" doc:"token with which it was created and with which it ends; absent if it stands for itself"`
	Session  bool             `json:"session,omitempty" doc:"it is the session of a browser"`
}

// TokenPage is one page of a list of tokens.
type TokenPage struct {
	Tokens []Token `json:"tokens"`
	Next   string  `json:"next,omitempty"`
}

// TokenRequest asks for a token: an access token for a person or program, a bootstrap token for the login of a person,
// or a join token for machines.
type TokenRequest struct {
	Kind  tenant.TokenKind `json:"kind" enum:"access,bootstrap,join"`
	Owner id.User          `json:"owner,omitempty" doc:"user who owns the token; default: the caller"`
	Scope tenant.Scope     `json:"scope,omitempty" enum:"read,submit,tokens,admin" doc:"scope of an access token, or of what a bootstrap token is exchanged for; default submit, for a bootstrap token tokens"`
	Note  string           `json:"note,omitempty" maxLength:"200"`
	TTL   string           `json:"ttl,omitempty" doc:"lifetime, e.g. 30d; default 30d for access tokens, 1h for others; never beyond that of the token with which it is created, unless that comes from a login of the last 15 minutes"`
	Class string           `json:"class,omitempty" enum:"local,reserved,ondemand" doc:"class of nodes that join with this token; default local"`
	Pool  string           `json:"pool,omitempty" maxLength:"63"`
	Uses  int              `json:"uses,omitempty" minimum:"0" maximum:"10000" doc:"number of nodes that may join with this token; default 1"`
}

// NewToken is a token with its secret, which is shown this once.
type NewToken struct {
	Token
	Text string `json:"text" doc:"the token itself; it is shown only once"`
	// Servers is for whoever lets a machine join: the address of the portal may be one that agents do not reach.
	Servers []string `json:"servers,omitempty" doc:"addresses of the servers, the leader first; only with a join token"`
}

// Tokens returns one page of the tokens of an owner, or of all that the caller may see.
func (c *Client) Tokens(ctx context.Context, owner id.User, p Page) (TokenPage, error) {
	q := p.query()
	set(q, "owner", string(owner))
	return get[TokenPage](ctx, c, at("tokens"), q)
}

// CreateToken makes a token. Its secret is in the answer and nowhere else.
func (c *Client) CreateToken(ctx context.Context, in TokenRequest) (NewToken, error) {
	return post[NewToken](ctx, c, at("tokens"), in)
}

// RevokeToken makes a token useless from now on.
func (c *Client) RevokeToken(ctx context.Context, t id.Token) error {
	return c.call(ctx, http.MethodDelete, at("tokens", string(t)), nil, nil, nil)
}

// RevokedTokens says how many tokens were revoked.
type RevokedTokens struct {
	Revoked int `json:"revoked" doc:"tokens that were valid before, with those that were created with them"`
}

// RevokeTokens makes all tokens of a user useless from now on, except the one that makes the call.
func (c *Client) RevokeTokens(ctx context.Context, owner id.User) (RevokedTokens, error) {
	q := url.Values{}
	set(q, "owner", string(owner))
	var out RevokedTokens
	err := c.call(ctx, http.MethodDelete, at("tokens"), q, nil, &out)

	return out, err
}
