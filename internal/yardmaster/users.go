package yardmaster

import (
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// PutUser adds or changes a user. The answer is the user.
type PutUser struct {
	User     id.User
	Role     tenant.Role
	Disabled bool
	By       string
}

func (m PutUser) handle(y *Yard) (any, error) {
	return answer(y.people.Put(y.now, m.User, m.Role, m.Disabled, m.By))
}

// AddToken issues a token; its secret stays with the server. The answer is the token.
type AddToken struct {
	Token tenant.Token // Seq and Created are set here
	By    string
}

func (m AddToken) handle(y *Yard) (any, error) {
	return answer(y.people.AddToken(y.now, m.Token, m.By))
}

// RevokeToken revokes a token: it is not accepted from then on.
type RevokeToken struct {
	Token id.Token
	By    string
}

func (m RevokeToken) handle(y *Yard) (any, error) {
	return answer(y.people.Revoke(y.now, m.Token, m.By))
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
