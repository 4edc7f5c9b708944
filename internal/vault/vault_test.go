package vault

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

const planted = "correct-horse-battery"

func user(name string) tenant.Subject { return tenant.Subject{User: id.User(name)} }

// open returns a vault over a key file.
func open(t *testing.T, path string, first bool) (*Vault, *KeyFile) {
	t.Helper()
	f := OpenKeyFile(path, clock.Wall{}, first)

	return &Vault{KMS: f}, f
}

func seal(t *testing.T, v *Vault, of tenant.Subject, name string) tenant.Secret {
	t.Helper()
	sealed, err := v.Seal(t.Context(), of, name, planted)
	if err != nil {
		t.Fatal(err)
	}

	return tenant.Secret{Subject: of, Name: name, Sealed: sealed}
}

func wantOpen(t *testing.T, v *Vault, s tenant.Secret) {
	t.Helper()

	if got, err := v.Open(t.Context(), &s); err != nil || got != planted {
		t.Errorf("%s decrypted to %q (%v)", s.Path(), got, err)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("error %v, want one with the code %s", err, code)
	}
}

func TestASealedSecretIsEncryptedAndComesBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.key")
	v, _ := open(t, path, true)
	first, second := seal(t, v, user("ada"), "KEY"), seal(t, v, user("ada"), "KEY")
	wantOpen(t, v, first)

	if bytes.Equal(first.Sealed.Value, second.Sealed.Value) || bytes.Equal(first.Sealed.DataKey, second.Sealed.DataKey) {
		t.Error("the same value was encrypted to the same bytes twice")
	}
	if bytes.Contains(first.Sealed.Value, []byte(planted)) {
		t.Error("the value is in its ciphertext")
	}

	again, _ := open(t, path, false)
	wantOpen(t, again, first)

	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has mode %v (%v), want 0600", info.Mode(), err)
	}
}

// TestASecretCannotBePassedOffAsAnother is about somebody who can write to the database: they could move another
// person's secret to their own name and let a job print it.
func TestASecretCannotBePassedOffAsAnother(t *testing.T) {
	t.Parallel()
	v, _ := open(t, filepath.Join(t.TempDir(), "secrets.key"), true)
	original := seal(t, v, user("ada"), "KEY")

	for what, change := range map[string]func(*tenant.Secret){
		"another owner":         func(s *tenant.Secret) { s.Subject = user("bob") },
		"a project of the name": func(s *tenant.Secret) { s.Subject = tenant.Subject{Project: "ada"} },
		"another name":          func(s *tenant.Secret) { s.Name = "OTHER" },
		"a changed value":       func(s *tenant.Secret) { s.Sealed.Value = flip(s.Sealed.Value) },
		"a changed data key":    func(s *tenant.Secret) { s.Sealed.DataKey = flip(s.Sealed.DataKey) },
		"an empty value":        func(s *tenant.Secret) { s.Sealed.Value = nil },
		"the data key of another": func(s *tenant.Secret) {
			s.Sealed.DataKey = seal(t, v, user("ada"), "KEY").Sealed.DataKey
		},
	} {
		s := original
		change(&s)
		value, err := v.Open(t.Context(), &s)
		wantCode(t, err, "secret_damaged")

		if value != "" {
			t.Errorf("with %s it decrypted to %q", what, value)
		}
	}
}

func flip(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)-1] ^= 1

	return b
}

func TestRotationKeepsOldSecretsReadableUntilAllAreRewrapped(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.key")
	v, f := open(t, path, true)
	old := seal(t, v, user("ada"), "KEY")

	if err := f.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}

	wantOpen(t, v, old)
	reopened, _ := open(t, path, false) // as after a crash in the middle
	wantOpen(t, reopened, old)

	sealed, err := v.Rewrap(t.Context(), &old)
	if err != nil {
		t.Fatal(err)
	}

	renewed := old
	renewed.Sealed = sealed
	if !bytes.Equal(sealed.Value, old.Sealed.Value) || sealed.Key == old.Sealed.Key {
		t.Errorf("rewrapped with key %s, which was %s", sealed.Key, old.Sealed.Key)
	}

	if err := f.Retire(t.Context()); err != nil {
		t.Fatal(err)
	}

	reopened, _ = open(t, path, false)
	for _, v := range []*Vault{v, reopened} {
		wantOpen(t, v, renewed)
		_, err := v.Open(t.Context(), &old)
		wantCode(t, err, "secrets_key_missing")
	}
}

func TestAKeyFileThatCannotBeUsedIsAClearErrorAndStaysAsItIs(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(path string) error
		code   string
	}{
		"missing":         {os.Remove, "secrets_key_missing"},
		"open to all":     {func(path string) error { return os.Chmod(path, 0o644) }, "secrets_key_open"},
		"open to a group": {func(path string) error { return os.Chmod(path, 0o640) }, "secrets_key_open"},
		"damaged":         {func(path string) error { return os.WriteFile(path, []byte(`{"keys":[]}`), 0o600) }, "secrets_key_damaged"},
		"a short key": {func(path string) error {
			return os.WriteFile(path, []byte(`{"keys":[{"name":"a","key":"AA=="}]}`), 0o600)
		}, "secrets_key_damaged"},
		"another file": {otherKeys, "secrets_key_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "secrets.key")
			v, _ := open(t, path, true)
			list := []tenant.Secret{seal(t, v, user("ada"), "KEY")}

			if err := test.change(path); err != nil {
				t.Fatal(err)
			}

			before, _ := os.ReadFile(path)
			v, _ = open(t, path, false)
			_, err := v.Open(t.Context(), &list[0])
			wantCode(t, err, test.code)
			v.Check(t.Context(), list)

			if !strings.Contains(list[0].Problem, path) {
				t.Errorf("problem %q, want one that names the file", list[0].Problem)
			}

			if name != "another file" {
				_, err = v.Seal(t.Context(), user("ada"), "NEW", planted)
				wantCode(t, err, test.code)
				wantCode(t, v.KMS.Rotate(t.Context()), test.code)
				wantCode(t, v.KMS.Retire(t.Context()), test.code)
			}

			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Errorf("the file was changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

// otherKeys replaces a key file by that of another yard.
func otherKeys(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}

	return OpenKeyFile(path, clock.Wall{}, true).Problem()
}

func TestKeysAreNamedByTheirDay(t *testing.T) {
	t.Parallel()
	v, f := open(t, filepath.Join(t.TempDir(), "secrets.key"), true)
	key, err := v.KMS.Active(t.Context())
	if err != nil || len(f.keys) != 1 {
		t.Fatal(err, f.keys)
	}

	day, _, _ := strings.Cut(f.keys[0].Created.Format(time.RFC3339), "T")
	if !strings.HasPrefix(key, day+"-") {
		t.Errorf("key %s was made on %s", key, day)
	}
}
