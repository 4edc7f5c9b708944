package yardmaster

import (
	"fmt"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/secrets"
)

// PutSecret stores a secret of a user or project, which the server has encrypted. The answer is the secret.
type PutSecret struct {
	Secret tenant.Secret
	By     id.User
}

func (m PutSecret) handle(y *Yard) (any, error) {
	if p := m.Secret.Subject.Project; p != "" && !y.people.Restricted(p) {
		return nil, fault.New(fault.NotFound, "project_not_found", "project %s not found", p).
			WithRemedy("only a project with members has secrets: trainyard projects add %s", p)
	}

	set, err := y.secrets.Put(y.now, m.Secret, m.By)
	if err != nil {
		return nil, err
	}

	y.requeueHeld()

	return set, nil
}

// RemoveSecret deletes a secret. Queued jobs that need it are held; those that run keep what they have.
type RemoveSecret struct {
	Subject tenant.Subject
	Name    string
	By      id.User
}

func (m RemoveSecret) handle(y *Yard) (any, error) {
	gone, err := y.secrets.Remove(y.now, m.Subject, m.Name, m.By)
	if err != nil {
		return nil, err
	}

	for _, j := range sortedKeys(y.jobs) {
		if r := y.jobs[j]; r.item != nil && y.lacksSecret(r) != "" {
			y.requeue(r)
		}
	}

	return gone, nil
}

// RewrapSecrets stores data keys that the server has encrypted with another master key.
type RewrapSecrets struct {
	Secrets []secrets.Rewrapped
	By      id.User
}

func (m RewrapSecrets) handle(y *Yard) (any, error) { //nolint:unparam // Message wants both results
	y.secrets.Rewrap(m.Secrets)
	y.event(Event{
		Kind: "secret.rotated", Actor: string(m.By),
		Reason: fmt.Sprintf("%s encrypted with a new master key by %s", humanize.Count(len(m.Secrets), "secret"), m.By),
	})

	return nil, nil
}

// Secrets returns all secrets by path.
func (y *Yard) Secrets() []tenant.Secret { return y.secrets.All() }

// SecretsOf returns the secrets that a job gets now, in the order of its SecretNames.
func (y *Yard) SecretsOf(j id.Job) ([]tenant.Secret, error) {
	r, ok := y.jobs[j]
	if !ok {
		return nil, fault.New(fault.NotFound, "job_not_found", "job %s not found", j)
	}

	names := r.Spec.SecretNames()
	list := make([]tenant.Secret, len(names))

	for i, name := range names {
		found, ok := y.secretFor(r, name)
		if !ok {
			return nil, fault.New(fault.NotFound, "secret_not_found", "secret %s not found", name)
		}

		list[i] = found
	}

	return list, nil
}

// secretFor returns the secret that a job gets for a name: its owner's own, else that of its project, if the owner may
// use that.
func (y *Yard) secretFor(r *jobRecord, name string) (tenant.Secret, bool) {
	if own, ok := y.secrets.Get(tenant.Subject{User: r.Owner}, name); ok {
		return own, true
	}

	if r.Project == "" || !y.mayUseProject(r.Owner, r.Project) {
		return tenant.Secret{}, false
	}

	return y.secrets.Get(tenant.Subject{Project: r.Project}, name)
}

// mayUseProject reports whether a user's jobs get the secrets of a project: those of its members do. The name of a
// project without a record is a label that everybody may use, and it has no secrets.
func (y *Yard) mayUseProject(u id.User, p id.Project) bool {
	_, err := y.people.MayUse(u, p)
	return err == nil && y.people.Restricted(p)
}

// removeSecretsOf deletes the secrets of a project whose record is removed: whoever adds it again may have other
// members in mind.
func (y *Yard) removeSecretsOf(p id.Project, by string) {
	for _, s := range y.secrets.All() {
		if s.Subject.Project == p {
			_, err := y.secrets.Remove(y.now, s.Subject, s.Name, id.User(by))
			y.must(err)
		}
	}
}

// lacksSecret says which secret a job cannot have and what to do, "" if it can have all.
func (y *Yard) lacksSecret(r *jobRecord) string {
	for _, name := range r.Spec.SecretNames() {
		found, ok := y.secretFor(r, name)
		switch {
		case !ok:
			return fmt.Sprintf("secret %s not found; set it with trainyard secrets set %s", name, name)
		case found.Problem != "":
			return fmt.Sprintf("secret %s: %s", name, found.Problem)
		}
	}

	return ""
}

// checkSecrets refuses a job that asks for a secret that it cannot have.
func (y *Yard) checkSecrets(r *jobRecord) error {
	for i, name := range r.Spec.SecretNames() {
		if _, ok := y.secretFor(r, name); !ok {
			field := "secrets"
			if i == len(r.Spec.Secrets) {
				field = "registry_auth"
			}

			return fault.New(fault.Invalid, "secret_not_found", "secret %s not found", name).WithField(field).
				WithRemedy("set it with trainyard secrets set %s", name)
		}
	}

	return nil
}

// heldBack returns what keeps a job with so many GPUs out of the queue: a secret that it cannot have, or a quota. It is
// zero if nothing does.
func (y *Yard) heldBack(r *jobRecord, gpus int) hold {
	if reason := y.lacksSecret(r); reason != "" {
		return hold{reason: reason, kind: tenant.HoldSecret}
	}

	return y.quotaReached(r, gpus)
}
