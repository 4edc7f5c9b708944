// Package tenant holds the nouns user, project, token, quota and secret.
//
// The package is pure. The yardmaster keeps users, projects and tokens and records who
// changed them; auth checks what a caller presents against them; server asks
// May before it lets anyone touch a thing.
package tenant

import (
	"slices"
	"strconv"
	"time"

	"trainyard/internal/id"
)

// Role says what a person may do. What each role may do is the table in access.go.
type Role string

// The roles. Server asks May, never for a role by name. The lead of a project has none of these for it: that is part
// of the membership, so that one may lead a project and be a researcher elsewhere.
const (
	Admin      Role = "admin"      // everything
	Operator   Role = "operator"   // nodes, leases, and to read everything; their own jobs
	Researcher Role = "researcher" // their own jobs; sees nodes
	Viewer     Role = "viewer"     // reads the jobs and the usage of their projects; changes nothing
)

// Roles lists every role.
func Roles() []Role { return []Role{Admin, Operator, Researcher, Viewer} }

// User is a person who may use the yard.
type User struct {
	ID  id.User
	Seq uint64
	// Number is the user's own for ever, from 1: nodes derive from it the account under which the user's jobs run, so
	// that no other user ever gets their files.
	Number   int
	Role     Role
	Created  time.Time
	Disabled bool
	// MaxPriority is the highest priority of their jobs; nil if that of their role applies.
	MaxPriority *int
	// Usage is the decayed use of the yard in GPU-seconds as of UsageAt, for fair share.
	Usage   float64
	UsageAt time.Time
}

// Rights says in few words what the user may do, for the audit record.
func (u *User) Rights() string {
	text := string(u.Role)
	if u.MaxPriority != nil {
		text += ", highest priority " + strconv.Itoa(*u.MaxPriority)
	}

	if u.Disabled {
		text += ", disabled"
	}

	return text
}

// Scope limits what a token may be used for, whatever its owner may do.
type Scope string

// The scopes. Each includes those before it.
const (
	ScopeRead   Scope = "read"
	ScopeSubmit Scope = "submit"
	ScopeTokens Scope = "tokens" // create and revoke tokens; a program that submits jobs needs none of it
	ScopeAdmin  Scope = "admin"
)

// Scopes lists every scope from the narrowest to the widest.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeSubmit, ScopeTokens, ScopeAdmin} }

// Includes reports whether scope s allows what requires the scope other.
func (s Scope) Includes(other Scope) bool {
	return slices.Index(Scopes(), s) >= slices.Index(Scopes(), other) && slices.Contains(Scopes(), other)
}

// TokenKind says what a token is for.
type TokenKind string

// The kinds of token.
const (
	AccessToken    TokenKind = "access"    // a person's or program's way into the API
	BootstrapToken TokenKind = "bootstrap" // for one login: it is exchanged for an access token
	JoinToken      TokenKind = "join"      // lets machines join as nodes
)

// Token is a secret that was issued. Only its hash is stored.
type Token struct {
	ID       id.Token
	Seq      uint64
	Kind     TokenKind
	Owner    id.User
	Hash     string // of the secret
	Scope    Scope  // of an access token, or of the one that a bootstrap token is exchanged for
	Note     string
	Class    string // of the nodes that join with it
	Pool     string
	Lease    id.Lease // of the on-demand node that joins with it
	UsesLeft int      // of a join or bootstrap token
	Created  time.Time
	Expires  time.Time
	Revoked  bool
	// Parent is the access token with which it was created: it ends with it. "" if it stands for itself.
	Parent id.Token
	// Login says that it was given out at a login.
	Login bool
	// Session says that it is the session of a browser, which is accepted in a cookie alone.
	Session bool
}

// FreshLogin is for how long after a login tokens can be created that stand for themselves.
const FreshLogin = 15 * time.Minute

// Fresh reports whether the token was given out at a login that was a short time ago.
func (t *Token) Fresh(now time.Time) bool { return t.Login && now.Sub(t.Created) < FreshLogin }

// Rights says in few words what the token lets its bearer do, for the audit record.
func (t *Token) Rights() string {
	text := string(t.Kind)
	if t.Scope != "" {
		text += ", scope " + string(t.Scope)
	}

	if t.Session {
		text += ", session of a browser"
	}

	if t.Class != "" {
		text += ", class " + t.Class
	}

	if t.Pool != "" {
		text += ", pool " + t.Pool
	}

	if t.Kind != AccessToken {
		text += ", " + strconv.Itoa(t.UsesLeft) + " uses left"
	}

	return text
}

// Usable reports whether the token is valid at this time.
func (t *Token) Usable(now time.Time) bool {
	if t.Revoked || !now.Before(t.Expires) {
		return false
	}

	return t.Kind == AccessToken || t.UsesLeft > 0
}
