package simcli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatCannotBeAskedIsRefused(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		says string
		args []string
	}{
		{"invalid time", []string{"--from", "yesterday"}},
		{"must be an amount of money", []string{"--price", "A100=cheap"}},
		{"cannot be less than 0", []string{"--parallel", "-1"}},
		{"cannot be read", []string{"--offers", filepath.Join(t.TempDir(), "none.yaml")}},
		{"none of the others can be", []string{"--last", "7d", "--from", "2026-10-01"}},
	} {
		code, out, errs := typed(t, append([]string{"recommend"}, tc.args...)...)
		if code == 0 || out != "" || !strings.Contains(errs, tc.says) {
			t.Errorf("%v: code %d, %q, want it to say %q", tc.args, code, errs, tc.says)
		}
	}
}
