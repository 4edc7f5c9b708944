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
			err = s.openSecrets(ctx, &runs[i], sealed[i])
		}

		if err != nil {
			runs[i].SecretsError = err.Error()
		}
	}

	return nil
}

// wantsSecrets reports whether an assignment may still be started and asks for secrets.
func wantsSecrets(a *api.Assignment) bool {
	return (len(a.Launch.Secrets) > 0 || a.Launch.RegistryAuth != "") && a.Stop == job.StopNone
}

// openSecrets decrypts the secrets of an assignment and adds them to it. Those of its program come in the order of its
// job file, and after them the credentials for its registry.
func (s *Server) openSecrets(ctx context.Context, a *api.Assignment, sealed []tenant.Secret) error {
	values := make([]string, len(sealed))

	for i := range sealed {
		var err error
		if values[i], err = s.Vault.Open(ctx, &sealed[i]); err != nil {
			return err
		}
	}

	for i, entry := range a.Launch.Secrets {
		name, file := job.SecretName(entry)
		a.Secrets = append(a.Secrets, api.SecretValue{Name: name, Value: values[i], File: file})
	}

	if a.Launch.RegistryAuth != "" {
		a.RegistryAuth = values[len(a.Launch.Secrets)]
	}

	return nil
}
