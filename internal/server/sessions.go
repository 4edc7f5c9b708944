package server

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// A session is an access token that stays in the cookie of a browser: no script can read it, no other site can send
// it, and it is not accepted as a bearer token. It ends like any other token, or when its owner signs out.

// sessionLife is how long a browser stays signed in.
const sessionLife = 30 * 24 * time.Hour

func (s *Server) sessionRoutes() {
	const tag = "access"
	huma.Register(s.api, huma.Operation{
		OperationID: "sign-in", Method: http.MethodPost, Path: "/api/v1/session", Tags: []string{tag},
		Summary: "Begin a session of a browser, in a cookie",
	}, s.signIn)
	huma.Register(s.api, s.op("sign-out", http.MethodDelete, "/api/v1/session",
		"End the session of this browser", tag), s.signOut)
	huma.Register(s.api, s.op("sign-out-everywhere", http.MethodDelete, "/api/v1/sessions",
		"End all sessions of the caller, in all browsers", tag), s.signOutEverywhere)
}

type signInInput struct {
	Body    api.SignInRequest
	request *http.Request
}

// Resolve is part of huma.Resolver.
func (in *signInInput) Resolve(hc huma.Context) []error {
	in.request, _ = humago.Unwrap(hc)

	return nil
}

type signInOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      api.Whoami
}

// signIn begins a session for whoever has an access token, or the code of a link that trainyard up has printed.
func (s *Server) signIn(ctx context.Context, in *signInInput) (*signInOutput, error) {
	// Otherwise another site could sign a browser in as somebody else, who would then see what its user does.
	if err := s.origins.Check(in.request); err != nil {
		return nil, s.fail(ctx, crossOrigin())
	}

	secret, err := auth.Mint(tenant.AccessToken, rand.Reader, "")
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	now := s.Clock.Now()
	message := yardmaster.AddToken{Token: tenant.Token{
		ID: secret.ID, Kind: tenant.AccessToken, Hash: secret.Hash, Session: true, Note: "portal",
		Expires: now.Add(sessionLife),
	}}

	if in.Body.Code != "" {
		err = s.byCode(in, &message)
	} else {
		err = s.byAccessToken(in, &message)
	}

	if err != nil {
		return nil, s.fail(ctx, s.unknown(in.request, err))
	}

	record := httpapi.RecordOf(ctx)
	record.Actor, record.Token = message.By, message.With

	answer, err := s.do(ctx, message)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	t, _ := answer.(tenant.Token)
	who, _, err := s.Directory.Recheck(t.ID, now)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out := &signInOutput{Body: s.whoamiOf(caller{who, t.ID})}
	out.SetCookie = s.sessionCookie(in.request, secret.Text)
	out.SetCookie.MaxAge = int(t.Expires.Sub(now).Seconds())

	return out, nil
}

// byAccessToken lets the session be one of the token's owner, with its scope. It ends with the token.
func (s *Server) byAccessToken(in *signInInput, m *yardmaster.AddToken) error {
	who, token, err := s.Directory.Authenticate(in.Body.Token, s.Clock.Now())
	if err == nil && s.isSession(token) {
		err = noBearer()
	}

	if err != nil {
		return err
	}

	m.Token.Owner, m.Token.Scope, m.With, m.By = who.User, who.Scope, token, string(who.User)

	return nil
}

// byCode lets the session be one of whom the code of a link is for.
func (s *Server) byCode(in *signInInput, m *yardmaster.AddToken) error {
	user, ok := s.Codes.take(in.Body.Code, isLoopback(in.request), s.Clock.Now())
	if !ok {
		return fault.New(fault.Unknown, "code_invalid", "this link is not valid, or no longer").
			WithRemedy("a link works once, for a short time and on the machine of the server; sign in with a token, " +
				"or restart trainyard up for a new link")
	}

	m.Token.Owner, m.Token.Scope, m.By = user, tenant.ScopeAdmin, string(user)

	return nil
}

// isLoopback reports whether a request comes from this machine, and not through a proxy on it.
func isLoopback(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)

	return err == nil && net.ParseIP(host).IsLoopback() && r.Header.Get("X-Forwarded-For") == "" &&
		r.Header.Get("Forwarded") == ""
}

type sessionInput struct{ request *http.Request }

// Resolve is part of huma.Resolver.
func (in *sessionInput) Resolve(hc huma.Context) []error {
	in.request, _ = humago.Unwrap(hc)

	return nil
}

type signOutOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      api.RevokedTokens
}

// signOut ends the session that asks for it.
func (s *Server) signOut(ctx context.Context, in *sessionInput) (*signOutOutput, error) {
	who := callerOf(ctx)
	if !s.isSession(who.token) {
		problem := fault.New(fault.Conflict, "no_session", "token %s is not the session of a browser", who.token)

		return nil, s.fail(ctx, problem.WithRemedy("revoke it: trainyard logout"))
	}

	if _, err := s.do(ctx, yardmaster.RevokeToken{Token: who.token, By: string(who.User)}); err != nil {
		return nil, s.fail(ctx, err)
	}

	return s.signedOut(in, 1), nil
}

// signOutEverywhere ends all sessions of the caller. Their other tokens stay.
func (s *Server) signOutEverywhere(ctx context.Context, in *sessionInput) (*signOutOutput, error) {
	who := callerOf(ctx)

	answer, err := s.do(ctx, yardmaster.RevokeTokens{Owner: who.User, Sessions: true, By: string(who.User)})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	n, _ := answer.(int)

	return s.signedOut(in, n), nil
}

// signedOut removes the cookie.
func (s *Server) signedOut(in *sessionInput, ended int) *signOutOutput {
	out := &signOutOutput{Body: api.RevokedTokens{Revoked: ended}}
	out.SetCookie = s.sessionCookie(in.request, "")
	out.SetCookie.MaxAge = -1

	return out
}

// sessionCookie is the cookie with the token of a session. It has no path: browsers take the folder of the call then,
// which is that of the API, also where a proxy serves the yard below a path.
func (s *Server) sessionCookie(r *http.Request, text string) http.Cookie {
	return http.Cookie{
		Name: s.cookieName(), Value: text, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}

// cookieName differs from yard to yard: browsers give the cookies of a host to all its ports.
func (s *Server) cookieName() string { return "trainyard-" + s.CA.Hash()[:16] }

// isSession reports whether a token is a session.
func (s *Server) isSession(token id.Token) bool {
	t, _ := s.Directory.Token(token)

	return t.Session
}

// presented returns the token of a request: that of the header Authorization, or that of a session.
func (s *Server) presented(r *http.Request) (text string, session bool, err error) {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return bearer, false, nil
	}

	cookie, err := r.Cookie(s.cookieName())
	if err != nil || cookie.Value == "" {
		return "", false, fault.New(fault.Unknown, "token_missing", "missing access token").
			WithRemedy("run trainyard login, or send the header Authorization: Bearer TOKEN")
	}

	// A cookie is sent whoever made the browser send the request.
	if err := s.origins.Check(r); err != nil {
		return "", true, crossOrigin()
	}

	return cookie.Value, true, nil
}

func crossOrigin() error {
	return fault.New(fault.Denied, "cross_origin", "permission denied: the request comes from a page of another site").
		WithRemedy("open the portal itself")
}

func noBearer() error {
	return fault.New(fault.Unknown, "token_invalid", "the token of a session is only accepted in its cookie").
		WithRemedy("use an access token: trainyard tokens create")
}
