package auth

import (
	"errors"
	"slices"
	"sync"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Directory identifies callers by their tokens. It is a copy of the yardmaster's users, members of
// projects and tokens for the server's request path; the server updates it with every committed
// change. It is safe for concurrent use.
type Directory struct {
	mu      sync.RWMutex
	users   map[id.User]tenant.User
	tokens  map[id.Token]tenant.Token
	members map[memberKey]tenant.Member
	places  map[id.User]memberships
	changed chan struct{} // closed when somebody may do less, or more, than before
}

type memberKey struct {
	project id.Project
	user    id.User
}

// memberships are the projects of a user, each list by name.
type memberships struct{ member, leads []id.Project }

// NewDirectory returns an empty directory.
func NewDirectory() *Directory {
	return &Directory{
		users: map[id.User]tenant.User{}, tokens: map[id.Token]tenant.Token{},
		members: map[memberKey]tenant.Member{}, places: map[id.User]memberships{},
		changed: make(chan struct{}),
	}
}

// Changed returns a channel that is closed when what somebody may do changes: a token is revoked, a
// user is disabled or gets another role, a member joins or leaves a project. Those whose requests
// last ask again then.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()

	return d.changed
}

// wake tells those who wait for a change.
func (d *Directory) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// Set replaces all users, tokens and members, at the start of the server.
func (d *Directory) Set(users []tenant.User, tokens []tenant.Token, members []tenant.Member) {
	byUser := make(map[id.User]tenant.User, len(users))
	for _, u := range users {
		byUser[u.ID] = u
	}

	byToken := make(map[id.Token]tenant.Token, len(tokens))
	for _, t := range tokens {
		byToken[t.ID] = t
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.users, d.tokens = byUser, byToken
	d.members, d.places = make(map[memberKey]tenant.Member, len(members)), map[id.User]memberships{}

	for _, m := range members {
		d.members[memberKey{m.Project, m.User}] = m
	}

	for _, m := range members {
		d.placeOf(m.User)
	}

	d.wake()
}

// placeOf lists the projects of a user anew. The lists are not changed afterwards: callers have them.
func (d *Directory) placeOf(u id.User) {
	var all memberships
	for _, m := range d.members {
		if m.User != u || m.Removed {
			continue
		}

		all.member = append(all.member, m.Project)
		if m.Lead {
			all.leads = append(all.leads, m.Project)
		}
	}

	slices.Sort(all.member)
	slices.Sort(all.leads)
	d.places[u] = all
}

// PutMember adds or replaces a member of a project. An older version than the present one is dropped.
func (d *Directory) PutMember(m tenant.Member) {
	d.mu.Lock()
	defer d.mu.Unlock()

	key := memberKey{m.Project, m.User}
	if known, ok := d.members[key]; ok && known.Seq > m.Seq {
		return
	}

	d.members[key] = m
	d.placeOf(m.User)
	d.wake()
}

// PutUser adds or replaces a user. An older version than the present one is dropped, so that a late
// update never lets a disabled user back in.
func (d *Directory) PutUser(u tenant.User) {
	d.mu.Lock()
	defer d.mu.Unlock()

	known, ok := d.users[u.ID]
	if ok && known.Seq > u.Seq {
		return
	}

	d.users[u.ID] = u
	if known.Role != u.Role || known.Disabled != u.Disabled { // their usage changes all the time
		d.wake()
	}
}

// PutToken adds or replaces a token. An older version than the present one is dropped, so that a
// late update never restores a revoked token.
func (d *Directory) PutToken(t tenant.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()

	known, ok := d.tokens[t.ID]
	if ok && known.Seq > t.Seq {
		return
	}

	d.tokens[t.ID] = t
	if known.Revoked != t.Revoked || ok && !known.Expires.Equal(t.Expires) {
		d.wake()
	}
}

// Authenticate returns the user and the token for an access token presented as a bearer token,
// without the word "Bearer". A caller who cannot be identified gets an error of kind Unknown; a
// user who is known but disabled gets Denied.
func (d *Directory) Authenticate(bearer string, now time.Time) (tenant.Caller, id.Token, error) {
	t, u, err := d.check(tenant.AccessToken, bearer, now)
	if err != nil {
		return tenant.Caller{}, "", err
	}

	return d.callerOf(&t, &u), t.ID, nil
}

// Recheck returns what the holder of an access token that was authenticated before may do now, and
// until when the token is valid. It fails as Authenticate does.
func (d *Directory) Recheck(name id.Token, now time.Time) (tenant.Caller, time.Time, error) {
	t, known, u, hasOwner := d.find(name)
	if !known {
		return tenant.Caller{}, time.Time{}, Matches(nil, Parsed{ID: name}, now)
	}
	if err := usable(&t, now); err != nil {
		return tenant.Caller{}, time.Time{}, err
	}
	if err := d.admits(&t, &u, hasOwner, now); err != nil {
		return tenant.Caller{}, time.Time{}, err
	}

	return d.callerOf(&t, &u), t.Expires, nil
}

// callerOf returns the holder of a token with all that decides what they may do.
func (d *Directory) callerOf(t *tenant.Token, u *tenant.User) tenant.Caller {
	d.mu.RLock()
	defer d.mu.RUnlock()

	place := d.places[u.ID]

	return tenant.Caller{User: u.ID, Role: u.Role, Scope: t.Scope, Member: place.member, Leads: place.leads}
}

// maxLineage bounds how many tokens were created with one another. The store cannot be trusted to
// have no circle.
const maxLineage = 1000

// lineage returns nil if all tokens with which a token was created are valid, and their owners may
// log in.
func (d *Directory) lineage(t *tenant.Token, now time.Time) error {
	d.mu.RLock()
	defer d.mu.RUnlock()

	child := *t
	for range maxLineage {
		if child.Parent == "" {
			return nil
		}

		parent, known := d.tokens[child.Parent]
		owner := d.users[parent.Owner]
		if !known || !parent.Usable(now) || owner.ID == "" || owner.Disabled {
			break
		}

		child = parent
	}

	return refusal(t, "token_revoked", "ended with token "+string(child.Parent)+", with which it was created")
}

// Check returns the record of a presented bootstrap or join token if it is valid now. It does not
// count as a use: the yardmaster counts uses and decides when two come at once. A correct token
// that is used up is returned together with the error, because the caller who used it may be asking
// again after a lost answer.
func (d *Directory) Check(kind tenant.TokenKind, text string, now time.Time) (tenant.Token, error) {
	t, _, err := d.check(kind, text, now)
	return t, err
}

// check finds the token and its owner. Access tokens must have an owner; a bootstrap token exists
// before the first user, and a join token outlives the account of the admin who made it unless it
// is revoked.
func (d *Directory) check(kind tenant.TokenKind, text string, now time.Time) (tenant.Token, tenant.User, error) {
	p, err := Parse(text)
	if err != nil {
		return tenant.Token{}, tenant.User{}, asUnknown(err)
	}
	if p.Kind != kind {
		return tenant.Token{}, tenant.User{}, wrongKind(kind, p.Kind)
	}

	t, known, u, hasOwner := d.find(p.ID)
	if !known {
		return tenant.Token{}, tenant.User{}, Matches(nil, p, now)
	}

	if err := Matches(&t, p, now); err != nil {
		if !UsedUp(err) {
			t = tenant.Token{}
		}

		return t, tenant.User{}, err
	}

	if kind != tenant.AccessToken {
		if err := d.lineage(&t, now); err != nil {
			return tenant.Token{}, tenant.User{}, err
		}

		return t, tenant.User{}, nil
	}

	if err := d.admits(&t, &u, hasOwner, now); err != nil {
		return tenant.Token{}, tenant.User{}, err
	}

	return t, u, nil
}

// admits returns nil if the owner of a valid access token may use it.
func (d *Directory) admits(t *tenant.Token, u *tenant.User, hasOwner bool, now time.Time) error {
	if !hasOwner {
		return fault.New(fault.Unknown, "token_invalid", "the owner of the token no longer exists").
			WithRemedy("ask an admin for a new account")
	}

	if u.Disabled {
		return fault.New(fault.Denied, "user_disabled", "the account of %s is disabled", u.ID).
			WithRemedy("ask an admin to enable it")
	}

	return d.lineage(t, now)
}

func (d *Directory) find(name id.Token) (t tenant.Token, known bool, u tenant.User, hasOwner bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()

	t, known = d.tokens[name]
	if known {
		u, hasOwner = d.users[t.Owner]
	}

	return t, known, u, hasOwner
}

// Token returns a token by its ID.
func (d *Directory) Token(name id.Token) (tenant.Token, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()

	t, ok := d.tokens[name]

	return t, ok
}

// asUnknown converts the error about a malformed token to one of kind Unknown.
func asUnknown(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}

	unknown := *f
	unknown.Kind = fault.Unknown

	return &unknown
}

func wrongKind(want, got tenant.TokenKind) error {
	remedy := "use an access token"

	switch got {
	case tenant.BootstrapToken:
		remedy = "exchange it for an access token with trainyard login"
	case tenant.JoinToken:
		remedy = "use it with trainyard agent join"
	case tenant.AccessToken:
		remedy = "use a " + string(want) + " token"
	}

	return fault.New(fault.Unknown, "token_wrong_kind", "a token of kind %s is required, got %s", want, got).
		WithRemedy("%s", remedy)
}
