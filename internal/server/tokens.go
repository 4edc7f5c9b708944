package server

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) tokenRoutes() {
	huma.Register(
		s.api,
		huma.Operation{OperationID: "list-tokens", Method: http.MethodGet, Path: "/api/v1/tokens", Summary: "List tokens",
			Security: byToken, Tags: []string{"access"}},
		s.listTokens,
	)

	huma.Register(
		s.api,
		huma.Operation{OperationID: "add-token", Method: http.MethodPost, Path: "/api/v1/tokens", Summary: "Create a token",
			DefaultStatus: http.StatusCreated, Security: byToken, Tags: []string{"access"}},
		s.addToken,
	)

	huma.Register(
		s.api,
		huma.Operation{
			OperationID:   "revoke-token",
			Method:        http.MethodDelete,
			Path:          "/api/v1/tokens/{token}",
			Summary:       "Revoke a token",
			DefaultStatus: http.StatusNoContent,
			Security:      byToken,
			Tags:          []string{"access"},
		},
		s.revokeToken,
	)

	huma.Register(s.api, s.op("revoke-tokens", http.MethodDelete, "/api/v1/tokens",
		"Revoke all tokens of a user, except the one of this request", "access"), s.revokeTokens)
}

// The lives of tokens where nothing else is asked for, and the longest.
const (
	accessLife = 30 * 24 * time.Hour
	loginLife  = 90 * 24 * time.Hour // of the token that a bootstrap token is exchanged for
	shortLife  = time.Hour           // of a join or bootstrap token
	longest    = 366 * 24 * time.Hour
)

func (s *Server) newToken(
	ctx context.Context,
	answer any,
	secret auth.Secret,
	err error,
) (*httpapi.Body[api.NewToken], error) {
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	t, _ := answer.(tenant.Token)

	return &httpapi.Body[api.NewToken]{Body: api.NewToken{Token: s.toToken(&t), Text: secret.Text}}, nil
}

type listTokensInput struct {
	Paging
	Owner string `query:"owner" maxLength:"63" doc:"only tokens of this user; users who are not admins see only their own"`
}

func (s *Server) listTokens(ctx context.Context, in *listTokensInput) (*httpapi.Body[api.TokenPage], error) {
	who := callerOf(ctx)
	owner := id.User(in.Owner)
	if owner == "" && !who.May(tenant.ManageUsers, "") {
		owner = who.User
	}

	if owner == who.User {
		if err := allow(ctx, tenant.ReadTokens, owner); err != nil {
			return nil, httpapi.ToProblem(err)
		}
	} else if err := allow(ctx, tenant.ManageUsers, ""); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	tokens, err := s.Store.Tokens(ctx, owner, id.Token(in.Cursor), in.Limit+1)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.TokenPage{Tokens: []api.Token{}}
	if len(tokens) > in.Limit {
		tokens = tokens[:in.Limit]
		page.Next = string(tokens[len(tokens)-1].ID)
	}

	for i := range tokens {
		page.Tokens = append(page.Tokens, s.toToken(&tokens[i]))
	}

	return &httpapi.Body[api.TokenPage]{Body: page}, nil
}

func (s *Server) addToken(
	ctx context.Context,
	in *httpapi.Body[api.TokenRequest],
) (*httpapi.Body[api.NewToken], error) {
	t, err := s.wantedToken(ctx, &in.Body)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	secret, err := auth.Mint(t.Kind, rand.Reader, s.CA.Hash())
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	t.ID, t.Hash = secret.ID, secret.Hash
	who := callerOf(ctx)
	answer, err := s.do(ctx, yardmaster.AddToken{Token: t, With: who.token, By: string(who.User)})

	made, err := s.newToken(ctx, answer, secret, err)
	if err == nil && t.Kind == tenant.JoinToken {
		made.Body.Servers = s.Servers()
		if len(made.Body.Servers) == 0 {
			made.Body.Servers = []string{s.Address}
		}
	}

	return made, err
}

// wantedToken checks a request for a token and fills in what was left out.
// Nobody can create a token with more rights than their own.
func (s *Server) wantedToken(ctx context.Context, r *api.TokenRequest) (tenant.Token, error) {
	who := callerOf(ctx)
	t := tenant.Token{Kind: r.Kind, Owner: r.Owner, Note: r.Note}
	if t.Owner == "" {
		t.Owner = who.User
	}

	life := accessLife
	switch {
	case r.Kind == tenant.JoinToken:
		if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
			return t, err
		}

		life, t.Class, t.Pool, t.UsesLeft = shortLife, r.Class, r.Pool, max(r.Uses, 1)
		t.Owner = who.User
		if t.Class == "" {
			t.Class = string(fleet.Local)
		}
	case r.Kind == tenant.BootstrapToken:
		// What it is exchanged for stands for itself, so that nobody can get it with their own token.
		if err := allowIn(ctx, "create tokens for a login", tenant.ManageUsers, "", ""); err != nil {
			return t, err
		}

		life, t.UsesLeft = shortLife, 1
	case t.Owner != who.User:
		if err := allow(ctx, tenant.ManageUsers, ""); err != nil {
			return t, err
		}
		if s.Personal {
			return t, personalYard(t.Owner)
		}
	default:
		if err := allow(ctx, tenant.OwnTokens, t.Owner); err != nil {
			return t, err
		}
	}

	if r.Kind != tenant.JoinToken {
		t.Scope = r.Scope

		switch {
		case t.Scope != "":
		case r.Kind == tenant.BootstrapToken:
			t.Scope = tenant.ScopeTokens
		default:
			t.Scope = tenant.ScopeSubmit
		}

		if !who.Scope.Includes(t.Scope) {
			return t, fault.New(fault.Denied, "wider_scope", "a token of scope %s cannot create one of scope %s", who.Scope,
				t.Scope).
				WithField("scope")
		}
	}

	if r.TTL != "" {
		d, err := job.ParseDuration(r.TTL)
		if err != nil || d <= 0 || time.Duration(d) > longest {
			return t, fault.New(fault.Invalid, "bad_ttl", "invalid token lifetime %q", r.TTL).
				WithField("ttl").
				WithRemedy("use a duration such as 12h or 30d, at most 366d")
		}

		life = time.Duration(d)
	}

	t.Expires = s.Clock.Now().Add(life)

	return t, nil
}

type tokenInput struct {
	Token string `path:"token" maxLength:"40"`
}

// revokeToken revokes a token. Every token may end itself, so that a login can always be ended.
func (s *Server) revokeToken(ctx context.Context, in *tokenInput) (*struct{}, error) {
	t, ok := s.Directory.Token(id.Token(in.Token))
	who := callerOf(ctx)

	switch {
	case ok && (t.ID == who.token || who.May(tenant.ManageUsers, "")):
	case ok && t.Owner == who.User:
		if err := allow(ctx, tenant.OwnTokens, t.Owner); err != nil {
			return nil, httpapi.ToProblem(err)
		}
	default:
		httpapi.RecordOf(ctx).Hidden = ok
		return nil, httpapi.ToProblem(fault.New(fault.NotFound, "token_not_found", "token %s not found", in.Token))
	}

	if _, err := s.do(ctx, yardmaster.RevokeToken{Token: t.ID, By: string(who.User)}); err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

type revokeTokensInput struct {
	Owner string `query:"owner" maxLength:"63" doc:"user whose tokens are revoked; default: the caller"`
}

// revokeTokens revokes all tokens of a user, except the one with which it is asked for.
func (s *Server) revokeTokens(ctx context.Context, in *revokeTokensInput) (*httpapi.Body[api.RevokedTokens], error) {
	who := callerOf(ctx)
	owner, a, of := who.User, tenant.OwnTokens, who.User

	if in.Owner != "" && in.Owner != string(who.User) {
		owner, a, of = id.User(in.Owner), tenant.ManageUsers, ""
	}

	err := allow(ctx, a, of)
	if err == nil {
		err = s.knownUser(ctx, owner)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.RevokeTokens{Owner: owner, Except: who.token, By: string(who.User)})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	n, _ := answer.(int)

	return &httpapi.Body[api.RevokedTokens]{Body: api.RevokedTokens{Revoked: n}}, nil
}
