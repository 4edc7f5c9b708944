package tenant

import (
	"slices"

	"trainyard/internal/id"
)

// Action is something a person wants to do.
type Action string

// The actions that server asks about.
const (
	Identify    Action = "identify" // find out who one is
	ReadJob     Action = "read_job"
	ChangeJob   Action = "change_job"
	SubmitJob   Action = "submit_job"
	ReadNodes   Action = "read_nodes"
	ChangeNodes Action = "change_nodes"
	ReadEvents  Action = "read_events"
	ManageUsers Action = "manage_users"
	ReadTokens  Action = "read_tokens"
	OwnTokens   Action = "own_tokens" // create and revoke one's own

	ReadProjects   Action = "read_projects"
	ManageProjects Action = "manage_projects"

	ReadUsage     Action = "read_usage" // usage, costs, savings, quotas and leases
	ReadOffers    Action = "read_offers"
	ManageQuotas  Action = "manage_quotas"
	ManageLeases  Action = "manage_leases"
	ReadData      Action = "read_data"
	ManageData    Action = "manage_data"
	OverridePlace Action = "override_place" // let a job run against the rules of its data
	ReadSecrets   Action = "read_secrets"   // their names; nobody may read a value
	ManageSecrets Action = "manage_secrets"
	RotateSecrets Action = "rotate_secrets" // encrypt all of them with a new master key

	ReadChannels   Action = "read_channels" // where one is notified
	ManageChannels Action = "manage_channels"
)

// Reach is to whose things a role may do something. Each reach includes those before it.
type Reach int

// The reaches.
const (
	Nothing  Reach = iota
	Own            // their own things
	Projects       // and things of the projects that they are a member of
	Anyones        // things of everyone, and those without an owner
)

// Rule is who may do an action. An admin may do everything with a token of that scope.
type Rule struct {
	Scope      Scope // that a token needs
	Viewer     Reach
	Researcher Reach
	Lead       bool // whether the lead of a project may, to things of that project
	Operator   Reach
}

// rules is who may do what. An action that is not in it is denied to everyone.
var rules = map[Action]Rule{
	Identify:    {ScopeRead, Own, Own, false, Own},
	ReadJob:     {ScopeRead, Projects, Own, true, Anyones},
	ChangeJob:   {ScopeSubmit, Nothing, Own, true, Own},
	SubmitJob:   {ScopeSubmit, Nothing, Own, false, Own},
	ReadNodes:   {ScopeRead, Anyones, Anyones, false, Anyones},
	ChangeNodes: {ScopeAdmin, Nothing, Nothing, false, Anyones},
	ReadEvents:  {ScopeRead, Own, Own, false, Anyones},
	ManageUsers: {ScopeAdmin, Nothing, Nothing, false, Nothing},
	ReadTokens:  {ScopeSubmit, Own, Own, false, Own},
	OwnTokens:   {ScopeTokens, Own, Own, false, Own},

	ReadProjects:   {ScopeRead, Projects, Projects, false, Anyones},
	ManageProjects: {ScopeAdmin, Nothing, Nothing, false, Nothing},

	ReadUsage:     {ScopeRead, Projects, Own, true, Anyones},
	ReadOffers:    {ScopeRead, Anyones, Anyones, false, Anyones},
	ManageQuotas:  {ScopeAdmin, Nothing, Nothing, false, Nothing},
	ManageLeases:  {ScopeAdmin, Nothing, Nothing, false, Anyones},
	ReadData:      {ScopeRead, Anyones, Anyones, false, Anyones},
	ManageData:    {ScopeSubmit, Nothing, Own, false, Own},
	OverridePlace: {ScopeAdmin, Nothing, Nothing, false, Nothing},
	ReadSecrets:   {ScopeRead, Own, Own, true, Own},
	ManageSecrets: {ScopeSubmit, Nothing, Own, true, Own},
	RotateSecrets: {ScopeAdmin, Nothing, Nothing, false, Nothing},

	ReadChannels:   {ScopeRead, Own, Own, true, Own},
	ManageChannels: {ScopeSubmit, Nothing, Own, true, Own},
}

// Actions lists every action.
func Actions() []Action {
	return []Action{
		Identify, ReadJob, ChangeJob, SubmitJob, ReadNodes, ChangeNodes, ReadEvents, ManageUsers, ReadTokens, OwnTokens,
		ReadProjects, ManageProjects,
		ReadUsage, ReadOffers, ManageQuotas, ManageLeases, ReadData, ManageData, OverridePlace,
		ReadSecrets, ManageSecrets, RotateSecrets, ReadChannels, ManageChannels,
	}
}

// RuleOf returns who may do an action.
func RuleOf(a Action) Rule { return rules[a] }

// reach is how far a role gets with an action.
func (r *Rule) reach(role Role) Reach {
	switch role {
	case Admin:
		return Anyones
	case Operator:
		return r.Operator
	case Researcher:
		return r.Researcher
	case Viewer:
		return r.Viewer
	}

	return Nothing
}

// Caller is who is asking, with what token.
type Caller struct {
	User  id.User
	Role  Role
	Scope Scope
	// Member and Leads are the projects that they are a member of and those that they lead, each by name.
	Member, Leads []id.Project
}

// Equal reports whether two callers may do the same.
func (c Caller) Equal(other Caller) bool {
	return c.User == other.User && c.Role == other.Role && c.Scope == other.Scope &&
		slices.Equal(c.Member, other.Member) && slices.Equal(c.Leads, other.Leads)
}

// May reports whether the caller may do the action to a thing of this owner that belongs to no project.
// The owner is "" if it has none.
func (c Caller) May(a Action, owner id.User) bool { return c.MayIn(a, owner, "") }

// MayIn reports whether the caller may do the action to a thing of this owner in this project.
func (c Caller) MayIn(a Action, owner id.User, project id.Project) bool {
	rule, ok := rules[a]
	if !ok || !c.Scope.Includes(rule.Scope) {
		return false
	}

	switch reach := rule.reach(c.Role); {
	case reach == Nothing:
		return false
	case reach == Anyones, owner == c.User && owner != "":
		return true
	case reach == Projects:
		return slices.Contains(c.Member, project)
	}

	return rule.Lead && slices.Contains(c.Leads, project)
}

// MayAt reports whether the caller may do the action to anything at all.
func (c Caller) MayAt(a Action) bool {
	rule, ok := rules[a]
	return ok && c.Scope.Includes(rule.Scope) && rule.reach(c.Role) > Nothing
}

// Sees returns the projects in which the caller may do the action to things of others, by name.
func (c Caller) Sees(a Action) []id.Project {
	rule, ok := rules[a]

	switch {
	case !ok || !c.Scope.Includes(rule.Scope):
		return nil
	case rule.reach(c.Role) >= Projects:
		return c.Member
	case rule.Lead && rule.reach(c.Role) == Own:
		return c.Leads
	}

	return nil
}
