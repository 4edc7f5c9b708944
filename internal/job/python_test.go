package job

import "testing"

func TestPythonVersion(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]bool{
		"3.11": true, "3.11.7": true, "3.9": true, "3.10": true, "3.0": true,
		"": false, "3": false, "2.7": false, "3.": false, ".3": false, "3.11.": false, "3.11.7.1": false, "3.x": false, "3.011": false,
		">=3.11": false, "3.11-dev": false, "3.1111": false, "-3.11": false,
	} {
		if got := PythonVersion(text); got != want {
			t.Errorf("%q is a version: %v", text, got)
		}
	}
}

func TestVersionFits(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		have, want string
		fits       bool
	}{
		{"3.11", "", true}, {"3.11", "3.11", true}, {"3.11", "3.11.7", true}, {"3.1", "3.11", false}, {"3.11", "3.1", false},
		{"3.11", "3.12", false},
	} {
		if got := VersionFits(tc.have, tc.want); got != tc.fits {
			t.Errorf("%s fits %q: %v", tc.have, tc.want, got)
		}
	}
}

func TestBuilder(t *testing.T) {
	t.Parallel()
	var none *Python

	for want, p := range map[Builder]*Python{
		BuilderNone: none, BuilderPython: {Version: "3.11"}, BuilderUV: {UV: "a/uv.lock"}, BuilderConda: {Conda: "e.yml"},
	} {
		if got := p.Builder(); got != want {
			t.Errorf("%+v needs %q, want %q", p, got, want)
		}
	}
}
