package vault

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// KeyFile is a KMS whose master keys are in a file that only the server's user may read.
type KeyFile struct {
	path string
	clk  clock.Clock

	mu      sync.Mutex
	keys    []masterKey // the last is active; none if there is a problem
	problem error
}

// masterKey is one key of the file.
type masterKey struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Key     []byte    `json:"key"`
}

// keyFileContent is the JSON text of the file.
type keyFileContent struct {
	Comment string      `json:"comment"`
	Keys    []masterKey `json:"keys"`
}

const keyFileComment = "Master keys of the yard's secrets. Without this file the secrets in the database are lost. " +
	"Keep a copy, apart from the backups of the database."

// OpenKeyFile reads a key file. A file that is not there is made if no secret was stored with another one. If it cannot
// be used the error is kept, and whatever needs a key fails with it: the rest of the yard works without.
func OpenKeyFile(path string, clk clock.Clock, first bool) *KeyFile {
	f := &KeyFile{path: path, clk: clk}
	f.keys, f.problem = readKeyFile(path)

	if errors.Is(f.problem, fs.ErrNotExist) {
		if first {
			f.problem = f.rotate()
		} else {
			f.problem = fault.New(fault.Unavailable, "secrets_key_missing", "key file %s of the secrets not found", path).
				WithRemedy("put it back from its backup and restart the server")
		}
	}

	return f
}

// Problem returns why the file cannot be used, nil if it can.
func (f *KeyFile) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.problem
}

func readKeyFile(path string) ([]masterKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fault.New(fault.Denied, "secrets_key_open", "key file %s of the secrets has mode %04o", path, mode).
			WithRemedy("others may have read it: chmod 600 it, restart the server, and run trainyard secrets rotate-key")
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key file of the secrets: %w", err)
	}

	var content keyFileContent
	err = json.Unmarshal(text, &content)
	for _, k := range content.Keys {
		if len(k.Key) != keySize || k.Name == "" {
			err = errors.Join(err, fmt.Errorf("key %q must have %d bytes, has %d", k.Name, keySize, len(k.Key)))
		}
	}

	if err == nil && len(content.Keys) == 0 {
		err = errors.New("it has no key")
	}

	if err != nil {
		return nil, fault.New(fault.Internal, "secrets_key_damaged", "key file %s of the secrets is damaged: %v", path, err).
			WithRemedy("put it back from its backup and restart the server").WithCause(err)
	}

	return content.Keys, nil
}

// Active returns the name of the newest key.
func (f *KeyFile) Active(context.Context) (string, error) {
	key, err := f.active()
	return key.Name, err
}

func (f *KeyFile) active() (masterKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.problem != nil {
		return masterKey{}, f.problem
	}

	return f.keys[len(f.keys)-1], nil
}

// Wrap encrypts a data key with the newest key.
func (f *KeyFile) Wrap(_ context.Context, dataKey, bound []byte) (string, []byte, error) {
	key, err := f.active()
	if err != nil {
		return "", nil, err
	}

	aead, err := newAEAD(key.Key)
	if err != nil {
		return "", nil, err
	}

	return key.Name, aead.Seal(nil, nil, dataKey, bound), nil
}

// Unwrap decrypts a data key.
func (f *KeyFile) Unwrap(_ context.Context, name string, wrapped, bound []byte) ([]byte, error) {
	key, err := f.find(name)
	if err != nil {
		return nil, err
	}

	aead, err := newAEAD(key.Key)
	if err != nil {
		return nil, err
	}

	dataKey, err := aead.Open(nil, nil, wrapped, bound)
	if err != nil {
		return nil, errForged
	}

	return dataKey, nil
}

func (f *KeyFile) find(name string) (masterKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.problem != nil {
		return masterKey{}, f.problem
	}

	for _, k := range f.keys {
		if k.Name == name {
			return k, nil
		}
	}

	return masterKey{}, fault.New(fault.Unavailable, "secrets_key_missing", "key %s not found in key file %s",
		name, f.path).
		WithRemedy("put back the key file that has it and restart the server, or set the secret again")
}

// Rotate adds a new key to the file.
func (f *KeyFile) Rotate(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.problem != nil {
		return f.problem
	}

	return f.rotate()
}

func (f *KeyFile) rotate() error {
	key, name := make([]byte, keySize), make([]byte, 4)
	for _, b := range [][]byte{key, name} {
		if _, err := rand.Read(b); err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
	}

	now := f.clk.Now().UTC()
	made := masterKey{
		Name: now.Format(time.DateOnly) + "-" + hex.EncodeToString(name), Created: now.Truncate(time.Second), Key: key,
	}

	return f.write(append(append([]masterKey{}, f.keys...), made))
}

// Retire removes all keys but the newest from the file.
func (f *KeyFile) Retire(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.problem != nil {
		return f.problem
	}

	return f.write(f.keys[len(f.keys)-1:])
}

// write replaces the file, which is durable before a key in it is used. The caller holds the lock, or nobody else
// knows the file yet.
func (f *KeyFile) write(keys []masterKey) error {
	text, err := json.MarshalIndent(keyFileContent{Comment: keyFileComment, Keys: keys}, "", "  ")
	if err == nil {
		err = atomicfile.Write(f.path, append(text, '\n'), atomicfile.SingleWriter())
	}

	if err != nil {
		return fmt.Errorf("write the key file of the secrets: %w", err)
	}

	f.keys = keys

	return nil
}
