package yardmaster

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// PutUser makes or changes a user. The answer is the user.
type PutUser struct {
	User     id.User
	Role     tenant.Role
	Disabled bool
	By       string
}

func (m PutUser) handle(y *Yard) (any, error) {
	r, known := y.users[m.User]
	kind, reason := "user.changed", "changed by "+m.By
	if !known || r.Created.IsZero() {
		r = y.user(m.User)
		r.Created, r.UsageAt = y.now, y.now
		kind, reason = "user.added", "added by "+m.By
	}
	if r.Role == tenant.Admin && (m.Role != tenant.Admin || m.Disabled) && y.admins() == 1 && !r.Disabled {
		return nil, fault.New(fault.Conflict, "last_admin", "%s is the last admin of the yard", m.User).
			WithRemedy("make someone else an admin first")
	}
	r.Role, r.Disabled = m.Role, m.Disabled
	y.changedUser(r)
	y.event(Event{Kind: kind, Actor: m.By, Owner: m.User, To: string(m.Role), Reason: reason})
	return r.User, nil
}

// admins counts the admins that may log in.
func (y *Yard) admins() int {
	n := 0
	for _, u := range y.users {
		if u.Role == tenant.Admin && !u.Disabled {
			n++
		}
	}
	return n
}

// AddToken hands out a token; the secret stays with the server. The answer is the token.
type AddToken struct {
	Token tenant.Token // Seq and Created are set here
	By    string
}

func (m AddToken) handle(y *Yard) (any, error) {
	t := m.Token
	owner, ok := y.users[t.Owner]
	if !ok || owner.Created.IsZero() {
		return nil, fault.New(fault.NotFound, "user_not_found", "there is no user %s", t.Owner).WithField("owner")
	}
	if _, taken := y.tokens[t.ID]; taken {
		return nil, fault.New(fault.Conflict, "token_exists", "there is a token %s already", t.ID)
	}
	t.Created, t.Seq = y.now, 0
	r := &tokenRecord{Token: t}
	y.tokens[t.ID] = r
	y.changedToken(r)
	y.event(Event{Kind: "token.added", Actor: m.By, Owner: t.Owner, To: string(t.Kind),
		Reason: "token " + string(t.ID) + " good until " + t.Expires.UTC().Format(time.RFC3339)})
	return r.Token, nil
}

// RevokeToken makes a token worthless.
type RevokeToken struct {
	Token id.Token
	By    string
}

func (m RevokeToken) handle(y *Yard) (any, error) {
	r, ok := y.tokens[m.Token]
	if !ok {
		return nil, fault.New(fault.NotFound, "token_not_found", "there is no token %s", m.Token)
	}
	if !r.Revoked {
		r.Revoked = true
		y.changedToken(r)
		y.event(Event{Kind: "token.revoked", Actor: m.By, Owner: r.Owner, Reason: "token " + string(m.Token) + " revoked"})
	}
	return r.Token, nil
}

// Exchange uses up a bootstrap token and hands out an access token for it. The answer is the new token.
type Exchange struct {
	Bootstrap id.Token
	Token     tenant.Token
}

func (m Exchange) handle(y *Yard) (any, error) {
	if _, taken := y.tokens[m.Token.ID]; taken { // before the bootstrap token is used up for nothing
		return nil, fault.New(fault.Conflict, "token_exists", "there is a token %s already", m.Token.ID)
	}
	bootstrap, err := y.useToken(m.Bootstrap)
	if err != nil {
		return nil, err
	}
	m.Token.Owner = bootstrap.Owner
	return AddToken{Token: m.Token, By: "token/" + string(m.Bootstrap)}.handle(y)
}

// useToken counts one use of a join or bootstrap token.
func (y *Yard) useToken(t id.Token) (*tokenRecord, error) {
	r, ok := y.tokens[t]
	if !ok || !r.Usable(y.now) || r.Kind == tenant.AccessToken {
		return nil, fault.New(fault.Unknown, "token_used_up", "this token cannot be used any more").
			WithRemedy("ask an admin for a new one")
	}
	r.UsesLeft--
	y.changedToken(r)
	return r, nil
}
