package auth

import (
	"errors"
	"sync"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Directory identifies callers by their tokens. It is a copy of the yardmaster's users and tokens
// for the server's request path; the server updates it with every committed change. It is safe for
// concurrent use.
type Directory struct {
	mu     sync.RWMutex
	users  map[id.User]tenant.User
	tokens map[id.Token]tenant.Token
}

// NewDirectory returns an empty directory.
func NewDirectory() *Directory {
	return &Directory{users: map[id.User]tenant.User{}, tokens: map[id.Token]tenant.Token{}}
}

// Set replaces all users and tokens, at the start of the server.
func (d *Directory) Set(users []tenant.User, tokens []tenant.Token) {
	byUser := make(map[id.User]tenant.User, len(users))
	for _, u := range users {
		byUser[u.ID] = u
	}

	byToken := make(map[id.Token]tenant.Token, len(tokens))
	for _, t := range tokens {
		byToken[t.ID] = t
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.users, d.tokens = byUser, byToken
}

// PutUser adds or replaces a user. An older version than the present one is dropped, so that a late
// update never lets a disabled user back in.
func (d *Directory) PutUser(u tenant.User) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if known, ok := d.users[u.ID]; !ok || known.Seq <= u.Seq {
		d.users[u.ID] = u
	}
}

// PutToken adds or replaces a token. An older version than the present one is dropped, so that a
// late update never restores a revoked token.
func (d *Directory) PutToken(t tenant.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if known, ok := d.tokens[t.ID]; !ok || known.Seq <= t.Seq {
		d.tokens[t.ID] = t
	}
}

// Authenticate returns the user and the token for an access token presented as a bearer token,
// without the word "Bearer". A caller who cannot be identified gets an error of kind Unknown; a
// user who is known but disabled gets Denied.
func (d *Directory) Authenticate(bearer string, now time.Time) (tenant.Caller, id.Token, error) {
	t, u, err := d.check(tenant.AccessToken, bearer, now)
	if err != nil {
		return tenant.Caller{}, "", err
	}

	return tenant.Caller{User: u.ID, Role: u.Role, Scope: t.Scope}, t.ID, nil
}

// Check returns the record of a presented bootstrap or join token if it is valid now. It does not
// count as a use: the yardmaster counts uses and decides when two come at once. A correct token
// that is used up is returned together with the error, because the caller who used it may be asking
// again after a lost answer.
func (d *Directory) Check(kind tenant.TokenKind, text string, now time.Time) (tenant.Token, error) {
	t, _, err := d.check(kind, text, now)
	return t, err
}

// check finds the token and its owner. Access tokens must have an owner; a bootstrap token exists
// before the first user, and a join token outlives the account of the admin who made it unless it
// is revoked.
func (d *Directory) check(kind tenant.TokenKind, text string, now time.Time) (tenant.Token, tenant.User, error) {
	p, err := Parse(text)
	if err != nil {
		return tenant.Token{}, tenant.User{}, asUnknown(err)
	}
	if p.Kind != kind {
		return tenant.Token{}, tenant.User{}, wrongKind(kind, p.Kind)
	}

	t, known, u, hasOwner := d.find(p.ID)
	if !known {
		return tenant.Token{}, tenant.User{}, Matches(nil, p, now)
	}

	if err := Matches(&t, p, now); err != nil {
		if !UsedUp(err) {
			t = tenant.Token{}
		}

		return t, tenant.User{}, err
	}

	if kind != tenant.AccessToken {
		return t, tenant.User{}, nil
	}

	if !hasOwner {
		return tenant.Token{}, tenant.User{}, fault.New(fault.Unknown, "token_invalid",
			"the owner of the token no longer exists").
			WithRemedy("ask an admin for a new account")
	}

	if u.Disabled {
		return tenant.Token{}, tenant.User{}, fault.New(fault.Denied, "user_disabled", "the account of %s is disabled", u.ID).
			WithRemedy("ask an admin to enable it")
	}

	return t, u, nil
}

func (d *Directory) find(name id.Token) (t tenant.Token, known bool, u tenant.User, hasOwner bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()

	t, known = d.tokens[name]
	if known {
		u, hasOwner = d.users[t.Owner]
	}

	return t, known, u, hasOwner
}

// Token returns a token by its ID.
func (d *Directory) Token(name id.Token) (tenant.Token, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()

	t, ok := d.tokens[name]

	return t, ok
}

// asUnknown converts the error about a malformed token to one of kind Unknown.
func asUnknown(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}

	unknown := *f
	unknown.Kind = fault.Unknown

	return &unknown
}

func wrongKind(want, got tenant.TokenKind) error {
	remedy := "use an access token"

	switch got {
	case tenant.BootstrapToken:
		remedy = "exchange it for an access token with trainyard login"
	case tenant.JoinToken:
		remedy = "use it with trainyard agent join"
	case tenant.AccessToken:
		remedy = "use a " + string(want) + " token"
	}

	return fault.New(fault.Unknown, "token_wrong_kind", "a token of kind %s is required, got %s", want, got).
		WithRemedy("%s", remedy)
}
