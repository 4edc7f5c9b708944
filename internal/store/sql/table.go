package sql

import (
	"context"
	"slices"
	"strings"
)

// table says how rows of one kind are written.
type table struct {
	name    string
	key     string   // its columns that make a row one
	columns []string // all, in the order in which they are written and read
	fixed   []string // columns that never change after the first writing
	frozen  bool     // a row never changes at all
	guard   bool     // a row gives way only to one with the same or a greater seq
}

// selects is the beginning of a query for whole rows.
func (t *table) selects() string { return "SELECT " + t.list("") + " FROM " + t.name + " " }

// list names the columns, each with the prefix.
func (t *table) list(prefix string) string {
	return prefix + strings.Join(t.columns, ", "+prefix)
}

// insert is the statement that writes a number of rows.
func (t *table) insert(rows int, mark func(int) string) string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + t.name + " (" + t.list("") + ") VALUES ")

	marks := make([]string, len(t.columns))
	for row := range rows {
		for column := range marks {
			marks[column] = mark(row*len(marks) + column + 1)
		}

		if row > 0 {
			b.WriteString(", ")
		}

		b.WriteString("(" + strings.Join(marks, ", ") + ")")
	}

	b.WriteString(" ON CONFLICT (" + t.key + ") DO ")

	if t.frozen {
		b.WriteString("NOTHING")
		return b.String()
	}

	b.WriteString("UPDATE SET ")

	sep := ""
	for _, column := range t.columns {
		if !slices.Contains(t.fixed, column) {
			b.WriteString(sep + column + " = excluded." + column)
			sep = ", "
		}
	}

	if t.guard {
		b.WriteString(" WHERE excluded.seq >= " + t.name + ".seq")
	}

	return b.String()
}

// remove is the statement that deletes a number of rows by their key.
func (t *table) remove(rows int, mark func(int) string) string {
	keys := strings.Split(t.key, ", ")
	marks := make([]string, rows)
	for i := range marks {
		columns := make([]string, len(keys))
		for k := range columns {
			columns[k] = mark(i*len(keys) + k + 1)
		}

		marks[i] = strings.Join(columns, ", ")
		if len(keys) > 1 {
			marks[i] = "(" + marks[i] + ")"
		}
	}

	if len(keys) > 1 {
		return "DELETE FROM " + t.name + " WHERE (" + t.key + ") IN (VALUES " + strings.Join(marks, ", ") + ")"
	}

	return "DELETE FROM " + t.name + " WHERE " + t.key + " IN (" + strings.Join(marks, ", ") + ")"
}

// stmtKey names a prepared statement.
type stmtKey struct {
	table  *table
	rows   int
	remove bool
}

// prepareStmt prepares a statement once; many rows go through it.
func (s *Store) prepareStmt(ctx context.Context, key stmtKey) error {
	if s.stmts[key] != nil {
		return nil
	}

	text := key.table.insert(key.rows, s.engine.mark)
	if key.remove {
		text = key.table.remove(key.rows, s.engine.mark)
	}

	stmt, err := s.write.PrepareContext(ctx, text) //nolint:sqlclosecheck // kept for later commits; Close closes it
	if err != nil {
		return err
	}

	s.stmts[key] = stmt

	return nil
}
