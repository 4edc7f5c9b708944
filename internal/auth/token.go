package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

const (
	alphabet    = "abcdefghijklmnopqrstuvwxyz234567"
	idLen       = 10
	secretBytes = 32
	secretLen   = 52 // characters: 32 bytes in base32
	hashLen     = 2 * sha256.Size
	maxToken    = 256 // characters; longer text is not a token
)

// Secret is a newly minted token. Text is shown to its owner once and stored nowhere; ID and Hash
// go into the tenant.Token. Printing or logging a Secret does not show it.
type Secret struct {
	ID   id.Token
	Text string
	Hash string
}

// Parsed is a presented token. Nothing in it is verified; Matches does that. Printing or logging it
// does not show the secret.
type Parsed struct {
	Kind   tenant.TokenKind
	ID     id.Token
	Secret string
	CAHash string // "" in an access token
}

// Mint makes a token from the entropy it is given: crypto/rand.Reader outside
// of tests. Its text is
//
//	ty_<id>_<secret>            access
//	tyb_<id>_<secret>_<cahash>  bootstrap
//	tyj_<id>_<secret>_<cahash>  join
//
// A bootstrap or join token carries the CA's hash so that its holder can
// tell the right server from a wrong one at first contact. An access token does
// not: it is issued to callers that have already pinned the CA.
func Mint(kind tenant.TokenKind, entropy io.Reader, caHash string) (Secret, error) {
	prefix, carries, ok := prefixOf(kind)
	if !ok {
		return Secret{}, fault.New(fault.Invalid, "token_kind_invalid", "unknown token kind %.40q", string(kind)).
			WithRemedy("use %s, %s or %s", tenant.AccessToken, tenant.BootstrapToken, tenant.JoinToken)
	}

	if carries && !isHash(caHash) {
		return Secret{}, fault.New(fault.Internal, "ca_hash_invalid", "a %s token needs the hash of the CA", kind)
	}

	var raw [idLen + secretBytes]byte
	if _, err := io.ReadFull(entropy, raw[:]); err != nil {
		return Secret{}, fmt.Errorf("mint %s token: %w", kind, err)
	}

	name := make([]byte, idLen)
	for i := range name {
		name[i] = alphabet[raw[i]%byte(len(alphabet))] // 32 divides 256: every letter is equally likely
	}

	secret := base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(raw[idLen:])
	text := prefix + "_" + string(name) + "_" + secret
	if carries {
		text += "_" + caHash
	}

	return Secret{ID: id.Token(name), Text: text, Hash: HashSecret(secret)}, nil
}

// prefixOf returns the prefix of a kind of token, and whether its text contains the hash of the CA.
func prefixOf(kind tenant.TokenKind) (prefix string, carriesHash, ok bool) {
	switch kind {
	case tenant.AccessToken:
		return "ty", false, true
	case tenant.BootstrapToken:
		return "tyb", true, true
	case tenant.JoinToken:
		return "tyj", true, true
	}

	return "", false, false
}

// kindOf is the reverse of prefixOf.
func kindOf(prefix string) (kind tenant.TokenKind, carriesHash, ok bool) {
	switch prefix {
	case "ty":
		return tenant.AccessToken, false, true
	case "tyb":
		return tenant.BootstrapToken, true, true
	case "tyj":
		return tenant.JoinToken, true, true
	}

	return "", false, false
}

// Parse parses the text of a token. It ignores white space around it, which comes with copying. Its
// errors never quote the text: a token with a typing error is still most of a secret.
func Parse(text string) (Parsed, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Parsed{}, malformed("is empty")
	}
	if len(text) > maxToken {
		return Parsed{}, malformed("is longer than a token can be")
	}

	prefix, rest, _ := strings.Cut(text, "_")
	kind, carries, ok := kindOf(prefix)
	if !ok {
		return Parsed{}, malformed("does not begin with ty_, tyb_ or tyj_")
	}

	name, rest, _ := strings.Cut(rest, "_")
	if len(name) != idLen || !isBase32(name) {
		return Parsed{}, malformed("has an invalid ID: %d letters and digits expected", idLen)
	}

	secret, hash, more := strings.Cut(rest, "_")
	if len(secret) != secretLen || !isBase32(secret) {
		return Parsed{}, malformed("is incomplete or contains invalid characters")
	}
	if more != carries {
		return Parsed{}, malformed("has too many or too few parts for its kind")
	}
	if carries && !isHash(hash) {
		return Parsed{}, malformed("has an invalid CA hash: %d hexadecimal digits expected", hashLen)
	}

	return Parsed{Kind: kind, ID: id.Token(name), Secret: secret, CAHash: hash}, nil
}

func malformed(format string, args ...any) error {
	return fault.New(fault.Invalid, "token_malformed", "the token "+format, args...).
		WithRemedy("copy the complete token as it was printed")
}

func isBase32(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}

	return true
}

// isHash reports whether s is a SHA-256 in lower-case hex.
func isHash(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}

	return len(s) == hashLen
}

// HashSecret returns the stored form of a secret: its SHA-256 in hex. A slow, salted hash as for
// passwords would add no protection: it makes guessing expensive where people choose the secret,
// and 256 random bits cannot be guessed. A fast hash lets the server check every request.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Matches returns nil if the presented token is this one and is valid now. The secret is checked
// first, in constant time, so that only a holder learns the state of a token. A nil t matches
// nothing.
func Matches(t *tenant.Token, p Parsed, now time.Time) error {
	if t == nil || t.ID != p.ID || t.Kind != p.Kind || !secretIs(p.Secret, t.Hash) {
		return fault.New(fault.Unknown, "token_invalid", "invalid token").
			WithRemedy("check that it is complete and belongs to this yard; otherwise request a new one")
	}

	return usable(t, now)
}

// usable returns nil if the token is valid now, else why it is not.
func usable(t *tenant.Token, now time.Time) error {
	switch {
	case t.Usable(now):
		return nil
	case t.Revoked:
		return refusal(t, "token_revoked", "was revoked")
	case !now.Before(t.Expires):
		return refusal(t, "token_expired", "expired at "+t.Expires.UTC().Format(time.RFC3339))
	}

	return refusal(t, codeUsedUp, "has already been used up")
}

const codeUsedUp = "token_used_up"

// UsedUp reports whether an error of Matches says that the token is correct but has no uses left.
func UsedUp(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == codeUsedUp
}

// refusal returns the error for a token that is correct but no longer valid.
func refusal(t *tenant.Token, code, what string) error {
	var remedy string

	switch t.Kind {
	case tenant.AccessToken:
		remedy = "log in again with a token from an admin: trainyard tokens create --login --owner " + string(t.Owner) +
			"; an admin without one makes it on the server's machine: trainyard server --new-bootstrap-token"
	case tenant.JoinToken:
		remedy = "ask an admin for a new join token"
	case tenant.BootstrapToken:
		remedy = "ask an admin for a new one; on the server's machine: trainyard server --new-bootstrap-token"
	}

	return fault.New(fault.Unknown, code, "%s token %s %s", t.Kind, t.ID, what).WithRemedy("%s", remedy)
}

// secretIs compares in constant time, without heap allocations that would keep the secret in
// memory.
func secretIs(secret, hash string) bool {
	sum := sha256.Sum256([]byte(secret))
	var text [hashLen]byte
	hex.Encode(text[:], sum[:])

	return subtle.ConstantTimeCompare(text[:], []byte(hash)) == 1
}

// String names the token without its secret.
func (s Secret) String() string { return "token " + string(s.ID) + " (hidden)" }

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, for JSON and YAML: code that means to show the secret must write out Text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String names the token without its secret.
func (p Parsed) String() string { return string(p.Kind) + " token " + string(p.ID) + " (hidden)" }

// GoString is String, for %#v.
func (p Parsed) GoString() string { return p.String() }

// LogValue is String, for slog.
func (p Parsed) LogValue() slog.Value { return slog.StringValue(p.String()) }

// MarshalText is String, for JSON and YAML.
func (p Parsed) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
