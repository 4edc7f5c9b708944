package server

import (
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

// caller is who makes a request.
type caller struct {
	tenant.Caller
	token id.Token
}

type callerKey struct{}

// byToken is the security of operations for people.
var byToken = []map[string][]string{{"token": {}}}

// authenticate finds out who asks where the operation's security names a token,
// and limits how often people and strangers may. Agents are agentapi's to check.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	var err error
	if len(ctx.Operation().Security) == 0 && !s.limiter.allow(addressOf(r)) {
		err = tooOften()
	}

	for _, scheme := range ctx.Operation().Security {
		if _, ok := scheme["token"]; ok {
			var c caller
			c, err = s.person(r)
			if err == nil {
				ctx = huma.WithValue(ctx, callerKey{}, c)
			}
		}
	}

	if err != nil {
		httpapi.WriteProblem(w, err)
		return
	}

	next(ctx)
}

// identify adds who presents an access token to the context of a request.
func (s *Server) identify(r *http.Request) (context.Context, error) {
	c, err := s.person(r)

	return context.WithValue(r.Context(), callerKey{}, c), err
}

// person returns who presents an access token.
func (s *Server) person(r *http.Request) (caller, error) {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return caller{}, fault.New(fault.Unknown, "token_missing", "missing access token").
			WithRemedy("run trainyard login, or send the header Authorization: Bearer TOKEN")
	}

	now := s.Clock.Now()
	who, token, err := s.Directory.Authenticate(bearer, now)
	if err != nil {
		return caller{}, err
	}
	if !s.limiter.allow(string(token)) {
		return caller{}, tooOften()
	}

	s.used.set(token, now)

	return caller{who, token}, nil
}

// addressOf is the key under which the rate limiter counts requests without a token.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}

	return "from " + host
}

func tooOften() error {
	return fault.New(fault.OverLimit, "too_often", "too many requests").
		WithRemedy("wait a second, or ask an admin for a higher limit")
}

// callerOf returns who makes the request; authenticate has put it there.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// actionPhrases say what a caller who is denied cannot do.
var actionPhrases = map[tenant.Action]string{
	tenant.ReadJob:       "read jobs",
	tenant.ChangeJob:     "change jobs",
	tenant.SubmitJob:     "submit jobs",
	tenant.ReadNodes:     "list nodes",
	tenant.ChangeNodes:   "change nodes",
	tenant.ReadEvents:    "read events",
	tenant.ManageUsers:   "manage users",
	tenant.OwnTokens:     "manage tokens",
	tenant.ReadUsage:     "read usage and costs",
	tenant.ReadOffers:    "list offers",
	tenant.ManageQuotas:  "manage quotas",
	tenant.ManageLeases:  "release leases",
	tenant.ReadData:      "list datasets",
	tenant.ManageData:    "change datasets",
	tenant.OverridePlace: "override where data may be used",
}

// allow answers Denied unless the caller may do this to a thing of this owner.
func allow(ctx context.Context, a tenant.Action, owner id.User) error {
	return allowTo(ctx, actionPhrases[a], a, owner)
}

// allowTo is allow with words of its own for what the caller wants to do.
func allowTo(ctx context.Context, phrase string, a tenant.Action, owner id.User) error {
	c := callerOf(ctx)
	if c.May(a, owner) {
		return nil
	}

	if owner != "" && owner != c.User {
		phrase += " of " + string(owner)
	}

	denied := fault.New(fault.Denied, "not_allowed", "permission denied: %s cannot %s", c.User, phrase)

	wider := c
	wider.Scope = tenant.ScopeAdmin
	if wider.May(a, owner) {
		return denied.WithRemedy("the scope of this token is %s; use a token with a wider scope", c.Scope)
	}

	return denied.WithRemedy("ask an admin")
}

// ownerFilter returns whose things the caller gets to see: those of the owner that was
// asked for, or of everyone (""), or, where that is not for them, their own.
func ownerFilter(ctx context.Context, a tenant.Action, owner id.User) (id.User, error) {
	who := callerOf(ctx)
	if owner == "" && !who.May(a, "") {
		owner = who.User
	}

	return owner, allow(ctx, a, owner)
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
