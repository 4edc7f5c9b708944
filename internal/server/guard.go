package server

import (
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// caller is who makes a request.
type caller struct {
	tenant.Caller
	token id.Token
}

type callerKey struct{}

// byToken is the security of operations for people.
var byToken = []map[string][]string{{"token": {}}}

// person returns who presents an access token, or has a session.
func (s *Server) person(r *http.Request) (caller, error) {
	text, session, err := s.presented(r)
	if err != nil {
		return caller{}, s.unknown(r, err)
	}

	now := s.Clock.Now()
	who, token, err := s.Directory.Authenticate(text, now)
	if err == nil && s.isSession(token) != session {
		err = noBearer()
	}

	if err != nil {
		return caller{}, s.unknown(r, err)
	}

	record := httpapi.RecordOf(r.Context())
	record.Actor, record.Token = string(who.User), token
	if !s.limiter.allow(string(token)) {
		return caller{}, httpapi.TooOften()
	}

	s.used.set(token, now)

	return caller{who, token}, nil
}

// unknown is the error for a caller that could not be identified, who may not try that often either.
func (s *Server) unknown(r *http.Request, err error) error {
	if !s.limiter.allow(s.addressOf(r)) {
		return httpapi.TooOften()
	}

	return err
}

// addressOf is the key under which the rate limiter counts requests without a token: where they come from. A server
// that forwards a request says from where it got it.
func (s *Server) addressOf(r *http.Request) string {
	if from := r.Header.Get("X-Forwarded-For"); from != "" && r.TLS != nil && s.CA.IsPeer(r.TLS, s.Clock.Now()) {
		return "from " + from
	}

	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}

	return "from " + host
}

// callerOf returns who makes the request; admit has put it there.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// actionPhrases say what a caller who is denied cannot do.
var actionPhrases = map[tenant.Action]string{
	tenant.Identify:    "use the API",
	tenant.ReadJob:     "read jobs",
	tenant.ChangeJob:   "change jobs",
	tenant.SubmitJob:   "submit jobs",
	tenant.ReadNodes:   "list nodes",
	tenant.ChangeNodes: "change nodes",
	tenant.ReadEvents:  "read events",
	tenant.ManageUsers: "manage users",
	tenant.ReadTokens:  "list tokens",
	tenant.OwnTokens:   "create and revoke tokens",

	tenant.ReadProjects:   "list projects",
	tenant.ManageProjects: "manage projects",

	tenant.ReadUsage:     "read usage and costs",
	tenant.ReadOffers:    "list offers",
	tenant.ManageQuotas:  "manage quotas",
	tenant.ManageLeases:  "release leases",
	tenant.ReadData:      "list datasets",
	tenant.ManageData:    "change datasets",
	tenant.OverridePlace: "override where data may be used",
	tenant.ReadSecrets:   "list secrets",
	tenant.ManageSecrets: "change secrets",
	tenant.RotateSecrets: "rotate the key of the secrets",

	tenant.ReadChannels:   "list channels of notifications",
	tenant.ManageChannels: "change channels of notifications",
}

// allow answers Denied unless the caller may do this to a thing of this owner.
func allow(ctx context.Context, a tenant.Action, owner id.User) error {
	return allowIn(ctx, actionPhrases[a], a, owner, "")
}

// allowIn is allow for a thing that may belong to a project, with words of its own for what the caller wants to do.
func allowIn(ctx context.Context, phrase string, a tenant.Action, owner id.User, project id.Project) error {
	c := callerOf(ctx)
	if c.MayIn(a, owner, project) {
		return nil
	}

	if owner != "" && owner != c.User {
		phrase += " of " + string(owner)
	}

	return deny(c, phrase, func(other tenant.Caller) bool { return other.MayIn(a, owner, project) })
}

// deny says what a caller cannot do, and what would let them. may says whether another caller could.
func deny(c caller, phrase string, may func(tenant.Caller) bool) error {
	denied := fault.New(fault.Denied, "not_allowed", "permission denied: %s cannot %s", c.User, phrase)

	wider := c.Caller
	wider.Scope = tenant.ScopeAdmin
	if may(wider) {
		return denied.WithRemedy("the scope of this token is %s; use a token with a wider scope", c.Scope)
	}

	return denied.WithRemedy("ask an admin")
}

// ownerFilter returns whose things the caller gets to see: those of the owner that was
// asked for, or of everyone (""), or, where that is not for them, their own. The list is of things of the project, or
// of all if that is "".
func ownerFilter(ctx context.Context, a tenant.Action, owner id.User, project id.Project) (id.User, error) {
	who := callerOf(ctx)
	if owner == "" && !who.MayIn(a, "", project) {
		owner = who.User
	}

	return owner, allowIn(ctx, actionPhrases[a], a, owner, project)
}

// lastUsed remembers when tokens were used, in memory only: writing it down at
// every request would cost more than it is worth.
type lastUsed struct {
	mu    sync.Mutex
	times map[id.Token]time.Time
}

func newLastUsed() *lastUsed { return &lastUsed{times: map[id.Token]time.Time{}} }

func (u *lastUsed) set(t id.Token, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.times[t] = at
}

func (u *lastUsed) get(t id.Token) *time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()

	at, ok := u.times[t]
	if !ok {
		return nil
	}

	return &at
}

func stack() string { return string(debug.Stack()) }

func errInternal() error {
	return fault.New(fault.Internal, "internal", "internal server error").WithRemedy("see the server's log")
}

// admitted is the context of a request that the gate has let through: the caller is in it.
func admitted(r *http.Request) (context.Context, error) { return r.Context(), nil }

// KeepDirectory brings a directory up to date with what was committed.
func KeepDirectory(d *auth.Directory, b *yardmaster.Batch) {
	for i := range b.Users {
		d.PutUser(b.Users[i])
	}

	for i := range b.Tokens {
		d.PutToken(b.Tokens[i])
	}

	for i := range b.Members {
		d.PutMember(b.Members[i])
	}
}
