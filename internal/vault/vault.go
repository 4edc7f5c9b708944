// Package vault encrypts the secrets of users and projects, so that neither the database nor a backup of it holds one
// in clear.
//
// Each secret is encrypted with a data key of its own, and the data key with a master key that a KMS keeps (envelope
// encryption). Another master key means that data keys are encrypted again, not secrets. Both steps authenticate whose
// secret it is and its name, so that one cannot be passed off as another. The server seals what people set and opens
// what the nodes of a run need; nothing else calls it, and it stores no secret.
package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"trainyard/internal/fault"
	"trainyard/internal/tenant"
)

// KMS keeps master keys and encrypts data keys with them. Keys have names. The context is authenticated with the data
// key: Unwrap fails if it is not the one that Wrap got.
type KMS interface {
	// Active returns the name of the key that Wrap uses.
	Active(ctx context.Context) (string, error)
	// Wrap encrypts a data key with the active key and returns the name of that.
	Wrap(ctx context.Context, dataKey, context []byte) (key string, wrapped []byte, err error)
	// Unwrap decrypts a data key that was encrypted with a key of this name.
	Unwrap(ctx context.Context, key string, wrapped, context []byte) ([]byte, error)
	// Rotate makes a new key the active one. Earlier ones can still unwrap.
	Rotate(ctx context.Context) error
	// Retire forgets all keys but the active one.
	Retire(ctx context.Context) error
}

// Vault encrypts and decrypts secrets. It is safe for concurrent use if its KMS is.
type Vault struct{ KMS KMS }

// keySize is that of AES-256.
const keySize = 32

// contextOf is what is authenticated with a secret.
func contextOf(of tenant.Subject, name string) []byte {
	return []byte("trainyard secret 1\x00" + of.String() + "\x00" + name)
}

// Seal encrypts the value of a secret.
func (v *Vault) Seal(ctx context.Context, of tenant.Subject, name, value string) (tenant.Sealed, error) {
	dataKey := make([]byte, keySize)
	if _, err := rand.Read(dataKey); err != nil {
		return tenant.Sealed{}, fmt.Errorf("make a data key: %w", err)
	}

	bound := contextOf(of, name)
	key, wrapped, err := v.KMS.Wrap(ctx, dataKey, bound)
	if err != nil {
		return tenant.Sealed{}, err
	}

	aead, err := newAEAD(dataKey)
	if err != nil {
		return tenant.Sealed{}, err
	}

	return tenant.Sealed{Key: key, DataKey: wrapped, Value: aead.Seal(nil, nil, []byte(value), bound)}, nil
}

// Open decrypts a secret.
func (v *Vault) Open(ctx context.Context, s *tenant.Secret) (string, error) {
	dataKey, err := v.unwrap(ctx, s)
	if err != nil {
		return "", err
	}

	aead, err := newAEAD(dataKey)
	if err != nil {
		return "", err
	}

	value, err := aead.Open(nil, nil, s.Sealed.Value, contextOf(s.Subject, s.Name))
	if err != nil {
		return "", damaged(s, err)
	}

	return string(value), nil
}

// Check finds out which of the stored secrets cannot be decrypted, and notes why in them.
func (v *Vault) Check(ctx context.Context, stored []tenant.Secret) {
	for i := range stored {
		if _, err := v.Open(ctx, &stored[i]); err != nil {
			stored[i].Problem = err.Error()
		}
	}
}

// Rewrap encrypts the data key of a secret with the active master key.
func (v *Vault) Rewrap(ctx context.Context, s *tenant.Secret) (tenant.Sealed, error) {
	dataKey, err := v.unwrap(ctx, s)
	if err != nil {
		return tenant.Sealed{}, err
	}

	key, wrapped, err := v.KMS.Wrap(ctx, dataKey, contextOf(s.Subject, s.Name))

	return tenant.Sealed{Key: key, DataKey: wrapped, Value: s.Sealed.Value}, err
}

func (v *Vault) unwrap(ctx context.Context, s *tenant.Secret) ([]byte, error) {
	dataKey, err := v.KMS.Unwrap(ctx, s.Sealed.Key, s.Sealed.DataKey, contextOf(s.Subject, s.Name))
	if errors.Is(err, errForged) {
		return nil, damaged(s, err)
	}

	return dataKey, err
}

// errForged says that a ciphertext was not made with this key and context.
var errForged = errors.New("it was encrypted with another key, for another secret, or was changed")

func damaged(s *tenant.Secret, err error) error {
	return fault.New(fault.Internal, "secret_damaged", "secret %s cannot be decrypted with key %s: %v",
		s.Path(), s.Sealed.Key, errForged).
		WithRemedy("put back the key file that was in use when it was set, or set the secret again").WithCause(err)
}

// newAEAD returns AES-256-GCM with a random nonce in front of each ciphertext.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("use a key: %w", err)
	}

	return cipher.NewGCMWithRandomNonce(block)
}
