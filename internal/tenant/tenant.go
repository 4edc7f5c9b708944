// Package tenant holds the nouns user, project, token and quota.
//
// The package is pure. The yardmaster keeps users and tokens and records who
// changed them; auth checks what a caller presents against them; server asks
// May before it lets anyone touch a thing.
package tenant

import (
	"slices"
	"time"

	"trainyard/internal/id"
)

// Role says what a person may do.
type Role string

// The roles. More will follow; server asks May, never for a role by name.
const (
	Admin      Role = "admin"      // everything
	Researcher Role = "researcher" // their own jobs; sees nodes
)

// Roles lists every role.
func Roles() []Role { return []Role{Admin, Researcher} }

// User is a person who may use the yard.
type User struct {
	ID       id.User
	Seq      uint64
	Role     Role
	Created  time.Time
	Disabled bool
	// Usage is the decayed use of the yard in GPU-seconds as of UsageAt, for fair share.
	Usage   float64
	UsageAt time.Time
}

// Scope limits what a token may be used for, whatever its owner may do.
type Scope string

// The scopes. Each includes those before it.
const (
	ScopeRead   Scope = "read"
	ScopeSubmit Scope = "submit"
	ScopeAdmin  Scope = "admin"
)

// Scopes lists every scope from the narrowest to the widest.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeSubmit, ScopeAdmin} }

// Includes reports whether scope s allows what requires the scope other.
func (s Scope) Includes(other Scope) bool {
	return slices.Index(Scopes(), s) >= slices.Index(Scopes(), other) && slices.Contains(Scopes(), other)
}

// TokenKind says what a token is for.
type TokenKind string

// The kinds of token.
const (
	AccessToken    TokenKind = "access"    // a person's or program's way into the API
	BootstrapToken TokenKind = "bootstrap" // printed once at the first start; exchanged once for an access token
	JoinToken      TokenKind = "join"      // lets machines join as nodes
)

// Token is a secret that was issued. Only its hash is stored.
type Token struct {
	ID       id.Token
	Seq      uint64
	Kind     TokenKind
	Owner    id.User
	Hash     string // of the secret
	Scope    Scope  // of an access token
	Note     string
	Class    string // of the nodes that join with it
	Pool     string
	Lease    id.Lease // of the on-demand node that joins with it
	UsesLeft int      // of a join or bootstrap token
	Created  time.Time
	Expires  time.Time
	Revoked  bool
}

// Usable reports whether the token is valid at this time.
func (t *Token) Usable(now time.Time) bool {
	if t.Revoked || !now.Before(t.Expires) {
		return false
	}

	return t.Kind == AccessToken || t.UsesLeft > 0
}

// Action is something a person wants to do.
type Action string

// The actions that server asks about.
const (
	ReadJob     Action = "read_job"
	ChangeJob   Action = "change_job"
	SubmitJob   Action = "submit_job"
	ReadNodes   Action = "read_nodes"
	ChangeNodes Action = "change_nodes"
	ReadEvents  Action = "read_events"
	ManageUsers Action = "manage_users"
	OwnTokens   Action = "own_tokens"

	ReadUsage     Action = "read_usage" // usage, costs, savings, quotas and leases
	ReadOffers    Action = "read_offers"
	ManageQuotas  Action = "manage_quotas"
	ManageLeases  Action = "manage_leases"
	ReadData      Action = "read_data"
	ManageData    Action = "manage_data"
	OverridePlace Action = "override_place" // let a job run against the rules of its data
)

// actions is who may do what: the scope a token needs, and whether a
// researcher may do it to their own things, to anyone's, or not at all.
var actions = map[Action]struct {
	scope Scope
	own   bool // a researcher may, if the thing is theirs
	any   bool // a researcher may, whoever owns the thing
}{
	ReadJob:     {ScopeRead, true, false},
	ChangeJob:   {ScopeSubmit, true, false},
	SubmitJob:   {ScopeSubmit, true, false},
	ReadNodes:   {ScopeRead, false, true},
	ChangeNodes: {ScopeAdmin, false, false},
	ReadEvents:  {ScopeRead, true, false},
	ManageUsers: {ScopeAdmin, false, false},
	OwnTokens:   {ScopeSubmit, true, false},

	ReadUsage:     {ScopeRead, true, false},
	ReadOffers:    {ScopeRead, false, true},
	ManageQuotas:  {ScopeAdmin, false, false},
	ManageLeases:  {ScopeAdmin, false, false},
	ReadData:      {ScopeRead, false, true},
	ManageData:    {ScopeSubmit, true, false},
	OverridePlace: {ScopeAdmin, false, false},
}

// Actions lists every action.
func Actions() []Action {
	return []Action{
		ReadJob, ChangeJob, SubmitJob, ReadNodes, ChangeNodes, ReadEvents, ManageUsers, OwnTokens,
		ReadUsage, ReadOffers, ManageQuotas, ManageLeases, ReadData, ManageData, OverridePlace,
	}
}

// Caller is who is asking, with what token.
type Caller struct {
	User  id.User
	Role  Role
	Scope Scope
}

// May reports whether the caller may do the action to a thing of this owner.
// The owner is "" if it has none.
func (c Caller) May(a Action, owner id.User) bool {
	rule, ok := actions[a]
	if !ok || !c.Scope.Includes(rule.scope) {
		return false
	}

	switch c.Role {
	case Admin:
		return true
	case Researcher:
		return rule.any || rule.own && owner == c.User
	}

	return false
}
