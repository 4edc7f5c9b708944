package content

import (
	"context"
	"io"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
)

// CodeQuota is the code of an upload with which a user, or all users together, would possess too much.
const CodeQuota = "upload_quota"

// everybody is the account of all users together.
const everybody id.User = ""

// countAgain is how often the store is asked at most what a user possesses who has no room left.
const countAgain = time.Second

// Quota bounds the bytes that each user possesses, and all users together. What is being uploaded counts byte by byte,
// so uploads at the same time do not exceed it together. It is safe for concurrent use.
type Quota struct {
	each, all int64
	store     store.Store
	clock     clock.Clock

	mu       sync.Mutex
	accounts map[id.User]*account
}

// account is what a user possesses, and more: content that was removed, or uploaded twice, counts until the store is
// asked again, which is when there is no room left.
type account struct {
	possessed, underWay int64
	counted             time.Time // when the store was asked; zero if it was not
}

// NewQuota returns a quota of so many bytes of each user and in all; 0 is no limit.
func NewQuota(each, all int64, s store.Store, c clock.Clock) *Quota {
	return &Quota{each: each, all: all, store: s, clock: c, accounts: map[id.User]*account{}}
}

// Upload is an upload that counts against a quota.
type Upload struct {
	ctx   context.Context //nolint:containedctx // of the request, whose body is read without one
	in    io.Reader
	quota *Quota
	owner id.User
	n     int64
}

// Upload returns an upload of a user, which fails at once without room for the size that was announced, and later at
// the first byte without room. It has to be ended.
func (q *Quota) Upload(ctx context.Context, owner id.User, in io.Reader, announced int64) (*Upload, error) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if err := q.check(ctx, owner, max(announced, 1)); err != nil {
		return nil, err
	}

	return &Upload{ctx: ctx, in: in, quota: q, owner: owner}, nil
}

// Read reads what there is room for.
func (u *Upload) Read(p []byte) (int, error) {
	n, err := u.in.Read(p)
	if n == 0 {
		return n, err
	}

	q := u.quota

	q.mu.Lock()
	defer q.mu.Unlock()

	if over := q.check(u.ctx, u.owner, int64(n)); over != nil {
		return 0, over
	}

	u.n += int64(n)
	for _, who := range []id.User{u.owner, everybody} {
		q.account(who).underWay += int64(n)
	}

	return n, err
}

// End ends the upload; possessed says whether the user possesses the content now.
func (u *Upload) End(possessed bool) {
	u.quota.mu.Lock()
	defer u.quota.mu.Unlock()

	for _, who := range []id.User{u.owner, everybody} {
		a := u.quota.account(who)
		a.underWay -= u.n

		if possessed {
			a.possessed += u.n
		}
	}
}

func (q *Quota) account(who id.User) *account {
	a := q.accounts[who]
	if a == nil {
		a = &account{}
		q.accounts[who] = a
	}

	return a
}

// check fails if there is no room for so many bytes more.
func (q *Quota) check(ctx context.Context, owner id.User, more int64) error {
	const remedy = "upload less, or ask an administrator for "

	if has, err := q.exceeded(ctx, owner, q.each, more); err != nil {
		return err
	} else if has >= 0 {
		return fault.New(fault.OverLimit, CodeQuota,
			"the uploaded files of %s have %s, and the limit is %s: no room for %s more",
			owner, job.Bytes(has), job.Bytes(q.each), job.Bytes(more)).
			WithRemedy(remedy + "a higher --max-uploaded or a shorter --keep-workdirs")
	}

	if has, err := q.exceeded(ctx, everybody, q.all, more); err != nil {
		return err
	} else if has >= 0 {
		return fault.New(fault.OverLimit, CodeQuota, "the uploaded files of all users have reached the limit of %s",
			job.Bytes(q.all)).WithRemedy(remedy + "a higher --max-all-uploaded or a shorter --keep-workdirs")
	}

	return nil
}

// exceeded returns how much there is if there is no room for so many bytes more, and otherwise -1.
func (q *Quota) exceeded(ctx context.Context, who id.User, limit, more int64) (int64, error) {
	if limit == 0 {
		return -1, nil
	}

	a := q.account(who)
	full := a.possessed+a.underWay+more > limit

	// The lock is held meanwhile: what is uploaded until it is released is added, and counts twice at worst.
	if now := q.clock.Now(); a.counted.IsZero() || full && now.Sub(a.counted) >= countAgain {
		bytes, err := q.store.PossessedBytes(ctx, who)
		if err != nil {
			return 0, err
		}

		a.possessed, a.counted = bytes, now
		full = a.possessed+a.underWay+more > limit
	}

	if !full {
		return -1, nil
	}

	return a.possessed + a.underWay, nil
}
