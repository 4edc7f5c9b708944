package tenant

import (
	"time"

	"trainyard/internal/id"
)

// The limits of a secret. A shorter value could not be masked in output without masking much else, and all secrets
// of a job together must fit into the environment of a program.
const (
	MinSecret  = 8
	MaxSecret  = 32 << 10
	MaxSecrets = 200 // of one user or project
)

// Secret is a value that jobs get and that nobody is shown. The yard knows it encrypted only.
type Secret struct {
	Subject Subject   `json:"subject"` // the user or project whose jobs get it
	Name    string    `json:"name"`    // of the variable that holds it
	Seq     uint64    `json:"seq"`
	Sealed  Sealed    `json:"sealed"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"` // when its value was last set
	By      id.User   `json:"by"`      // who set it
	Removed bool      `json:"-"`       // it is deleted from the store
	// Problem says why its value cannot be decrypted, "" if it can. It is not stored; whoever loads the yard finds out.
	Problem string `json:"-"`
}

// Sealed is the encrypted value of a secret: the value encrypted with a data key of its own, and the data key
// encrypted with the master key of this name.
type Sealed struct {
	Key     string `json:"key"`
	DataKey []byte `json:"data_key"`
	Value   []byte `json:"value"`
}

// SecretPath identifies a secret: user/ada/WANDB_API_KEY.
func SecretPath(s Subject, name string) string { return s.String() + "/" + name }

// Path identifies the secret.
func (s *Secret) Path() string { return SecretPath(s.Subject, s.Name) }
