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
}

// The lives of tokens where nothing else is asked for, and the longest.
const (
	accessLife = 30 * 24 * time.Hour
	adminLife  = 90 * 24 * time.Hour // of the token that a bootstrap token is exchanged for
	joinLife   = time.Hour
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
		if err := allow(ctx, tenant.OwnTokens, owner); err != nil {
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
	answer, err := s.do(ctx, yardmaster.AddToken{Token: t, By: string(callerOf(ctx).User)})

	return s.newToken(ctx, answer, secret, err)
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

		life, t.Class, t.Pool, t.UsesLeft = joinLife, r.Class, r.Pool, max(r.Uses, 1)
		if t.Class == "" {
			t.Class = string(fleet.Local)
		}
	case t.Owner != who.User:
		if err := allow(ctx, tenant.ManageUsers, ""); err != nil {
			return t, err
		}
	default:
		if err := allow(ctx, tenant.OwnTokens, t.Owner); err != nil {
			return t, err
		}
	}

	if r.Kind == tenant.AccessToken {
		t.Scope = r.Scope
		if t.Scope == "" {
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

func (s *Server) revokeToken(ctx context.Context, in *tokenInput) (*struct{}, error) {
	t, ok := s.Directory.Token(id.Token(in.Token))
	who := callerOf(ctx)
	may := ok && (who.May(tenant.ManageUsers, "") || who.May(tenant.OwnTokens, t.Owner))
	if !may {
		return nil, httpapi.ToProblem(fault.New(fault.NotFound, "token_not_found", "there is no token %s", in.Token))
	}
	if _, err := s.do(ctx, yardmaster.RevokeToken{Token: t.ID, By: string(who.User)}); err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}
