package sandbox

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"trainyard/internal/fault"
)

// Users says as whom the jobs of a yard's users run on this machine.
type Users struct {
	// First and Last are the ids that belong to the yard: a user with number n has the id First + n, on every machine with
	// the same range.
	First, Last int
	// Accounts uses the machine's accounts of the same names instead.
	Accounts bool
}

// minUID is the smallest id that is not the system's own.
const minUID = 1000

// ParseUsers reads a range of ids, as FIRST-LAST.
func ParseUsers(text string) (Users, error) {
	first, last, ok := strings.Cut(text, "-")
	var u Users
	var err1, err2 error

	u.First, err1 = strconv.Atoi(first)
	u.Last, err2 = strconv.Atoi(last)

	if !ok || err1 != nil || err2 != nil || u.First < minUID || u.Last <= u.First || u.Last > 1<<31-2 {
		return Users{}, fmt.Errorf("must be FIRST-LAST, with ids from %d, got %q", minUID, text)
	}

	return u, nil
}

// Of returns as whom the jobs of a user run. The number is the user's own in the yard.
func (s Users) Of(name string, number int) (*User, error) {
	if s.Accounts {
		return account(name)
	}

	switch {
	case number < 1:
		return nil, fault.New(fault.Unavailable, "no_user_number",
			"the server does not say which number user %s has, so the jobs of that user cannot run as a user of their own",
			name).
			WithRemedy("upgrade the server")
	case number > s.Last-s.First:
		return nil, fault.New(fault.Unavailable, "no_user_id", "no id is left for user %s with number %d in %d-%d",
			name, number, s.First, s.Last).WithRemedy("enlarge --job-uids on every node")
	}

	return &User{Name: name, UID: s.First + number, GID: s.First + number}, nil
}

// account returns the account of a name on this machine.
func account(name string) (*User, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "no_account", "account %s not found on this node", name).
			WithRemedy("create the account, or run the agent without --job-accounts").WithCause(err)
	}

	u := &User{Name: name}
	if u.UID, err = strconv.Atoi(found.Uid); err == nil {
		u.GID, err = strconv.Atoi(found.Gid)
	}

	if err != nil {
		return nil, fmt.Errorf("read account %s: %w", name, err)
	}

	if u.UID < minUID || u.GID == 0 || u.UID == os.Geteuid() {
		return nil, fault.New(fault.Unavailable, "system_account",
			"account %s belongs to the system (uid %d, gid %d): no jobs run as it", name, u.UID, u.GID)
	}

	groups, err := found.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("read the groups of account %s: %w", name, err)
	}

	for _, text := range groups {
		gid, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("read the groups of account %s: %w", name, err)
		}

		if gid != 0 && gid != u.GID {
			u.Groups = append(u.Groups, gid)
		}
	}

	return u, nil
}
