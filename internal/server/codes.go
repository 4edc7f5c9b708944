package server

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/id"
)

// CodeLife is for how long a link that signs in can be used.
const CodeLife = 10 * time.Minute

// Codes are the codes of links that sign a browser in, once, on the machine of the server. They are kept in memory:
// whoever starts a yard gets a new one. It is safe for concurrent use.
type Codes struct {
	clock clock.Clock

	mu   sync.Mutex
	open map[[sha256.Size]byte]code // by the hash of the code
}

type code struct {
	user  id.User
	until time.Time
}

// NewCodes returns an empty set.
func NewCodes(clk clock.Clock) *Codes {
	return &Codes{clock: clk, open: map[[sha256.Size]byte]code{}}
}

// New returns a code with which this user can sign in.
func (c *Codes) New(user id.User) string {
	text := rand.Text()

	c.mu.Lock()
	defer c.mu.Unlock()

	c.open[sha256.Sum256([]byte(text))] = code{user: user, until: c.clock.Now().Add(CodeLife)}

	return text
}

// take returns for whom a code is, and ends it: also one that comes from elsewhere, where nobody should have it.
func (c *Codes) take(text string, local bool, now time.Time) (id.User, bool) {
	if c == nil {
		return "", false
	}

	key := sha256.Sum256([]byte(text))

	c.mu.Lock()
	defer c.mu.Unlock()

	found, ok := c.open[key]
	delete(c.open, key)

	return found.user, ok && local && now.Before(found.until)
}
