package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someProfile = `mode: set
trainyard/internal/job/a.go:1.1,2.2 3 1
trainyard/internal/job/a.go:3.1,4.2 1 0
trainyard/internal/id/b.go:1.1,2.2 4 0
trainyard/internal/id/b.go:1.1,2.2 4 1
`

func TestProfileIsSummedByPackage(t *testing.T) {
	t.Parallel()

	got, err := parse(strings.NewReader(someProfile))
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]share{"internal/job": {3, 4}, "internal/id": {4, 4}}
	for name, s := range want {
		if got[name] != s {
			t.Errorf("%s: %+v, want %+v", name, got[name], s)
		}
	}

	if all := total(got); all != (share{7, 8}) || all.percent() != 87.5 {
		t.Errorf("total = %+v", all)
	}
}

func TestBadProfilesAreRefused(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "mode: set\n", "mode: set\na b\n", "a.go:1.1,2.2 x 1\n", "a.go:1.1,2.2 1 x\n"} {
		if _, err := parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestLossBeyondTheToleranceFails(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name     string
		baseline string
		want     string // part of the output
		fails    bool
	}{
		{"no baseline", "", "total", false},
		{"as before", `{"total": 87.5, "packages": {"internal/job": 75, "internal/id": 100}}`, "+0.0", false},
		{"within the tolerance", `{"total": 87.5, "packages": {"internal/job": 77, "internal/id": 100}}`, "-2.0", false},
		{"a package lost more", `{"total": 87.5, "packages": {"internal/job": 80, "internal/id": 100}}`, "LOST", true},
		{"the whole lost more", `{"total": 99, "packages": {"internal/job": 75, "internal/id": 100}}`, "LOST", true},
		{
			"a package was not measured",
			`{"total": 99, "packages": {"internal/job": 75, "internal/x": 100}}`,
			"not in the profile: internal/x",
			false,
		},
		{"more than before", `{"total": 50, "packages": {"internal/job": 10, "internal/id": 100}}`, "+65.0", false},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			profile, stored := filepath.Join(dir, "cover.out"), filepath.Join(dir, "coverage.json")
			if err := os.WriteFile(profile, []byte(someProfile), 0o600); err != nil {
				t.Fatal(err)
			}

			if tt.baseline != "" {
				if err := os.WriteFile(stored, []byte(tt.baseline), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			var out bytes.Buffer
			err := run([]string{"-profile", profile, "-baseline", stored}, &out, &out)
			if errors.Is(err, errLost) != tt.fails || (err != nil && !tt.fails) {
				t.Errorf("error %v, want a loss: %v", err, tt.fails)
			}

			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("output has no %q:\n%s", tt.want, out.String())
			}
		})
	}
}

func TestStoredCoverageComparesEqual(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	profile, stored := filepath.Join(dir, "cover.out"), filepath.Join(dir, "new", "coverage.json")
	if err := os.WriteFile(profile, []byte(someProfile), 0o600); err != nil {
		t.Fatal(err)
	}

	args := []string{"-profile", profile, "-baseline", stored, "-tolerance", "0"}
	if err := run(append(args, "-store"), &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}

	if err := run(args, &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Errorf("error %v, want none", err)
	}
}
