package storetest

import (
	"time"

	"trainyard/internal/store"
)

func documents() []contract {
	return []contract{
		{"documents are found by kind, by id and under a job, newest first", findsDocuments},
		{"a document that is kept again is replaced", replacesDocuments},
		{"a document that was dropped is gone", dropsDocuments},
		{"only the leader keeps documents", refusesOthersDocuments},
	}
}

func document(kind store.DocumentKind, id string, minutes int, text string) store.Document {
	return store.Document{Kind: kind, ID: id, At: dayOne.Add(time.Duration(minutes) * time.Minute), Text: text}
}

// ids lists what a filter lets through.
func (h *harness) ids(s store.Store, f store.DocumentFilter) []string {
	h.Helper()
	docs, err := s.Documents(h.context(), f)
	h.must(err)

	var ids []string
	for _, d := range docs {
		ids = append(ids, d.ID)
	}

	return ids
}

func findsDocuments(h *harness) {
	s := h.writer()
	h.must(s.Keep(
		h.context(),
		document(store.CurveDocument, "j1/loss", 1, "a"),
		document(store.CurveDocument, "j1/val/loss %", 3, "b"),
		document(store.CurveDocument, "j10/loss", 2, "c"),
		document(store.CurveDocument, "j1", 4, "d"),
		document(store.PastDocument, "j1/loss", 5, "e"),
	))

	for name, tc := range map[string]struct {
		filter store.DocumentFilter
		want   []string
	}{
		"all of a kind": {store.DocumentFilter{Kind: store.CurveDocument, Limit: 10},
			[]string{"j1", "j1/val/loss %", "j10/loss", "j1/loss"}},
		"the newest": {store.DocumentFilter{Kind: store.CurveDocument, Limit: 2}, []string{"j1", "j1/val/loss %"}},
		"one":        {store.DocumentFilter{Kind: store.CurveDocument, ID: "j10/loss", Limit: 10}, []string{"j10/loss"}},
		"of a job": {store.DocumentFilter{Kind: store.CurveDocument, Under: "j1", Limit: 10},
			[]string{"j1/val/loss %", "j1/loss"}},
		"none": {store.DocumentFilter{Kind: store.ModelDocument, Limit: 10}, nil},
		"by id": {store.DocumentFilter{Kind: store.CurveDocument, ByID: true, Limit: 3},
			[]string{"j1", "j1/loss", "j1/val/loss %"}},
		"the page after": {store.DocumentFilter{Kind: store.CurveDocument, ByID: true, After: "j1/val/loss %", Limit: 3},
			[]string{"j10/loss"}},
	} {
		h.same(name, h.ids(s, tc.filter), tc.want)
	}
}

func replacesDocuments(h *harness) {
	s := h.writer()
	h.must(s.Keep(h.context(), document(store.PastDocument, "j1", 1, "old")))
	h.must(
		s.Keep(h.context(), document(store.PastDocument, "j1", 2, "middle"), document(store.PastDocument, "j1", 3, "new")),
	)
	docs, err := s.Documents(h.context(), store.DocumentFilter{Kind: store.PastDocument, Limit: 10})
	h.must(err)
	h.same("documents", docs, []store.Document{document(store.PastDocument, "j1", 3, "new")})
}

func dropsDocuments(h *harness) {
	s := h.writer()
	h.must(
		s.Keep(
			h.context(),
			document(store.PastDocument, "j1", 1, "a"),
			document(store.PastDocument, "j2", 2, "b"),
			document(store.ModelDocument, "j1", 3, "c"),
		),
	)

	h.must(s.Drop(h.context(), store.PastDocument, "j1", "j9"))
	h.same("left of its kind", h.ids(s, store.DocumentFilter{Kind: store.PastDocument, Limit: 10}), []string{"j2"})
	h.same("left of another kind", h.ids(s, store.DocumentFilter{Kind: store.ModelDocument, Limit: 10}), []string{"j1"})
}

func refusesOthersDocuments(h *harness) {
	h.refused(h.store().Keep(h.context(), document(store.PastDocument, "j1", 1, "a")))
}
