package sql

import (
	"context"
	"strings"

	"trainyard/internal/store"
)

var documentTable = &table{
	name: "documents", key: "kind, id",
	columns: []string{"kind", "id", "at", "doc"},
	fixed:   []string{"kind", "id"},
}

func documentRow(args []any, d *store.Document) ([]any, error) {
	return append(args, string(d.Kind), clean(d.ID), micros(d.At), clean(d.Text)), nil
}

func readDocument(row scanner) (d store.Document, err error) {
	err = row.Scan((*string)(&d.Kind), &d.ID, timeColumn{&d.At}, &d.Text)
	return d, err
}

// Keep writes documents in one transaction, independent of the loop's commits.
func (s *Store) Keep(ctx context.Context, docs ...store.Document) error {
	all := newest[recordKey, store.Document]{}
	for i := range docs {
		all.put(recordKey{string(docs[i].Kind), clean(docs[i].ID)}, 0, &docs[i])
	}

	return s.alone(ctx, "write documents", put(documentTable, all.rows(), documentRow))
}

// Drop deletes documents.
func (s *Store) Drop(ctx context.Context, kind store.DocumentKind, ids ...string) error {
	return s.alone(
		ctx,
		"delete documents",
		step{stmtKey{table: documentTable, remove: true}, len(ids), func(i int, args []any) ([]any, error) {
			return append(args, string(kind), clean(ids[i])), nil
		}},
	)
}

// alone carries out steps in a transaction of their own, if this store's server leads.
func (s *Store) alone(ctx context.Context, what string, steps ...step) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.term.Load() == 0 {
		return store.ErrNotLeader
	}

	return s.failure(what, s.transact(ctx, nil, steps...))
}

// Documents returns documents of a kind.
func (s *Store) Documents(ctx context.Context, f store.DocumentFilter) ([]store.Document, error) {
	var w where
	w.add("kind = ?", string(f.Kind))

	if f.ID != "" {
		w.add("id = ?", clean(f.ID))
	}

	if f.Under != "" {
		// A range instead of LIKE, because IDs may contain its wildcards and because both engines
		// use the index of the key for it.
		prefix := clean(f.Under) + "/"
		w.add("id >= ?", prefix)
		w.add("id < ?", strings.TrimSuffix(prefix, "/")+"0") // "0" is the character after "/"
	}

	order := "at DESC, id"
	if f.ByID {
		order = "id"
		w.add("id > ?", clean(f.After))
	}

	query, err := w.query(documentTable.selects(), order, f.Limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "document", query, w.args, readDocument)
}
