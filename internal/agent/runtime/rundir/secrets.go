package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"trainyard/internal/agent/sandbox"
)

// SecretMark stands in the environment of launch.json for the value of a secret.
const SecretMark = "<secret>"

// WriteSecret writes a secret that the program of a rank gets as a file, and returns its path. Only the program's user,
// nil if that is the agent's, may read it, and RemoveSecrets removes it when the rank has ended.
func WriteSecret(dir string, user *sandbox.User, name, value string) (string, error) {
	secrets := filepath.Join(dir, SecretsDir)
	if err := os.Mkdir(secrets, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}

	path := filepath.Join(secrets, name)
	err := os.WriteFile(path, []byte(value), 0o400)
	if err == nil && user != nil {
		err = errors.Join(os.Lchown(path, user.UID, user.GID), os.Lchown(secrets, user.UID, user.GID))
	}

	return path, err
}

// RemoveSecrets removes the secrets of a rank that has ended.
func RemoveSecrets(dir string) error { return RemoveTree(filepath.Join(dir, SecretsDir)) }
