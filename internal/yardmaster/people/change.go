package people

import (
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
)

// Change is what is set of a user.
type Change struct {
	Role     tenant.Role
	Disabled bool
	// MaxPriority is the highest priority of their jobs. It stays as it is if nil; ByRole lets that of their role apply.
	MaxPriority *int
}

// ByRole lets the highest priority of a user's role apply.
const ByRole = -1

// Put adds or changes a user.
func (p *People) Put(now time.Time, name id.User, c Change, by string) (tenant.User, error) {
	u, known := p.users[name]
	kind, reason, before := "user.changed", "changed by "+by, ""

	if !known || u.Created.IsZero() {
		u = p.user(name)
		u.Created, u.UsageAt = now, now
		kind, reason = "user.added", "added by "+by
	} else {
		before = u.Rights()
	}

	if u.Role == tenant.Admin && (c.Role != tenant.Admin || c.Disabled) && p.admins() == 1 && !u.Disabled {
		return tenant.User{}, fault.New(fault.Conflict, "last_admin",
			"%s is the last admin and cannot be demoted or disabled", name).
			WithRemedy("make someone else an admin first")
	}

	u.Role, u.Disabled = c.Role, c.Disabled

	switch {
	case c.MaxPriority == nil:
	case *c.MaxPriority == ByRole:
		u.MaxPriority = nil
	default:
		u.MaxPriority = new(*c.MaxPriority)
	}

	p.changedUser(u)
	p.feed.Add(now, batch.Event{Kind: kind, Actor: by, Owner: name, From: before, To: u.Rights(), Reason: reason})

	return u.User, nil
}

// admins counts the admins that may log in.
func (p *People) admins() int {
	n := 0
	for _, u := range p.users {
		if u.Role == tenant.Admin && !u.Disabled {
			n++
		}
	}

	return n
}

// AddToken issues a token. Its Seq, Created and Parent are set here. with is the token with which it is created, ""
// if the yard itself does: unless that comes from a fresh login, the new token ends with it and no later.
func (p *People) AddToken(now time.Time, t tenant.Token, with id.Token, by string) (tenant.Token, error) {
	owner, ok := p.users[t.Owner]
	if !ok || owner.Created.IsZero() {
		return tenant.Token{}, fault.New(fault.NotFound, "user_not_found", "user %s not found", t.Owner).WithField("owner")
	}
	if err := p.unused(t.ID); err != nil {
		return tenant.Token{}, err
	}

	t.Created, t.Seq, t.Parent = now, 0, ""
	reason := "token " + string(t.ID)

	if with != "" {
		parent, ok := p.tokens[with]
		if !ok || !parent.Usable(now) { // revoked since the request was let in
			return tenant.Token{}, fault.New(fault.Unknown, "token_revoked", "access token %s is no longer valid", with)
		}

		reason += ", created with token " + string(with)

		if !parent.Fresh(now) {
			t.Parent = with
			if t.Expires.After(parent.Expires) {
				t.Expires = parent.Expires
			}
		}
	}

	r := &token{Token: t}
	p.tokens[t.ID] = r
	p.changedToken(r)
	p.feed.Add(now, batch.Event{Kind: "token.added", Actor: by, Owner: t.Owner, To: t.Rights(),
		Reason: reason + ", valid until " + t.Expires.UTC().Format(time.RFC3339)})

	return r.Token, nil
}

// unused refuses the id of a token that exists already.
func (p *People) unused(name id.Token) error {
	if _, taken := p.tokens[name]; taken {
		return fault.New(fault.Conflict, "token_exists", "token %s already exists", name)
	}

	return nil
}

// Revoke revokes a token and those that were created with it: they are not accepted from then on.
func (p *People) Revoke(now time.Time, name id.Token, by string) (tenant.Token, error) {
	t, ok := p.tokens[name]
	if !ok {
		return tenant.Token{}, fault.New(fault.NotFound, "token_not_found", "token %s not found", name)
	}

	p.revoke(now, t, by, "revoked")

	return t.Token, nil
}

// revoke revokes a token and its descendants, and returns how many were not revoked before.
func (p *People) revoke(now time.Time, t *token, by, how string) int {
	n := 0

	if !t.Revoked {
		t.Revoked, n = true, 1
		p.changedToken(t)
		p.feed.Add(now, batch.Event{Kind: "token.revoked", Actor: by, Owner: t.Owner, From: t.Rights(), To: "revoked",
			Reason: "token " + string(t.ID) + " " + how})
	}

	for _, child := range p.tokensBy(func(c *token) bool { return c.Parent == t.ID && !c.Revoked }) {
		n += p.revoke(now, child, by, "revoked with token "+string(t.ID)+", with which it was created")
	}

	return n
}

// tokensBy returns the tokens for which ok is true, by their ids.
func (p *People) tokensBy(ok func(*token) bool) []*token {
	var list []*token
	for _, t := range p.tokens {
		if ok(t) {
			list = append(list, t)
		}
	}

	slices.SortFunc(list, func(a, b *token) int { return strings.Compare(string(a.ID), string(b.ID)) })

	return list
}

// RevokeAll revokes all tokens of an owner that are valid and for which ok is true. It returns how many it
// revoked, with those that were created with them.
func (p *People) RevokeAll(now time.Time, owner id.User, ok func(*tenant.Token) bool, by string) int {
	n := 0
	for _, t := range p.tokensBy(func(t *token) bool {
		return t.Owner == owner && ok(&t.Token) && t.Usable(now)
	}) {
		n += p.revoke(now, t, by, "revoked with all others of "+string(owner))
	}

	return n
}

// Exchange issues a token in exchange for a bootstrap token, which is used up.
func (p *People) Exchange(now time.Time, bootstrap id.Token, t tenant.Token) (tenant.Token, error) {
	if err := p.unused(t.ID); err != nil { // before the bootstrap token is used up for nothing
		return tenant.Token{}, err
	}

	if b, ok := p.tokens[bootstrap]; ok && p.user(b.Owner).Disabled {
		return tenant.Token{}, fault.New(fault.Denied, "user_disabled", "the account of %s is disabled", b.Owner).
			WithRemedy("ask an admin to enable it")
	}

	old, err := p.Use(now, bootstrap)
	if err != nil {
		return tenant.Token{}, err
	}

	t.Owner, t.Scope, t.Login = old.Owner, old.Scope, true

	return p.AddToken(now, t, "", "token/"+string(bootstrap))
}

// Use counts one use of a join or bootstrap token.
func (p *People) Use(now time.Time, name id.Token) (tenant.Token, error) {
	t, ok := p.tokens[name]
	if !ok || !t.Usable(now) || t.Kind == tenant.AccessToken {
		return tenant.Token{}, fault.New(fault.Unknown, "token_used_up", "this token has expired, was revoked or is used up").
			WithRemedy("ask an admin for a new one")
	}

	t.UsesLeft--
	p.changedToken(t)

	return t.Token, nil
}
