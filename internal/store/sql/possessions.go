package sql

import (
	"context"
	"strings"

	"trainyard/internal/id"
	"trainyard/internal/store"
)

var possessionTable = &table{
	name: "possessions", key: "owner, digest",
	columns: []string{"owner", "digest", "size", "since"},
	fixed:   []string{"owner", "digest", "since"},
}

// possessionsOfDigest is the same table, of which the rows of all owners of a content are deleted.
var possessionsOfDigest = &table{name: "possessions", key: "digest"}

func possessionRow(args []any, p *store.Possession) ([]any, error) {
	return append(args, clean(string(p.Owner)), clean(p.Digest), p.Size, micros(p.Since)), nil
}

func readPossession(row scanner) (p store.Possession, err error) {
	err = row.Scan((*string)(&p.Owner), &p.Digest, &p.Size, timeColumn{&p.Since})
	return p, err
}

func readDigest(row scanner) (digest string, err error) {
	err = row.Scan(&digest)
	return digest, err
}

// Possess records that users have contents.
func (s *Store) Possess(ctx context.Context, list ...store.Possession) error {
	type holding struct {
		owner  id.User
		digest string
	}

	all := newest[holding, store.Possession]{}
	for i := range list {
		all.put(holding{list[i].Owner, list[i].Digest}, 0, &list[i])
	}

	return s.alone(ctx, "write possessions", put(possessionTable, all.rows(), possessionRow))
}

// Disown deletes the possessions of contents.
func (s *Store) Disown(ctx context.Context, digests ...string) error {
	return s.alone(
		ctx,
		"delete possessions",
		step{stmtKey{table: possessionsOfDigest, remove: true}, len(digests), func(i int, args []any) ([]any, error) {
			return append(args, clean(digests[i])), nil
		}},
	)
}

// digestsPerQuery is how many digests are looked up at a time; databases bound the parameters of a query.
const digestsPerQuery = 1000

// Possessed returns those of the digests that a user possesses, in their order.
func (s *Store) Possessed(ctx context.Context, owner id.User, digests []string) ([]string, error) {
	held := make(map[string]bool, len(digests))
	for first := 0; first < len(digests); first += digestsPerQuery {
		part := digests[first:min(first+digestsPerQuery, len(digests))]
		args := make([]any, len(part))
		for i, d := range part {
			args[i] = clean(d)
		}

		var w where
		w.add("owner = ?", clean(string(owner)))
		w.add("digest IN (?"+strings.Repeat(", ?", len(args)-1)+")", args...)

		query, err := w.query("SELECT digest FROM possessions ", "digest", len(part))
		if err != nil {
			return nil, err
		}

		found, err := collect(ctx, s.read, "possession", query, w.args, readDigest)
		if err != nil {
			return nil, err
		}

		for _, d := range found {
			held[d] = true
		}
	}

	var list []string
	for _, d := range digests {
		if held[d] {
			list = append(list, d)
		}
	}

	return list, nil
}

// PossessedBytes returns the size of everything that a user possesses, or that each user does.
func (s *Store) PossessedBytes(ctx context.Context, owner id.User) (int64, error) {
	query, args := `SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM possessions WHERE size > 0`, []any(nil)
	if owner != "" {
		query, args = query+` AND owner = $1`, []any{clean(string(owner))}
	}

	sums, err := collect(ctx, s.read, "possession", query, args, func(row scanner) (sum int64, err error) {
		err = row.Scan(&sum)
		return sum, err
	})
	if err != nil {
		return 0, err
	}

	return sums[0], nil
}

// PossessedDigests lists the digests that anybody possesses.
func (s *Store) PossessedDigests(ctx context.Context, after string, limit int) ([]string, error) {
	var w where
	w.add("digest > ?", clean(after))

	query, err := w.query("SELECT DISTINCT digest FROM possessions ", "digest", limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "possession", query, w.args, readDigest)
}

// UnreadManifests lists the manifests whose files are not entered yet.
func (s *Store) UnreadManifests(ctx context.Context, limit int) ([]store.Possession, error) {
	var w where
	w.add("size < 0")

	query, err := w.query(possessionTable.selects(), "digest, owner", limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "possession", query, w.args, readPossession)
}
