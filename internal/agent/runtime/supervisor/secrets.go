package supervisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api/wire"
)

// takeSecrets reads the secrets of the rank, which the agent passes on standard input because launch.json stays on the
// disk. They are then in the environment that the program gets and nowhere else, except those that it gets as files.
func (s *supervisor) takeSecrets() error {
	if len(s.rec.Launch.Secrets) == 0 {
		return nil
	}

	var secrets []wire.SecretValue
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(text, &secrets)
	}
	if err == nil {
		err = closeInput()
	}

	if err != nil {
		return fmt.Errorf("read the secrets of the rank: %w", err)
	}

	s.out.secrets = newPatterns(secrets)

	for _, secret := range secrets {
		value := secret.Value
		if secret.File {
			value, err = rundir.WriteSecret(s.dir, s.rec.User, secret.Name, secret.Value)
			if err != nil {
				return fmt.Errorf("write secret %s: %w", secret.Name, err)
			}
		}

		s.setVariable(secret.Name, value)
	}

	return nil
}

// setVariable gives a secret its place in the environment of the program. A variable of the yard itself stays as it is.
func (s *supervisor) setVariable(name, value string) {
	for i, entry := range s.rec.Env {
		if key, old, _ := strings.Cut(entry, "="); key == name && old == rundir.SecretMark {
			s.rec.Env[i] = name + "=" + value
		}
	}
}

// closeInput lets go of the file with the secrets.
func closeInput() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}

	defer func() { _ = null.Close() }()

	return unix.Dup3(int(null.Fd()), 0, 0)
}
