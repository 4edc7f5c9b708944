// Package secrets keeps the secrets of users and projects, encrypted.
//
// It serves the steps queue and launch of a job's path: it says which stored secret a job gets for a name. It cannot
// decrypt anything, and holds no job back; the yardmaster does.
package secrets

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
)

// Secrets are the stored secrets with what has changed in them. It is not safe for concurrent use.
type Secrets struct {
	feed    *batch.Feed
	all     map[string]tenant.Secret // by path
	changed []tenant.Secret
}

// New returns none. Events go to the feed.
func New(feed *batch.Feed) *Secrets { return &Secrets{feed: feed, all: map[string]tenant.Secret{}} }

// Load restores the stored secrets.
func (s *Secrets) Load(state *batch.State) {
	for i := range state.Secrets {
		s.all[state.Secrets[i].Path()] = state.Secrets[i]
	}
}

// Take moves what has changed into a batch.
func (s *Secrets) Take(b *batch.Batch) { b.Secrets, s.changed = s.changed, nil }

// All returns all secrets by path.
func (s *Secrets) All() []tenant.Secret {
	list := make([]tenant.Secret, 0, len(s.all))
	for _, path := range slices.Sorted(maps.Keys(s.all)) {
		list = append(list, s.all[path])
	}

	return list
}

// Get returns the secret of a user or project.
func (s *Secrets) Get(of tenant.Subject, name string) (tenant.Secret, bool) {
	found, ok := s.all[tenant.SecretPath(of, name)]
	return found, ok
}

// Put stores a secret, or a new value of one.
func (s *Secrets) Put(now time.Time, set tenant.Secret, by id.User) (tenant.Secret, error) {
	old, known := s.all[set.Path()]
	kind, reason := "secret.changed", "new value set by "

	if !known {
		if s.count(set.Subject) >= tenant.MaxSecrets {
			return tenant.Secret{}, fault.New(fault.OverLimit, "too_many_secrets", "%s has %d secrets, the limit is %d",
				set.Subject, tenant.MaxSecrets, tenant.MaxSecrets).
				WithRemedy("remove some with trainyard secrets rm")
		}

		kind, reason = "secret.added", "set by "
		old.Created = now
	}

	set.Seq, set.Created, set.Updated, set.By = old.Seq+1, old.Created, now, by
	set.Removed, set.Problem = false, ""
	s.all[set.Path()] = set
	s.changed = append(s.changed, set)
	s.event(now, kind, &set, by, reason+string(by))

	return set, nil
}

// count returns how many secrets a user or project has.
func (s *Secrets) count(of tenant.Subject) int {
	n := 0
	for _, secret := range s.all {
		if secret.Subject == of {
			n++
		}
	}

	return n
}

// Remove deletes a secret.
func (s *Secrets) Remove(now time.Time, of tenant.Subject, name string, by id.User) (tenant.Secret, error) {
	gone, known := s.Get(of, name)
	if !known {
		return gone, fault.New(fault.NotFound, "secret_not_found", "secret %s of %s not found", name, of)
	}

	delete(s.all, gone.Path())
	gone.Removed, gone.Sealed = true, tenant.Sealed{}
	s.changed = append(s.changed, gone)
	s.event(now, "secret.removed", &gone, by, "removed by "+string(by))

	return gone, nil
}

// Rewrapped is a secret whose data key was encrypted with another master key.
type Rewrapped struct {
	Secret tenant.Secret // as it was
	Sealed tenant.Sealed // as it is to be stored
}

// Rewrap replaces the encrypted data keys of secrets that have not changed meanwhile.
func (s *Secrets) Rewrap(list []Rewrapped) {
	for i := range list {
		path := list[i].Secret.Path()
		current, known := s.all[path]
		if !known || !bytes.Equal(current.Sealed.DataKey, list[i].Secret.Sealed.DataKey) {
			continue
		}

		current.Seq++
		current.Sealed = list[i].Sealed
		s.all[path] = current
		s.changed = append(s.changed, current)
	}
}

func (s *Secrets) event(now time.Time, kind string, of *tenant.Secret, by id.User, reason string) {
	s.feed.Add(now, batch.Event{
		Kind: kind, Actor: string(by), Owner: of.Subject.User, To: of.Path(), Reason: "secret " + of.Path() + " " + reason,
	})
}
