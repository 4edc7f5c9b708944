package sql

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"trainyard/internal/yardmaster"
)

// keyFilter knows of most idempotency keys that are not in the store that they are not, so that a new submission need
// not wait for the database to say so. It is a Bloom filter: a key whose bits are not all set was never stored; of any
// other the database is asked.
//
// There is one for each term. Only the leader writes, so what it says holds as long as the term lasts: it has the keys
// that were in the store when the term began, and each key is added before it is written. The keys from before are read
// page by page with the first lookups; until they are complete it says nothing.
type keyFilter struct {
	seed     maphash.Seed
	bits     []atomic.Uint64
	complete atomic.Bool

	mu   sync.Mutex // held while a page is read
	last submitKey  // of the pages that were read
}

// submitKey is an idempotency key as it is stored.
type submitKey struct{ owner, key string }

const (
	keyBits   = 1 << 25 // 4 MiB: of a million keys one in 5,000 is looked up in vain, of five million one in 25
	keyProbes = 4       // bits of a key
	keyPage   = 1000
)

func newKeyFilter() *keyFilter {
	return &keyFilter{seed: maphash.MakeSeed(), bits: make([]atomic.Uint64, keyBits/64)}
}

// positions returns the bits of a key.
func (f *keyFilter) positions(k submitKey) [keyProbes]uint32 {
	hash := maphash.Comparable(f.seed, k)
	at, step := uint32(hash), uint32(hash>>32)|1

	var list [keyProbes]uint32
	for i := range list {
		list[i] = at % keyBits
		at += step
	}

	return list
}

func (f *keyFilter) add(k submitKey) {
	for _, at := range f.positions(k) {
		f.bits[at/64].Or(1 << (at % 64))
	}
}

// lacks reports whether it is certain that a key was never stored.
func (f *keyFilter) lacks(k submitKey) bool {
	if !f.complete.Load() {
		return false
	}

	for _, at := range f.positions(k) {
		if f.bits[at/64].Load()&(1<<(at%64)) == 0 {
			return true
		}
	}

	return false
}

// addBatches adds the keys of batches that are about to be written.
func (f *keyFilter) addBatches(batches []*yardmaster.Batch) {
	for _, b := range batches {
		for i := range b.Jobs {
			if j := &b.Jobs[i]; j.Key != "" {
				f.add(submitKey{clean(string(j.Owner)), clean(j.Key)})
			}
		}
	}
}

// read adds the next page of the keys from before the term, unless they are complete or somebody else reads one.
func (f *keyFilter) read(ctx context.Context, from *reader) error {
	if f.complete.Load() || !f.mu.TryLock() {
		return nil
	}

	defer f.mu.Unlock()

	page, err := collect(ctx, from, "idempotency key", keyPageQuery, []any{f.last.owner, f.last.key, int64(keyPage)},
		func(row scanner) (k submitKey, err error) {
			err = row.Scan(&k.owner, &k.key)
			return k, err
		})
	if err != nil {
		return err
	}

	for _, k := range page {
		f.add(k)
	}

	if len(page) < keyPage {
		f.complete.Store(true)
	} else {
		f.last = page[len(page)-1]
	}

	return nil
}

// keyPageQuery reads the index alone.
const keyPageQuery = `SELECT owner, idem_key FROM jobs WHERE (owner, idem_key) > ($1, $2) AND idem_key <> ''
	ORDER BY owner, idem_key LIMIT $3`

// neverStored reports whether it is certain that no job was submitted with a key.
func (s *Store) neverStored(ctx context.Context, k submitKey) (bool, error) {
	f := s.keys.Load()
	if f == nil { // this server does not lead
		return false, nil
	}
	if err := f.read(ctx, s.read); err != nil {
		return false, err
	}

	return f.lacks(k), nil
}
