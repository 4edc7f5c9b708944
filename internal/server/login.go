package server

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) loginRoutes() {
	huma.Register(s.api, huma.Operation{OperationID: "login", Method: http.MethodPost, Path: "/api/v1/login",
		Summary: "Exchange a bootstrap token for an access token", Tags: []string{"access"}}, s.login)
	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "whoami",
			Method:      http.MethodGet,
			Path:        "/api/v1/whoami",
			Summary:     "Show the authenticated user",
			Security:    byToken,
			Tags:        []string{"access"},
		},
		s.whoami,
	)
}

func (s *Server) login(ctx context.Context, in *httpapi.Body[api.LoginRequest]) (*httpapi.Body[api.NewToken], error) {
	now := s.Clock.Now()
	boot, err := s.Directory.Check(tenant.BootstrapToken, in.Body.Token, now)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	record := httpapi.RecordOf(ctx)
	record.Actor, record.Token = "token/"+string(boot.ID), boot.ID

	secret, err := auth.Mint(tenant.AccessToken, rand.Reader, s.CA.Hash())
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.Exchange{Bootstrap: boot.ID, Token: tenant.Token{
		ID:      secret.ID,
		Kind:    tenant.AccessToken,
		Hash:    secret.Hash,
		Note:    in.Body.Note,
		Expires: now.Add(loginLife),
	}})

	return s.newToken(ctx, answer, secret, err)
}

func (s *Server) whoami(ctx context.Context, _ *struct{}) (*httpapi.Body[api.Whoami], error) {
	return &httpapi.Body[api.Whoami]{Body: s.whoamiOf(callerOf(ctx))}, nil
}

// whoamiOf describes a caller to themselves.
func (s *Server) whoamiOf(c caller) api.Whoami {
	who := api.Whoami{User: c.User, Role: c.Role, Scope: c.Scope, Token: c.token, Member: c.Member, Leads: c.Leads,
		Demo: s.Demo}
	if t, ok := s.Directory.Token(c.token); ok {
		who.Expires, who.Parent = t.Expires.UTC(), t.Parent
	}

	return who
}
