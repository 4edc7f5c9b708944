package yardmaster

import (
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/people"
)

// PutUser adds or changes a user. The answer is the user.
type PutUser struct {
	User     id.User
	Role     tenant.Role
	Disabled bool
	// MaxPriority is the highest priority of their jobs. It stays as it is if nil; below 0 that of their role applies.
	MaxPriority *int
	By          string
}

func (m PutUser) handle(y *Yard) (any, error) {
	c := people.Change{Role: m.Role, Disabled: m.Disabled, MaxPriority: m.MaxPriority}

	return answer(y.people.Put(y.now, m.User, c, m.By))
}

// AddToken issues a token; its secret stays with the server. The answer is the token.
type AddToken struct {
	Token tenant.Token // Seq, Created and Parent are set here
	With  id.Token     // the access token with which it is created; "" if the yard does
	By    string
}

func (m AddToken) handle(y *Yard) (any, error) {
	return answer(y.people.AddToken(y.now, m.Token, m.With, m.By))
}

// RevokeToken revokes a token and those that were created with it: they are not accepted from then on.
type RevokeToken struct {
	Token id.Token
	By    string
}

func (m RevokeToken) handle(y *Yard) (any, error) {
	return answer(y.people.Revoke(y.now, m.Token, m.By))
}

// RevokeTokens revokes all valid tokens of a user. The answer is how many.
type RevokeTokens struct {
	Owner    id.User
	Kind     tenant.TokenKind // only those of this kind; "" for all
	Sessions bool             // only those that are sessions of browsers
	Except   id.Token         // this one stays
	By       string
}

func (m RevokeTokens) handle(y *Yard) (any, error) { //nolint:unparam // Message wants both results
	return y.people.RevokeAll(y.now, m.Owner, func(t *tenant.Token) bool {
		return (m.Kind == "" || t.Kind == m.Kind) && (!m.Sessions || t.Session) && t.ID != m.Except
	}, m.By), nil
}

// Exchange issues an access token in exchange for a bootstrap token. The answer is the new token.
type Exchange struct {
	Bootstrap id.Token
	Token     tenant.Token
}

func (m Exchange) handle(y *Yard) (any, error) {
	return answer(y.people.Exchange(y.now, m.Bootstrap, m.Token))
}

// answer is a result for the caller: no value beside an error.
func answer[T any](value T, err error) (any, error) {
	if err != nil {
		return nil, err
	}

	return value, nil
}
