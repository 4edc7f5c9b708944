package storetest

import (
	"fmt"

	"trainyard/internal/id"
	"trainyard/internal/store"
)

func possessions() []contract {
	return []contract{
		{"a user possesses what was recorded of them alone", findsPossessions},
		{"a possession that is recorded again is there once, with its new size", replacesPossessions},
		{"what is disowned nobody possesses", disowns},
		{"many digests are looked up at once", findsManyPossessions},
		{"only the leader records possessions", refusesOthersPossessions},
	}
}

func possession(owner id.User, digest string, size int64) store.Possession {
	return store.Possession{Owner: owner, Digest: digest, Size: size, Since: dayOne}
}

// possessed lists which of the digests a user possesses.
func (h *harness) possessed(s store.Store, owner id.User, digests ...string) []string {
	h.Helper()
	list, err := s.Possessed(h.context(), owner, digests)
	h.must(err)

	return list
}

func (h *harness) possessedBytes(s store.Store, owner id.User) int64 {
	h.Helper()
	bytes, err := s.PossessedBytes(h.context(), owner)
	h.must(err)

	return bytes
}

func findsPossessions(h *harness) {
	s := h.writer()
	h.same("before anything is recorded", h.possessed(s, "ada", "a"), []string{})
	h.same("bytes before", h.possessedBytes(s, "ada"), int64(0))

	h.must(s.Possess(h.context(), possession("ada", "a", 1), possession("ada", "b", 20), possession("bob", "b", 20),
		possession("bob", "c", 300), possession("cy", "d", store.UnreadManifest)))

	h.same("of ada", h.possessed(s, "ada", "c", "b", "x", "a"), []string{"b", "a"})
	h.same("of bob", h.possessed(s, "bob", "a", "b", "c"), []string{"b", "c"})
	h.same("of nobody", h.possessed(s, "eve", "a", "b", "c"), []string{})
	h.same("nothing asked for", h.possessed(s, "ada"), []string{})
	h.same("bytes of ada", h.possessedBytes(s, "ada"), int64(21))
	h.same("bytes of bob", h.possessedBytes(s, "bob"), int64(320))
	h.same("bytes of each user", h.possessedBytes(s, ""), int64(341))
	h.same("bytes of an unread manifest", h.possessedBytes(s, "cy"), int64(0))

	digests, err := s.PossessedDigests(h.context(), "a", 2)
	h.must(err)
	h.same("a page of digests", digests, []string{"b", "c"})

	unread, err := s.UnreadManifests(h.context(), 10)
	h.must(err)
	h.same("unread manifests", unread, []store.Possession{possession("cy", "d", store.UnreadManifest)})
}

func replacesPossessions(h *harness) {
	s := h.writer()
	h.must(s.Possess(h.context(), possession("ada", "a", store.UnreadManifest)))
	h.must(s.Possess(h.context(), possession("ada", "a", 4), possession("ada", "a", 5)))
	h.same("bytes", h.possessedBytes(s, "ada"), int64(5))

	unread, err := s.UnreadManifests(h.context(), 10)
	h.must(err)
	h.same("unread manifests", unread, []store.Possession{})
}

func disowns(h *harness) {
	s := h.writer()
	h.must(s.Possess(h.context(), possession("ada", "a", 1), possession("bob", "a", 1), possession("bob", "b", 2)))
	h.must(s.Disown(h.context(), "a", "x"))
	h.same("of ada", h.possessed(s, "ada", "a"), []string{})
	h.same("of bob", h.possessed(s, "bob", "a", "b"), []string{"b"})
	h.same("bytes of bob", h.possessedBytes(s, "bob"), int64(2))
}

func findsManyPossessions(h *harness) {
	const many = 3500 // more than fit into one query

	list := make([]store.Possession, many)
	asked := make([]string, many)

	for i := range list {
		asked[i] = fmt.Sprintf("%04d", i)
		list[i] = possession("ada", asked[i], 1)
	}

	s := h.writer()
	h.must(s.Possess(h.context(), list...))
	h.same("all of them", h.possessed(s, "ada", asked...), asked)
}

func refusesOthersPossessions(h *harness) {
	h.refused(h.store().Possess(h.context(), possession("ada", "a", 1)))
	h.refused(h.store().Disown(h.context(), "a"))
}
