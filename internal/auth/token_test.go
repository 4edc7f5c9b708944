package auth_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/test/fuzzing"
)

const caHash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func kinds() []tenant.TokenKind {
	return []tenant.TokenKind{tenant.AccessToken, tenant.BootstrapToken, tenant.JoinToken}
}

func mint(tb testing.TB, kind tenant.TokenKind) auth.Secret {
	tb.Helper()
	s, err := auth.Mint(kind, rand.Reader, caHash)
	if err != nil {
		tb.Fatal(err)
	}

	return s
}

func parse(tb testing.TB, text string) auth.Parsed {
	tb.Helper()
	p, err := auth.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}

	return p
}

func TestAMintedTokenHasThePublishedForm(t *testing.T) {
	t.Parallel()
	entropy := make([]byte, 42)
	for i := range entropy {
		entropy[i] = byte(i)
	}

	const name, secret = "abcdefghij", "bifqydiob4ibceqtcqkrmfyydenbwha5dypsaijcemsckjrhfauq"

	for kind, want := range map[tenant.TokenKind]string{
		tenant.AccessToken:    "ty_",
		tenant.BootstrapToken: "tyb_",
		tenant.JoinToken:      "tyj_",
	} {
		s, err := auth.Mint(kind, bytes.NewReader(entropy), caHash)
		if err != nil {
			t.Fatal(err)
		}

		p := parse(t, s.Text)
		want += name + "_" + secret

		wantCA := ""
		if kind != tenant.AccessToken {
			want, wantCA = want+"_"+caHash, caHash
		}

		if s.Text != want || s.ID != name {
			t.Errorf("%s: text = %q, want %q", kind, s.Text, want)
		}

		if p.Kind != kind || p.ID != s.ID || p.CAHash != wantCA || p.Secret != secret || auth.HashSecret(p.Secret) != s.Hash {
			t.Errorf("%s: what was parsed is not what was minted", kind)
		}
	}
}

func TestTwoTokensDiffer(t *testing.T) {
	t.Parallel()
	a, b := mint(t, tenant.AccessToken), mint(t, tenant.AccessToken)
	if a.ID == b.ID || a.Hash == b.Hash || parse(t, a.Text).Secret == parse(t, b.Text).Secret {
		t.Error("two tokens share an id or a secret")
	}
}

func TestMintRefuses(t *testing.T) {
	t.Parallel()
	_, err := auth.Mint("master", rand.Reader, caHash)
	wantFault(t, err, fault.Invalid, "token_kind_invalid")

	if _, err := auth.Mint(tenant.JoinToken, rand.Reader, "abc"); codeOf(err) != "ca_hash_invalid" {
		t.Errorf("with a bad CA hash: %v", err)
	}

	if s, err := auth.Mint(tenant.AccessToken, iotest.DataErrReader(bytes.NewReader(make([]byte, 41))), ""); err == nil ||
		s.Text != "" {
		t.Error("a token was minted from too little entropy")
	}
}

func TestHashSecretIsSHA256(t *testing.T) {
	t.Parallel()

	if got := auth.HashSecret("abc"); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("hash = %s", got)
	}
}

func TestMalformedTokensAreRefusedWithoutEcho(t *testing.T) {
	t.Parallel()
	access, join := mint(t, tenant.AccessToken).Text, mint(t, tenant.JoinToken).Text
	tests := []struct{ name, text, message string }{
		{"empty", " \n", "the token is empty"},
		{"too long", strings.Repeat("ty_", 100), "the token is longer than a token can be"},
		{"no prefix", strings.TrimPrefix(access, "ty_"), "the token does not begin with ty_, tyb_ or tyj_"},
		{"other prefix", "gh" + access, "the token does not begin with ty_, tyb_ or tyj_"},
		{"capitals", strings.ToUpper(access), "the token does not begin with ty_, tyb_ or tyj_"},
		{"prefix alone", "ty_", "the token has an invalid ID: 10 letters and digits expected"},
		{"short id", "ty_abc" + access[13:], "the token has an invalid ID: 10 letters and digits expected"},
		{"bad id", "ty_abcde01890" + access[13:], "the token has an invalid ID: 10 letters and digits expected"},
		{"cut secret", access[:len(access)-1], "the token is incomplete or contains invalid characters"},
		{"longer secret", access + "a", "the token is incomplete or contains invalid characters"},
		{
			"capital in the secret",
			access[:len(access)-1] + "A",
			"the token is incomplete or contains invalid characters",
		},
		{"no secret", access[:14], "the token is incomplete or contains invalid characters"},
		{"access with a hash", access + "_" + caHash, "the token has too many or too few parts for its kind"},
		{"access with an end", access + "_", "the token has too many or too few parts for its kind"},
		{"join without hash", join[:len(join)-65], "the token has too many or too few parts for its kind"},
		{"join with a cut hash", join[:len(join)-1], "the token has an invalid CA hash: 64 hexadecimal digits expected"},
		{"join with more", join + "_x", "the token has an invalid CA hash: 64 hexadecimal digits expected"},
		{
			"space inside",
			access[:20] + " " + access[20:],
			"the token is incomplete or contains invalid characters",
		},
		{
			"zero byte",
			access[:20] + "\x00" + access[21:],
			"the token is incomplete or contains invalid characters",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := auth.Parse(tt.text)
			wantFault(t, err, fault.Invalid, "token_malformed")

			if diff := cmp.Diff(tt.message+" (copy the complete token as it was printed)", err.Error()); diff != "" {
				t.Error(diff)
			}

			if p != (auth.Parsed{}) {
				t.Error("a refused token left something behind")
			}
		})
	}
}

func TestSecretsAreHiddenWhereverTheyArePrinted(t *testing.T) {
	t.Parallel()

	for _, kind := range kinds() {
		s := mint(t, kind)
		p := parse(t, s.Text)

		var out bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("token minted", "secret", s, "parsed", p, "pointers", []any{&s, &p},
				"inside", struct{ S, P any }{s, p}, "list", []auth.Secret{s})
		}

		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&out, verb+verb+verb+verb+verb, s, p, &s, &p, []any{s, p})
		}

		if err := json.NewEncoder(&out).Encode(map[string]any{"s": s, "p": &p}); err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(out.String(), string(s.ID)) {
			t.Error("the output does not even name the token")
		}

		for _, hidden := range []string{p.Secret, s.Hash, fmt.Sprintf("%x", p.Secret)} {
			if strings.Contains(out.String(), hidden) {
				t.Errorf("the output of a %s token shows what should be hidden", kind)
			}
		}
	}
}

// record returns the token's record as the yardmaster would keep it.
func record(s auth.Secret, kind tenant.TokenKind, now time.Time) tenant.Token {
	return tenant.Token{
		ID: s.ID, Seq: 5, Kind: kind, Owner: "ada", Hash: s.Hash, Scope: tenant.ScopeSubmit,
		UsesLeft: 1, Created: now, Expires: now.Add(time.Hour),
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		name   string
		change func(*tenant.Token, *auth.Parsed)
		kinds  []tenant.TokenKind
		code   string
	}{
		{"a good token", func(*tenant.Token, *auth.Parsed) {}, kinds(), ""},
		{"last second", func(t *tenant.Token, _ *auth.Parsed) { t.Expires = now.Add(1) }, kinds(), ""},
		{"changed secret", func(_ *tenant.Token, p *auth.Parsed) { p.Secret = flip(p.Secret) }, kinds(), "token_invalid"},
		{"empty secret", func(_ *tenant.Token, p *auth.Parsed) { p.Secret = "" }, kinds(), "token_invalid"},
		{"hash instead of secret", func(t *tenant.Token, p *auth.Parsed) { p.Secret = t.Hash }, kinds(), "token_invalid"},
		{
			"record without hash",
			func(t *tenant.Token, p *auth.Parsed) { t.Hash, p.Secret = "", "" },
			kinds(),
			"token_invalid",
		},
		{"another id", func(_ *tenant.Token, p *auth.Parsed) { p.ID = "aaaaaaaaaa" }, kinds(), "token_invalid"},
		{"another kind", func(t *tenant.Token, _ *auth.Parsed) { t.Kind = "other" }, kinds(), "token_invalid"},
		{
			"wrong secret of a revoked one",
			func(t *tenant.Token, p *auth.Parsed) { t.Revoked, p.Secret = true, flip(p.Secret) },
			kinds(),
			"token_invalid",
		},
		{"expired", func(t *tenant.Token, _ *auth.Parsed) { t.Expires = now }, kinds(), "token_expired"},
		{"revoked", func(t *tenant.Token, _ *auth.Parsed) { t.Revoked = true }, kinds(), "token_revoked"},
		{
			"revoked and expired",
			func(t *tenant.Token, _ *auth.Parsed) { t.Revoked, t.Expires = true, now },
			kinds(),
			"token_revoked",
		},
		{
			"used up",
			func(t *tenant.Token, _ *auth.Parsed) { t.UsesLeft = 0 },
			[]tenant.TokenKind{tenant.BootstrapToken, tenant.JoinToken},
			"token_used_up",
		},
		{
			"uses do not count",
			func(t *tenant.Token, _ *auth.Parsed) { t.UsesLeft = 0 },
			[]tenant.TokenKind{tenant.AccessToken},
			"",
		},
	}

	for _, tt := range tests {
		for _, kind := range tt.kinds {
			t.Run(tt.name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				s := mint(t, kind)
				rec, p := record(s, kind, now), parse(t, s.Text)
				tt.change(&rec, &p)
				err := auth.Matches(&rec, p, now)
				if tt.code == "" {
					if err != nil {
						t.Error(err)
					}

					return
				}

				wantFault(t, err, fault.Unknown, tt.code)

				if p.Secret != "" && strings.Contains(err.Error(), p.Secret) {
					t.Error("the error shows the secret")
				}
			})
		}
	}

	wantFault(t, auth.Matches(nil, auth.Parsed{}, now), fault.Unknown, "token_invalid")
}

// flip changes the last letter of a secret.
func flip(secret string) string {
	last := byte('a')
	if secret[len(secret)-1] == last {
		last = 'b'
	}

	return secret[:len(secret)-1] + string(last)
}

func FuzzParse(f *testing.F) {
	for _, kind := range kinds() {
		text := mint(f, kind).Text
		f.Add(text)
		f.Add("  " + text + "\r\n")
		f.Add(text[:len(text)-1])
		f.Add(text + "_")
		f.Add(strings.ToUpper(text))
	}

	for _, text := range []string{"", "ty", "ty_", "tyb__", "tyj_abcdefghij_", "ty_\x00", "ty_é_é", strings.Repeat("_", 300)} {
		f.Add(text)
	}

	f.Add("ty_" + fuzzing.Long("a_"))

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		p, err := auth.Parse(text)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid || p != (auth.Parsed{}) {
				t.Fatalf("refused with %v", err)
			}

			for part := range strings.SplitSeq(strings.TrimSpace(text), "_") {
				if len(part) > 20 && strings.Contains(err.Error(), part) {
					t.Fatalf("the error quotes the token: %v", err)
				}
			}

			return
		}

		again := map[tenant.TokenKind]string{tenant.AccessToken: "ty", tenant.BootstrapToken: "tyb", tenant.JoinToken: "tyj"}[p.Kind] +
			"_" + string(p.ID) + "_" + p.Secret

		if p.Kind != tenant.AccessToken {
			again += "_" + p.CAHash
		}

		if again != strings.TrimSpace(text) {
			t.Fatalf("the parts give another text")
		}

		if strings.Contains(fmt.Sprint(p), p.Secret) || !id.Name(string(p.ID)) {
			t.Fatal("the secret shows, or the id is no name")
		}
	})
}

// Who is locked out cannot create a token, so the remedy names what others can do (newcomer 18).
func TestTheRemedyForAnEndedTokenIsPossible(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := mint(t, tenant.AccessToken)
	rec := record(s, tenant.AccessToken, now)
	rec.Owner, rec.Expires = "ada", now

	var f *fault.Error
	if err := auth.Matches(&rec, parse(t, s.Text), now); !errors.As(err, &f) ||
		!strings.Contains(f.Remedy, "tokens create --login --owner ada") ||
		!strings.Contains(f.Remedy, "--new-bootstrap-token") {
		t.Errorf("the remedy is %q", f.Remedy)
	}
}
