package people

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
)

// Put adds or changes a user.
func (p *People) Put(now time.Time, name id.User, role tenant.Role, disabled bool, by string) (tenant.User, error) {
	u, known := p.users[name]
	kind, reason := "user.changed", "changed by "+by

	if !known || u.Created.IsZero() {
		u = p.user(name)
		u.Created, u.UsageAt = now, now
		kind, reason = "user.added", "added by "+by
	}

	if u.Role == tenant.Admin && (role != tenant.Admin || disabled) && p.admins() == 1 && !u.Disabled {
		return tenant.User{}, fault.New(fault.Conflict, "last_admin",
			"%s is the last admin and cannot be demoted or disabled", name).
			WithRemedy("make someone else an admin first")
	}

	u.Role, u.Disabled = role, disabled
	p.changedUser(u)
	p.feed.Add(now, batch.Event{Kind: kind, Actor: by, Owner: name, To: string(role), Reason: reason})

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

// AddToken issues a token. Its Seq and Created are set here.
func (p *People) AddToken(now time.Time, t tenant.Token, by string) (tenant.Token, error) {
	owner, ok := p.users[t.Owner]
	if !ok || owner.Created.IsZero() {
		return tenant.Token{}, fault.New(fault.NotFound, "user_not_found", "there is no user %s", t.Owner).WithField("owner")
	}
	if err := p.unused(t.ID); err != nil {
		return tenant.Token{}, err
	}

	t.Created, t.Seq = now, 0
	r := &token{Token: t}
	p.tokens[t.ID] = r
	p.changedToken(r)
	p.feed.Add(now, batch.Event{Kind: "token.added", Actor: by, Owner: t.Owner, To: string(t.Kind),
		Reason: "token " + string(t.ID) + ", valid until " + t.Expires.UTC().Format(time.RFC3339)})

	return r.Token, nil
}

// unused refuses the id of a token that exists already.
func (p *People) unused(name id.Token) error {
	if _, taken := p.tokens[name]; taken {
		return fault.New(fault.Conflict, "token_exists", "token %s already exists", name)
	}

	return nil
}

// Revoke revokes a token: it is not accepted from then on.
func (p *People) Revoke(now time.Time, name id.Token, by string) (tenant.Token, error) {
	t, ok := p.tokens[name]
	if !ok {
		return tenant.Token{}, fault.New(fault.NotFound, "token_not_found", "there is no token %s", name)
	}

	if !t.Revoked {
		t.Revoked = true
		p.changedToken(t)

		p.feed.Add(
			now,
			batch.Event{Kind: "token.revoked", Actor: by, Owner: t.Owner, Reason: "token " + string(name) + " revoked"},
		)
	}

	return t.Token, nil
}

// Exchange issues a token in exchange for a bootstrap token, which is used up.
func (p *People) Exchange(now time.Time, bootstrap id.Token, t tenant.Token) (tenant.Token, error) {
	if err := p.unused(t.ID); err != nil { // before the bootstrap token is used up for nothing
		return tenant.Token{}, err
	}

	old, err := p.Use(now, bootstrap)
	if err != nil {
		return tenant.Token{}, err
	}

	t.Owner = old.Owner

	return p.AddToken(now, t, "token/"+string(bootstrap))
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
