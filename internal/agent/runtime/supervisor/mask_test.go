package supervisor

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
)

func values(list ...string) []api.SecretValue {
	out := make([]api.SecretValue, len(list))
	for i, v := range list {
		out[i] = api.SecretValue{Name: "KEY", Value: v}
	}

	return out
}

// maskPieces masks a text that is written in pieces.
func maskPieces(p *patterns, pieces ...string) string {
	m := mask{patterns: p}

	var out strings.Builder
	for _, piece := range pieces {
		out.Write(m.write([]byte(piece)))
	}

	out.Write(m.flush())

	return out.String()
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	const key = "-----BEGIN KEY-----\nbase64line1\n  base64line2\nshort\n-----END KEY-----\n"
	const first, longer = "hunter2hunter", "hunter2hunter2hunter3"

	for name, test := range map[string]struct {
		secrets []string
		pieces  []string
		want    string
	}{
		"in a line":                       {[]string{first}, []string{"pw=" + first + ".\n"}, "pw=***.\n"},
		"every time":                      {[]string{first}, []string{first + first + " " + first}, "****** ***"},
		"split over two writes":           {[]string{first}, []string{"a hunt", "er2hunter b"}, "a *** b"},
		"split over many writes":          {[]string{first}, strings.Split("-"+first+"-", ""), "-***-"},
		"a beginning that is not it":      {[]string{first}, []string{"hunt", "ing hunter2"}, "hunting hunter2"},
		"a beginning within a beginning":  {[]string{"ababc123"}, []string{"ab", "ababc", "123!"}, "ab***!"},
		"several lines":                   {[]string{key}, []string{"<" + key + ">"}, "<***>"},
		"several lines one by one":        {[]string{key}, []string{"1: base64line1\n", "2: base64line2\n"}, "1: ***\n2: ***\n"},
		"without its last line end":       {[]string{"line one\nline two\n"}, []string{"line one\nline two."}, "***."},
		"a short line is not":             {[]string{key}, []string{"short"}, "short"},
		"one that begins like another":    {[]string{first, longer}, []string{"hunter2hunter2", "hunter3"}, "***"},
		"the shorter of these":            {[]string{first, longer}, []string{"hunter2hunter2", "x"}, "***2x"},
		"ones that overlap":               {[]string{"abcdefgh", "efghijkl"}, []string{"abcdef", "ghijkl"}, "***"},
		"ones that overlap, byte by byte": {[]string{"abcdefgh", "efghijkl"}, strings.Split("<abcdefghijkl>", ""), "<***>"},
		"other bytes stay":                {[]string{first}, []string{"\xff\x00é"}, "\xff\x00é"},
		"what is kept back at the end":    {[]string{first}, []string{"hunter2"}, "hunter2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := maskPieces(newPatterns(values(test.secrets...)), test.pieces...); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestHoweverOutputIsSplitNoSecretIsInIt(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		secrets := rapid.SliceOfN(rapid.StringMatching(`[ab]{8,12}`), 1, 4).Draw(rt, "secrets")
		pieces := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[ab]{0,9}`), rapid.SampledFrom(secrets)), 0, 12).
			Draw(rt, "pieces")
		p := newPatterns(values(secrets...))
		text := strings.Join(pieces, "")

		got := maskPieces(p, pieces...)
		if whole := p.text(text); got != whole {
			rt.Fatalf("%q in pieces is %q, as a whole %q", pieces, got, whole)
		}

		for _, secret := range secrets {
			if strings.Contains(got, secret) {
				rt.Fatalf("%q became %q, in which %q is", text, got, secret)
			}
		}

		if !containsAny(text, secrets) && got != text {
			rt.Fatalf("%q became %q without a secret in it", text, got)
		}
	})
}

func containsAny(text string, list []string) bool {
	for _, s := range list {
		if strings.Contains(text, s) {
			return true
		}
	}

	return false
}

func TestASecretDoesNotReplaceAVariableOfTheYard(t *testing.T) {
	t.Parallel()

	s := &supervisor{rec: rundir.Record{Env: []string{"TOKEN=" + rundir.SecretMark, "RANK=0"}}}
	s.setVariable("TOKEN", "planted")
	s.setVariable("RANK", "planted")

	if got := strings.Join(s.rec.Env, " "); got != "TOKEN=planted RANK=0" {
		t.Errorf("the environment is %s", got)
	}
}

func TestWithoutSecretsNothingIsMasked(t *testing.T) {
	t.Parallel()

	if p := newPatterns(nil); p != nil || p.text("text") != "text" {
		t.Error("something is masked")
	}
}
