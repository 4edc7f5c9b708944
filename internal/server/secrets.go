package server

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
	"trainyard/internal/yardmaster/secrets"
)

func (s *Server) secretRoutes() {
	const tag, path = "secrets", "/api/v1/secrets/{kind}/{of}/{name}"
	huma.Register(
		s.api,
		s.op("list-secrets", http.MethodGet, "/api/v1/secrets", "List the names of secrets", tag),
		s.listSecrets,
	)

	set := s.op("put-secret", http.MethodPut, path, "Set a secret of a user or project", tag)
	set.MaxBodyBytes = 8 * tenant.MaxSecret // a character may be written as six
	huma.Register(s.api, set, s.putSecret)
	remove := s.op("remove-secret", http.MethodDelete, path, "Delete a secret", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeSecret)
	huma.Register(
		s.api,
		s.op("rotate-secret-key", http.MethodPost, "/api/v1/secrets/rotate-key",
			"Encrypt all secrets with a new master key", tag),
		s.rotateSecretKey,
	)
}

// listSecrets shows an admin all; others their own and those of the projects that they lead.
func (s *Server) listSecrets(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.SecretPage], error) {
	who := callerOf(ctx)

	var all []tenant.Secret
	if err := s.query(ctx, func(y *yardmaster.Yard) { all = y.Secrets() }); err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.SecretPage{Secrets: []api.Secret{}}
	last := ""
	for i := range all {
		one := &all[i]
		if one.OfChannel() || one.Path() <= in.Cursor || !who.MayIn(tenant.ReadSecrets, one.Subject.User,
			one.Subject.Project) {
			continue
		}

		if len(page.Secrets) == in.Limit {
			page.Next = last
			break
		}

		page.Secrets = append(page.Secrets, toSecret(one))
		last = one.Path()
	}

	return &httpapi.Body[api.SecretPage]{Body: page}, nil
}

// toSecret leaves out all that is encrypted.
func toSecret(s *tenant.Secret) api.Secret {
	return api.Secret{
		Subject: s.Subject.String(), Name: s.Name, Created: shown(s.Created), Updated: shown(s.Updated), By: s.By,
		Problem: s.Problem,
	}
}

type secretInput struct {
	Kind string `path:"kind" enum:"user,project"`
	Of   string `path:"of" maxLength:"63" doc:"name of the user or project"`
	Name string `path:"name" maxLength:"100" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" doc:"name of the environment variable"`
}

// subject is whose secret it is, if the caller may change it: their own, those of projects that they lead, and for
// admins all.
func (in *secretInput) subject(ctx context.Context) (tenant.Subject, error) {
	of := tenant.Subject{Project: id.Project(in.Of)}
	if in.Kind == "user" {
		of = tenant.Subject{User: id.User(in.Of)}
	}

	return of, allowIn(ctx, actionPhrases[tenant.ManageSecrets], tenant.ManageSecrets, of.User, of.Project)
}

type putSecretInput struct {
	Kind string `path:"kind" enum:"user,project"`
	Of   string `path:"of" maxLength:"63" doc:"name of the user or project"`
	Name string `path:"name" maxLength:"100" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" doc:"name of the environment variable"`
	Body api.SecretRequest
}

func (s *Server) putSecret(ctx context.Context, in *putSecretInput) (*httpapi.Body[api.Secret], error) {
	of, err := (&secretInput{Kind: in.Kind, Of: in.Of, Name: in.Name}).subject(ctx)
	if err == nil {
		err = s.knownUser(ctx, of.User)
	}
	if err == nil {
		err = checkSecret(in.Name, in.Body.Value)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	sealed, err := s.Vault.Seal(ctx, of, in.Name, in.Body.Value)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.PutSecret{
		Secret: tenant.Secret{Subject: of, Name: in.Name, Sealed: sealed}, By: callerOf(ctx).User,
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	set, _ := answer.(tenant.Secret)

	return &httpapi.Body[api.Secret]{Body: toSecret(&set)}, nil
}

// checkSecret refuses what a program could not get or output could not be masked for. No message says anything of the
// value but its length.
func checkSecret(name, value string) error {
	fail := func(code, field, remedy, message string, args ...any) error {
		return fault.New(fault.Invalid, code, message, args...).WithField(field).WithRemedy("%s", remedy)
	}

	switch {
	case strings.HasPrefix(name, "TRAINYARD_"):
		return fail("bad_name", "name", "use another name", "name must not start with TRAINYARD_, got %s", name)
	case len(value) < tenant.MinSecret:
		return fail("secret_too_short", "value", "values that short cannot be masked in output; pass them with env",
			"value must have at least %d bytes, got %d", tenant.MinSecret, len(value))
	case len(value) > tenant.MaxSecret:
		return fail("too_large", "value", "put the secret part of it into a secret of its own",
			"value must have at most %d bytes, got %d", tenant.MaxSecret, len(value))
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return fail("bad_value", "value", "encode binary values, for example with base64",
			"value must be UTF-8 text without NUL characters")
	case strings.TrimSpace(value) == "":
		return fail("bad_value", "value", "set the value itself", "value must not consist of white space")
	}

	return nil
}

func (s *Server) removeSecret(ctx context.Context, in *secretInput) (*struct{}, error) {
	of, err := in.subject(ctx)
	if err == nil {
		_, err = s.do(ctx, yardmaster.RemoveSecret{Subject: of, Name: in.Name, By: callerOf(ctx).User})
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

// rotateSecretKey makes a new master key, encrypts all data keys with it, and forgets the earlier keys when no secret
// needs them any more. If it is interrupted both keys stay, and the next rotation completes it.
func (s *Server) rotateSecretKey(ctx context.Context, _ *struct{}) (*httpapi.Body[api.KeyRotation], error) {
	if err := allow(ctx, tenant.RotateSecrets, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	s.rotation.Lock()
	defer s.rotation.Unlock()

	stale, err := s.staleSecrets(ctx, "")
	if err == nil {
		_, err = s.rewrap(ctx, stale) // with the present key: all must be readable before anything changes
	}
	if err == nil {
		err = s.Vault.KMS.Rotate(ctx)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	done := api.KeyRotation{}
	done.Key, err = s.Vault.KMS.Active(ctx)
	for err == nil {
		stale, err = s.staleSecrets(ctx, done.Key)
		if err != nil || len(stale) == 0 {
			break
		}

		var list []secrets.Rewrapped
		list, err = s.rewrap(ctx, stale)
		if err == nil {
			_, err = s.do(ctx, yardmaster.RewrapSecrets{Secrets: list, By: callerOf(ctx).User})
			done.Secrets += len(list)
		}
	}

	if err == nil {
		err = s.Vault.KMS.Retire(ctx)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.KeyRotation]{Body: done}, nil
}

// staleSecrets returns the secrets whose data keys are encrypted with another master key than this one.
func (s *Server) staleSecrets(ctx context.Context, key string) (stale []tenant.Secret, err error) {
	var all []tenant.Secret
	err = s.query(ctx, func(y *yardmaster.Yard) { all = y.Secrets() })

	for i := range all {
		if all[i].Sealed.Key != key {
			stale = append(stale, all[i])
		}
	}

	return stale, err
}

func (s *Server) rewrap(ctx context.Context, list []tenant.Secret) ([]secrets.Rewrapped, error) {
	out := make([]secrets.Rewrapped, len(list))
	for i := range list {
		sealed, err := s.Vault.Rewrap(ctx, &list[i])
		if err != nil {
			return nil, err
		}

		out[i] = secrets.Rewrapped{Secret: list[i], Sealed: sealed}
	}

	return out, nil
}
