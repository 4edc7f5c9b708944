package agentapi

import (
	"context"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// addSecrets adds the values of their secrets to the assignments that are to be started, as they are now: a job that is
// retried or moved gets the current ones. An assignment whose secrets are gone or cannot be decrypted says so instead.
func (s *Server) addSecrets(ctx context.Context, runs []api.Assignment) error {
	sealed := map[int][]tenant.Secret{}
	refused := map[int]error{}
	wanted := false

	for i := range runs {
		wanted = wanted || wantsSecrets(&runs[i])
	}

	if !wanted {
		return nil
	}

	err := s.query(ctx, func(y *yardmaster.Yard) {
		for i := range runs {
			if wantsSecrets(&runs[i]) {
				sealed[i], refused[i] = y.SecretsOf(runs[i].Job)
			}
		}
	})
	if err != nil {
		return err
	}

	for i := range sealed {
		err := refused[i]
		if err == nil {
			runs[i].Secrets, err = s.openSecrets(ctx, runs[i].Launch.Secrets, sealed[i])
		}

		if err != nil {
			runs[i].SecretsError = err.Error()
		}
	}

	return nil
}

// wantsSecrets reports whether an assignment may still be started and asks for secrets.
func wantsSecrets(a *api.Assignment) bool { return len(a.Launch.Secrets) > 0 && a.Stop == job.StopNone }

// openSecrets decrypts the secrets of a job, in the order of its job file.
func (s *Server) openSecrets(ctx context.Context, entries []string, sealed []tenant.Secret) ([]api.SecretValue, error) {
	list := make([]api.SecretValue, len(sealed))
	for i := range sealed {
		value, err := s.Vault.Open(ctx, &sealed[i])
		if err != nil {
			return nil, err
		}

		name, file := job.SecretName(entries[i])
		list[i] = api.SecretValue{Name: name, Value: value, File: file}
	}

	return list, nil
}
